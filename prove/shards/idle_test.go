package shards_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// TestStopWhenIdleEndsAfterTheLastShard: the handler of each message sends the next message to the next place, while the other places
// are empty.
func TestStopWhenIdleEndsAfterTheLastShard(t *testing.T) {
	for name, kind := range map[string]chanq.Kind{"plain": chanq.KindPlain, "ordered": chanq.KindOrdered} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(w *world) {
				q := w.queue(chanq.Config{Spec: chanq.Spec{Kind: kind}})
				p := w.produce(q, chanq.ProducerConfig{})
				next := func(i int) chanq.Message[string] {
					for try := 0; ; try++ {
						m := chanq.Message[string]{Body: fmt.Sprint(i), DedupKey: fmt.Sprint(i, "/", try)}
						if kind == chanq.KindOrdered {
							m.Key, m.DedupKey = m.DedupKey, ""
						}
						if q.ShardOf(m) == i%count {
							return m
						}
					}
				}
				hops := 10
				if w.places[0].Engine.Bubble {
					hops = 30
				}
				testdb.SendBy(w, p, next(0))
				handled, runs := 0, 0
				for ; handled < hops; runs++ {
					before, c := handled, w.start(q, chanq.ConsumerConfig{StopWhenIdle: true})
					require.NoError(w, c.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error {
						pass := time.After(time.Duration(handled%7) * 300 * time.Millisecond) // the other shards poll
						<-pass
						if handled++; handled < hops {
							testdb.SendBy(w, p, next(handled))
						}
						return nil
					}))
					require.NoError(w, c.Shutdown(w.soon()))
					require.Greater(w, handled, before, "a run handles what was there when it began")
				}
				require.LessOrEqual(w, runs, hops)
				require.Zero(w, w.counted(q))
			})
		})
	}
}

// TestStopWhenIdleDoesNotEndWhileAShardIsUnavailable: the last message is in a place that does not respond.
func TestStopWhenIdleDoesNotEndWhileAShardIsUnavailable(t *testing.T) {
	onEach(t, func(w *world) {
		if w.schemas != nil {
			w.Skip("one *sql.DB has all places")
		}
		q := w.queue(chanq.Config{})
		w.send(q, of(q, 1, 1, "a")...)
		w.gone(1)
		c := w.start(q, chanq.ConsumerConfig{StopWhenIdle: true})
		<-time.After(3 * time.Second)
		select {
		case <-c.Done():
			require.Fail(w, "the consumer has stopped")
		default:
		}
		w.Heal()
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		for range c.C() {
			require.Fail(w, "there is only one message")
		}
		require.NoError(w, c.Err())
		require.NoError(w, c.Shutdown(w.soon()))
		require.Zero(w, w.counted(q))
	})
}
