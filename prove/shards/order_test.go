package shards_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
)

var ordered = chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 16}}

func pass(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error) { return nil, nil }

// TestKeysKeepTheirOrderOverShards has two consumers and one place that is temporarily unavailable.
func TestKeysKeepTheirOrderOverShards(t *testing.T) {
	onEach(t, func(w *world) {
		const keys, each = 30, 12
		q := w.queue(w.brief(ordered))
		h := record.NewHistory(0)
		h.Ordered, h.Broken = true, true
		var mu sync.Mutex
		seen := map[string]int64{}
		var handled sync.WaitGroup
		handled.Add(keys * each)
		var ends []func()
		for range 2 {
			c := w.start(q, quick)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = c.Handle(8, func(_ context.Context, l *chanq.Lease[string]) error {
					name := l.Key + "/" + l.Body
					mu.Lock()
					seen[name]++
					again := seen[name] // its attempt is not 1 if the answer to an earlier claim came too late
					mu.Unlock()
					e := record.Event{Name: name, At: record.Now(), Attempt: l.Attempt, Lease: again, How: record.Ack}
					for _, e.Kind = range []record.Kind{record.Got, record.Settling, record.Unknown} {
						h.Add(1, e)
					}
					if again == 1 {
						handled.Done()
					}
					return nil
				})
			}()
			end := func() { w.Heal(); c.Stop(); <-done }
			w.Cleanup(end)
			ends = append(ends, end)
		}
		p := w.produce(q, chanq.ProducerConfig{})
		for n := 1; n <= each; n++ {
			for k := range keys {
				key := fmt.Sprint("key", k)
				for _, kind := range []record.Kind{record.Intended, record.Stored} {
					h.Add(0, record.Event{Kind: kind, At: int64(n), Name: record.NameOf(key, n)})
				}
				p.C() <- chanq.Message[string]{Key: key, Body: fmt.Sprint(n)}
			}
			switch n {
			case each / 3:
				w.gone(2)
			case each * 2 / 3:
				w.Heal()
			}
		}
		require.NoError(w, p.Flush(w.soon()))
		all := make(chan struct{})
		go func() { handled.Wait(); close(all) }()
		testdb.Receive(w, all, "the last message")
		for _, end := range ends { // a late delivery is an event, too
			end()
		}
		require.Empty(w, h.Judge().Faults)
	})
}

// TestSendComesAfterWhatTheSameGoroutineHasSentOnC, also while messages for another, unavailable shard block C.
func TestSendComesAfterWhatTheSameGoroutineHasSentOnC(t *testing.T) {
	onBubbles(t, func(w *world) {
		q := w.queue(ordered)
		p := w.produce(q, chanq.ProducerConfig{BufferBytes: count * 10_000})
		const n = 100
		here, there := keyed(q, ordered, 0, 1)[0].Key, keyed(q, ordered, 1, 1)[0].Key
		w.gone(0)
		for i := range n - 2 {
			p.C() <- chanq.Message[string]{Key: here, Body: strconv.Itoa(i)}
		}
		time.AfterFunc(time.Second, w.Heal)
		testdb.SendBy(w, p, chanq.Message[string]{Key: here, Body: strconv.Itoa(n - 2)})
		w.gone(1)
		blocked := make(chan struct{})
		go func() {
			defer close(blocked)
			for range 3 * n {
				p.C() <- chanq.Message[string]{Key: there}
			}
		}()
		time.Sleep(time.Second)
		testdb.SendBy(w, p, chanq.Message[string]{Key: here, Body: strconv.Itoa(n - 1)})
		require.Empty(w, blocked, "C is blocked")
		w.Heal()
		<-blocked
		c := w.start(q, chanq.ConsumerConfig{})
		for i := 0; i < n; {
			l := testdb.Take(w, c, 1)[0]
			if l.Key == here {
				require.Equal(w, strconv.Itoa(i), l.Body)
				i++
			}
			require.NoError(w, l.Ack())
		}
	})
}

// TestSlotsMoveAlthoughTheirLeasesWaitForAReader: only the one lease of each shard that has left the buffer keeps its slot.
func TestSlotsMoveAlthoughTheirLeasesWaitForAReader(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		q := w.queue(ordered)
		p := w.produce(q, chanq.ProducerConfig{})
		for i := range 200 {
			testdb.SendBy(w, p, chanq.Message[string]{Key: fmt.Sprint(i), Body: "a"})
		}
		first := w.start(q, chanq.ConsumerConfig{LeaseFor: time.Minute, PollEvery: 50 * time.Millisecond})
		_ = first.C() // from now on one lease of each shard waits for a reader
		testdb.Eventually(w, "it has all slots, and one lease of each shard waits for a reader", func() bool {
			s := first.Stats()
			return s.Slots == 2*ordered.Slots && s.Held-s.Buffered-s.Waiting == 2
		})
		second := w.start(q, chanq.ConsumerConfig{LeaseFor: time.Minute, PollEvery: 50 * time.Millisecond})
		testdb.Eventually(w, "half of them move, except the slots of leases that wait for a reader", func() bool {
			return second.Stats().Slots >= ordered.Slots-2
		})
	})
}

func TestEachShardHasKeysInAllItsSlots(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		q := w.queue(ordered)
		p := w.produce(q, chanq.ProducerConfig{})
		var ms []chanq.Message[string]
		for i := range 400 {
			ms = append(ms, chanq.Message[string]{Key: fmt.Sprint("customer-", i), Body: "a"})
		}
		testdb.SendBy(w, p, ms...)
		for i := range 2 {
			slots, err := testdb.Admin(w.shard(q, i)).Slots(w.soon())
			require.NoError(w, err)
			require.Len(w, slots, ordered.Slots)
			for _, s := range slots {
				require.NotZero(w, s.Messages, "slot %d of shard %d", s.Slot, i)
			}
		}
	})
}
