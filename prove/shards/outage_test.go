package shards_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// TestAnUnavailableShardDelaysItsOwnMessagesOnly makes one of three shards unavailable for a while,
// in two ways, while a consumer reads and a producer sends.
func TestAnUnavailableShardDelaysItsOwnMessagesOnly(t *testing.T) {
	for _, way := range []struct {
		name string
		go_  func(*world, int)
	}{{"broken", (*world).gone}, {"silent", (*world).silent}} {
		t.Run(way.name, func(t *testing.T) {
			onEach(t, func(w *world) { outage(w, way.go_) })
		})
	}
}

func outage(w *world, goAway func(*world, int)) {
	const away = 1
	var mu sync.Mutex
	var events []chanq.AvailabilityEvent
	q := w.queue(chanq.Config{StatementTimeout: w.soonest(time.Second), Hooks: chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}})
	c, y := w.handle(q, quick)
	p := w.produce(q, chanq.ProducerConfig{})
	before := bodies("before", 30)
	testdb.SendBy(w, p, before...)
	testdb.Eventually(w, "all messages from before the outage are handled", func() bool { return y.has(before) })
	require.NoError(w, c.Flush(w.soon()), "otherwise their acks are lost and they are redelivered")

	goAway(w, away)
	own := of(q, away, 10, "own")
	stored := make(chan error, 1)
	go func() {
		_, err := p.SendBatch(context.Background(), own...)
		stored <- err
	}()
	testdb.Eventually(w, "the producer has detected the outage", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			if e.Part == "producer" && !e.Up {
				return true
			}
		}
		return false
	})
	var others []chanq.Message[string]
	for _, shard := range []int{0, 2} {
		others = append(others, of(q, shard, 20, "others")...)
	}
	anywhere := bodies("anywhere", 200)
	_, err := p.SendBatch(w.soon(), others...)
	require.NoError(w, err)
	_, err = p.SendBatch(w.soon(), anywhere...)
	require.NoError(w, err, "messages without a key go to an available shard")
	for _, m := range bodies("single", 20) {
		_, err := p.Send(w.soon(), m)
		require.NoError(w, err)
	}
	testdb.Eventually(w, "the others are handled", func() bool { return y.has(others) && y.has(anywhere) })
	require.Zero(w, y.count(own))
	require.Empty(w, stored, "messages of the unavailable shard wait")
	select {
	case <-c.Done():
		w.Fatal("the consumer has ended: ", c.Err())
	default:
	}

	w.Heal()
	require.NoError(w, testdb.Receive(w, stored, "the waiting messages are stored"))
	testdb.Eventually(w, "all are handled", func() bool { return y.has(own) })
	y.once(w)
	mu.Lock()
	defer mu.Unlock()
	for _, e := range events {
		require.Equal(w, "orders/place1", e.Queue, "%+v", e)
	}
}

func TestUnsentMessagesOfAllShardsAreReported(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		var reported atomic.Int64
		q := w.queue(chanq.Config{Hooks: chanq.Hooks{Sent: func(e chanq.SentEvent) {
			require.NotEqual(w, "orders/place2", e.Queue)
			reported.Add(int64(e.Messages))
		}}})
		p := w.produce(q, chanq.ProducerConfig{})
		w.gone(2)
		lost, kept := of(q, 2, 5, "lost"), of(q, 0, 5, "kept")
		for i := range lost {
			p.C() <- lost[i]
			p.C() <- kept[i]
		}
		testdb.Eventually(w, "the others are stored, and the producer has detected the outage", func() bool { return reported.Load() == 5 })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		var unsent *chanq.UnsentError[string]
		require.True(w, errors.As(p.Close(ctx), &unsent))
		require.Len(w, unsent.Unsent, len(lost))
		for i, u := range unsent.Unsent {
			require.Equal(w, lost[i].Body, u.Message.Body)
			require.Equal(w, "orders/place2", opError(w, u.Err).Queue)
		}
		w.Heal()
		require.NoError(w, p.Close(w.soon()))
	})
}

func TestCloseReturnsAnErrorIfItGivesUpASend(t *testing.T) {
	onBubbles(t, func(w *world) {
		q := w.queue(chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{})
		w.gone(0)
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(context.Background(), of(q, 0, 1, "sent")[0])
			sent <- err
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errors.New("the time is over"))
		defer cancel()
		require.ErrorContains(w, p.Close(ctx), "the time is over")
		require.Error(w, <-sent)
		w.Heal()
		require.NoError(w, p.Close(w.soon()), "everything has ended")
	})
}

// TestFlushDuringCloseReportsWhatCloseDoes: one place is unavailable. Close stores its message, or
// gives up.
func TestFlushDuringCloseReportsWhatCloseDoes(t *testing.T) {
	for i := range 4 {
		stores, opened := i%2 == 1, i/2 == 1
		t.Run(fmt.Sprintf("stores=%t,opened=%t", stores, opened), func(t *testing.T) {
			onBubbles(t, func(w *world) {
				q := w.queue(chanq.Config{})
				w.gone(0)
				if !opened {
					q = w.open(chanq.Config{})
				}
				p := w.produce(q, chanq.ProducerConfig{})
				p.C() <- of(q, 0, 1, "sent")[0]
				time.Sleep(time.Second)
				closed, flushed := make(chan error, 1), make(chan error, 1)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() { closed <- p.Close(ctx) }()
				time.Sleep(time.Second)
				go func() { flushed <- p.Flush(w.soon()) }()
				time.Sleep(time.Second)
				require.Empty(w, flushed, "the message is not stored yet")
				if stores {
					w.Heal()
					require.NoError(w, <-flushed)
					require.NoError(w, <-closed)
					return
				}
				cancel()
				require.ErrorContains(w, <-flushed, "messages sent on C that could not be stored: 1, Close returns them")
				require.ErrorContains(w, p.Flush(w.soon()), "Close returns them", "also later")
				var unsent *chanq.UnsentError[string]
				require.ErrorAs(w, <-closed, &unsent)
				w.Heal()
				require.NoError(w, p.Close(w.soon()))
			})
		})
	}
}

func TestAPermanentErrorOfOneShardEndsTheConsumer(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(w.brief(chanq.Config{}))
		c := w.start(q, quick)
		require.NoError(w, chanqadmin.DropWithMessages(w.soon(), w.places[2].DB, "orders", chanq.Config{}, chanqadmin.Change{}))
		testdb.Receive(w, c.Done(), "the end")
		require.ErrorIs(w, c.Err(), chanq.ErrNoSchema)
		require.Equal(w, "orders/place2", opError(w, c.Err()).Queue)
		require.ErrorIs(w, c.Shutdown(w.soon()), chanq.ErrNoSchema)
	})
}
