package conform

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// Operators' calls on a queue that is in use.
var sweeping = []test{
	{"PurgeEndsBesideProducersAndCountsWhatItDeleted", purgeBesideProducers},
	{"PurgeOfTheDeadEndsBesideAConsumerThatSetsAside", purgeBesideTheDying},
	{"RedriveMovesEachOnceBesideAConsumerThatSetsAsideAgain", redriveBesideTheDying},
	{"RedriveWithALimitGoesOnWithTheOldest", redriveInParts},
	{"StatsAreExactWhateverTheOtherStatesHold", statsBesideMany},
}

// sendUntil sends from two producers until stop is called, which returns how many
// messages were stored.
func sendUntil(w *world, q *chanq.Queue[string]) (stop func() int) {
	var stored atomic.Int64
	var senders sync.WaitGroup
	ctx, cancel := context.WithCancel(w.soon())
	for range 2 {
		p := produce(w, q, chanq.ProducerConfig{})
		senders.Go(func() {
			for ctx.Err() == nil {
				receipts, err := p.SendBatch(w.soon(), texts("a", "b", "c", "d"))
				if err != nil {
					w.Errorf("send: %v", err)
					return
				}
				stored.Add(int64(len(receipts)))
			}
		})
	}
	return func() int {
		cancel()
		senders.Wait()
		return int(stored.Load())
	}
}

// left counts all messages of a state, which Stats does up to a limit only.
func left(w *world, q *chanq.Queue[string], s chanq.State) int {
	w.Helper()
	n, err := q.Purge(w.soon(), s)
	require.NoError(w, err)
	return n
}

func purgeBesideProducers(w *world) {
	q := w.queue("work", chanq.Config{})
	const before = 2500
	ids := send(w, q, texts(make([]string, before)...)...)
	stop := sendUntil(w, q)
	n, err := q.Purge(w.soon(), chanq.Ready)
	sent := stop()
	require.NoError(w, err)
	require.GreaterOrEqual(w, n, before)
	w.requireState(q, ids[0], "")
	w.requireState(q, ids[before-1], "")
	require.Equal(w, before+sent, n+left(w, q, chanq.Ready), "each is deleted once")
}

// killer sets aside whatever comes, and counts it.
func killer(w *world, q *chanq.Queue[string]) *atomic.Int64 {
	var killed atomic.Int64
	c := start(w, q, chanq.ConsumerConfig{PollMax: 10 * time.Millisecond})
	ended := make(chan struct{})
	go func() { // ends with the consumer
		defer close(ended)
		_ = c.Handle(2, func(context.Context, *chanq.Lease[string]) error {
			killed.Add(1)
			return chanq.DeadLetter(errors.New("again"))
		})
	}()
	w.Cleanup(func() {
		c.Stop()
		<-ended
	})
	return &killed
}

func purgeBesideTheDying(w *world) {
	q := w.queue("work", chanq.Config{})
	const before = 1500
	kill(w, q, texts(make([]string, before)...)...)
	killed := killer(w, q)
	stop := sendUntil(w, q)
	w.eventually("more are set aside", func() bool { return killed.Load() > 0 })
	n, err := q.Purge(w.soon(), chanq.Dead)
	sent := stop()
	require.NoError(w, err)
	require.GreaterOrEqual(w, n, before)
	w.eventually("all others are set aside", func() bool {
		s := counted(w, q)
		return s.Ready+s.Scheduled+s.Leased == 0
	})
	require.Equal(w, before+sent, n+left(w, q, chanq.Dead), "each is deleted once")
}

func redriveBesideTheDying(w *world) {
	q := w.queue("work", chanq.Config{})
	const dead = 2200
	kill(w, q, texts(make([]string, dead)...)...)
	killed := killer(w, q)
	n, err := q.Redrive(w.soon(), 0)
	require.NoError(w, err)
	require.Equal(w, dead, n)
	w.eventually("all are set aside again", func() bool { return counted(w, q) == chanq.Stats{Dead: dead} })
	require.EqualValues(w, dead, killed.Load(), "none was redriven twice")
}

func redriveInParts(w *world) {
	q := w.queue("work", chanq.Config{})
	var ids []chanq.ID
	for range 3 {
		ids = append(ids, kill(w, q, texts(make([]string, 400)...)...)...)
	}
	n, err := q.Redrive(w.soon(), 1100)
	require.NoError(w, err)
	require.Equal(w, 1100, n)
	require.Equal(w, chanq.Stats{Ready: 1100, Dead: 100}, counted(w, q))
	w.requireState(q, ids[799], chanq.Ready)
	twice, err := q.RedriveIDs(w.soon(), append(ids, ids...)...)
	require.NoError(w, err)
	require.Len(w, twice, 100, "one that is named twice is moved once")
}

// statsBesideMany has many messages of one state, more than are counted, before and
// behind a few of another.
func statsBesideMany(w *world) {
	q := w.queue("work", chanq.Config{})
	const limit, many, few = 10_000, 10_500, 10
	some := func(n int, d time.Duration) []chanq.Message[string] {
		batch := make([]chanq.Message[string], n)
		for i := range batch {
			batch[i].Delay = d
		}
		return batch
	}
	for range many / 1500 {
		send(w, q, some(1500, 0)...)
	}
	send(w, q, some(few, 48*time.Hour)...)
	require.Equal(w, chanq.Stats{Ready: limit, Scheduled: few}, counted(w, q))
	for range many / 500 {
		lease(w, q, 500, 24*time.Hour)
	}
	require.Equal(w, chanq.Stats{Scheduled: few, Leased: limit}, counted(w, q), "few scheduled behind many leased")
	entries, err := q.Peek(w.soon(), chanq.Scheduled, 1000)
	require.NoError(w, err)
	require.Len(w, entries, few)

	n, err := q.Purge(w.soon(), chanq.Leased)
	require.NoError(w, err)
	require.Equal(w, many, n)
	send(w, q, some(few, 0)...)
	lease(w, q, few, 72*time.Hour)
	for range many / 1500 {
		send(w, q, some(1500, time.Hour)...)
	}
	require.Equal(w, chanq.Stats{Scheduled: limit, Leased: few}, counted(w, q), "few leased behind many scheduled")
	entries, err = q.Peek(w.soon(), chanq.Leased, 1000)
	require.NoError(w, err)
	require.Len(w, entries, few)
}
