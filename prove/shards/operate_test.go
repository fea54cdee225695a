package shards_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

func TestAQueueIsEmptyIfEachShardAnswersThatItIs(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		require.True(w, testdb.Empty(w, q))
		for i := range count {
			id := testdb.Send(w, q, of(q, i, 1, "a")...)[0]
			require.False(w, testdb.Empty(w, q), "one is in shard %d", i)
			found, err := q.Cancel(w.soon(), id)
			require.NoError(w, err)
			require.Len(w, found, 1)
			require.True(w, testdb.Empty(w, q))
		}
		w.gone(1)
		empty, err := q.Empty(w.soon())
		require.Equal(w, "place1", opError(w, err).Shard)
		require.False(w, empty, "what is in the shard that is away is not known")
	})
}

func TestOperatorsSeeAllShardsAsOneQueue(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		ms := bodies("a", 24)
		for i := range ms {
			ms[i].Priority = chanq.Priority(i%3 - 1)
		}
		p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 4})
		ids := testdb.SendBy(w, p, ms...)
		scheduled := testdb.SendBy(w, p, chanq.Message[string]{Body: "later", Delay: time.Hour})
		require.Equal(w, chanq.Stats{Ready: 24, Scheduled: 1}, testdb.Counted(w, q))

		all, err := q.Peek(w.soon(), chanq.StateReady, 100)
		require.NoError(w, err)
		require.Len(w, all, len(ms))
		require.True(w, slices.IsSortedFunc(all, func(a, b chanq.Entry) int { return int(b.Priority) - int(a.Priority) }), "they come in the order of claims")
		require.Equal(w, all, pages(w, q, chanq.StateReady, 7), "page by page they are the same")
		require.Equal(w, idsOf(all), browsed(w, q, chanq.StateReady, 7), "and as outlines")

		for i := range count {
			require.NotZero(w, testdb.Counted(w, q.Shard(i)).Ready)
		}
		require.False(w, testdb.Empty(w, q))
		found, err := q.Cancel(w.soon(), append(ids[:2:2], scheduled...)...)
		require.NoError(w, err)
		require.ElementsMatch(w, append(ids[:2:2], scheduled...), found)
		_, err = q.Get(w.soon(), ids[0])
		require.ErrorIs(w, err, chanq.ErrNotFound)

		require.NoError(w, q.Pause(w.soon()))
		require.True(w, testdb.Stats(w, q).Paused)
		require.True(w, testdb.Stats(w, q.Shard(2)).Paused)
		require.NoError(w, q.Resume(w.soon()))
		require.False(w, testdb.Stats(w, q).Paused)

		leases := testdb.Lease(w, q, 22, time.Minute)
		for _, l := range leases {
			require.NoError(w, l.DeadLetter(errors.New("no")))
		}
		for _, l := range leases {
			require.NoError(w, l.Wait(w.soon()))
		}
		testdb.Eventually(w, "no shard has a live message", func() bool { return testdb.Empty(w, q) })
		dead := pages(w, q, chanq.StateDead, 5)
		require.Len(w, dead, 22)
		require.Equal(w, idsOf(dead), browsed(w, q, chanq.StateDead, 4))
		moved, err := q.RedriveIDs(w.soon(), ids[2], ids[3])
		require.NoError(w, err)
		require.ElementsMatch(w, ids[2:4], moved)
		gone, err := q.PurgeIDs(w.soon(), ids[4:12]...)
		require.NoError(w, err)
		require.Len(w, gone, 8)
		n, err := q.Redrive(w.soon(), 12)
		require.NoError(w, err)
		require.Equal(w, 12, n)
		n, err = q.Purge(w.soon(), chanq.StateReady)
		require.NoError(w, err)
		require.Equal(w, 14, n)
		require.Zero(w, testdb.Counted(w, q))
	})
}

// pages are all messages of a state, n at a time.
func pages(w *world, q *chanq.Queue[string], s chanq.State, n int) []chanq.Entry {
	page, err := q.Peek(w.soon(), s, n)
	all := page
	for len(page) == n {
		require.NoError(w, err)
		page, err = q.PeekAfter(w.soon(), page[n-1], n)
		all = append(all, page...)
	}
	require.NoError(w, err)
	return all
}

func TestATransactionIsInOneShard(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		tx, err := w.places[1].DB.BeginTx(w.soon(), nil)
		require.NoError(w, err)
		defer tx.Rollback()
		_, err = q.SendTx(w.soon(), tx, chanq.Message[string]{Body: "a"})
		require.ErrorContains(w, err, "Queue.Shard")
		_, err = q.CancelTx(w.soon(), tx, chanq.NewID())
		require.ErrorContains(w, err, "Queue.Shard")
		wrong := of(q, 2, 1, "wrong")[0]
		_, err = q.Shard(1).SendTx(w.soon(), tx, wrong)
		require.ErrorContains(w, err, "belongs to shard 2")
		right := of(q, 1, 1, "right")[0]
		_, err = q.Shard(1).SendTx(w.soon(), tx, right, chanq.Message[string]{Body: "any"})
		require.NoError(w, err)
		require.NoError(w, tx.Commit())

		c := testdb.Start(w, q, quick)
		q.Wake()
		for _, l := range testdb.Take(w, c, 2) {
			require.Equal(w, 1, l.Shard)
			tx, err := w.places[l.Shard].DB.BeginTx(w.soon(), nil)
			require.NoError(w, err)
			require.NoError(w, l.AckTx(w.soon(), tx))
			require.NoError(w, tx.Commit())
		}
		require.Zero(w, testdb.Counted(w, q))
	})
}

// browsed are the same as outlines.
func browsed(w *world, q *chanq.Queue[string], s chanq.State, n int) (ids []chanq.ID) {
	for from, page := chanq.Place(""), 0; from != "" || page == 0; page++ {
		list, next, err := q.Browse(w.soon(), s, from, n)
		require.NoError(w, err)
		ids, from = append(ids, idsOf(list)...), next
	}
	return ids
}

func idsOf(list []chanq.Entry) (ids []chanq.ID) {
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return ids
}

// Those of each shard follow on those of the one before; the leased ones lie among others.
func TestABrowseOfAnOrderedQueueGoesFromShardToShard(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{Kind: chanq.KindOrdered, Slots: 4})
		for i := range count {
			testdb.Send(w, q, of(q, i, 12, "a")...)
		}
		leased := testdb.Lease(w, q, 6, time.Minute)
		for _, s := range []chanq.State{chanq.StateReady, chanq.StateLeased} {
			all, err := q.Peek(w.soon(), s, 100)
			require.NoError(w, err)
			require.Equal(w, idsOf(all), browsed(w, q, s, 5), s)
		}
		require.Len(w, browsed(w, q, chanq.StateLeased, 1), len(leased))
	})
}
