package chanq

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// falls panics where statements are made: so does any goroutine that makes them, as by a fault
// of chanq's.
type falls struct {
	sqlbatch.Queue
	at    string
	armed *atomic.Bool
}

func (f falls) fall(at string) {
	if f.at == at && f.armed.Load() {
		panic("a fault")
	}
}

func (f falls) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	f.fall("claim")
	return f.Queue.Claim(p)
}

func (f falls) ClaimSlots(c sqlbatch.SlotClaim) sqlbatch.Statement {
	f.fall("claim")
	return f.Queue.ClaimSlots(c)
}

func (f falls) Survey() sqlbatch.Statement {
	f.fall("survey")
	return f.Queue.Survey()
}

func (f falls) Slots(parts []sqlbatch.SlotPart) sqlbatch.Statement {
	f.fall("survey")
	return f.Queue.Slots(parts)
}

func (f falls) Extend(items []sqlbatch.Item, d time.Duration) sqlbatch.Statement {
	f.fall("extend")
	return f.Queue.Extend(items, d)
}

func (f falls) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	f.fall("ack")
	return f.Queue.Ack(items)
}

func (f falls) Join(m sqlbatch.Member) sqlbatch.Statement {
	f.fall("join")
	return f.Queue.Join(m)
}

func TestAPanicOfAnyGoroutineEndsTheConsumerWithAnErrorAndNothingHangs(t *testing.T) {
	for _, kind := range []Kind{KindPlain, KindOrdered} {
		for _, at := range []string{"claim", "survey", "extend", "ack", "join"} {
			t.Run(kind.String()+"/"+at, func(t *testing.T) {
				t.Parallel()
				q := openTestQueue[string](t, Config{Kind: kind})
				_, err := testProducer(t, q, ProducerConfig{}).SendBatch(t.Context(), make([]Message[string], 3)...)
				require.NoError(t, err)
				armed := &atomic.Bool{}
				q.core.sql = falls{q.core.sql, at, armed}
				armed.Store(at != "ack" && at != "extend")
				c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Second})
				if !armed.Load() {
					held := <-c.C()
					armed.Store(true)
					if at == "ack" {
						require.NoError(t, held.Ack())
						var op *OpError
						require.ErrorAs(t, held.Wait(soon(t)), &op)
						require.True(t, op.Unknown)
					}
				}
				requireFallen(t, c)
			})
		}
	}
}

// requireFallen waits for the end of a consumer after a panic. What a reader does not settle keeps
// it for LeaseFor.
func requireFallen(t *testing.T, c *Consumer[string]) {
	t.Helper()
	select {
	case <-c.Done():
	case <-soon(t).Done():
		require.Fail(t, "the consumer goes on")
	}
	require.ErrorContains(t, c.Err(), "a fault")
	for l := range c.C() {
		require.NoError(t, l.Release())
	}
	require.NoError(t, c.Shutdown(soon(t)))
	_ = c.Stats()
}

func TestAPanicInTheLinesHandsNothingOutAnyMore(t *testing.T) {
	q := openTestQueue[string](t, Config{Kind: KindOrdered, Slots: 1})
	ms := make([]Message[string], 4)
	for i := range ms {
		ms[i].Key = "a"
	}
	_, err := testProducer(t, q, ProducerConfig{}).SendBatch(t.Context(), ms...)
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Second})
	first := <-c.C()
	require.Eventually(t, func() bool { return c.Stats().Waiting == 3 }, 10*time.Second, time.Millisecond)
	c.order.change(func(*lines) { panic("a fault") })
	require.NoError(t, first.Ack())
	require.NoError(t, first.Wait(soon(t)))
	next, open := <-c.C()
	require.False(t, open, "%v", next)
	requireFallen(t, c)
}
