package shards_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

func TestAQueueIsEmptyIfEachShardAnswersThatItIs(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		require.True(w, testdb.Empty(w, q))
		for i := range count {
			id := w.send(q, of(q, i, 1, "a")...)[0]
			require.False(w, testdb.Empty(w, q), "a message is in shard %d", i)
			found, err := q.Cancel(w.soon(), id)
			require.NoError(w, err)
			require.Len(w, found, 1)
			require.True(w, testdb.Empty(w, q))
		}
		w.gone(1)
		empty, err := q.Empty(w.soon())
		require.Equal(w, "orders/place1", opError(w, err).Queue)
		require.False(w, empty, "the contents of the unavailable shard are unknown")
	})
}

func TestCancelFindsMessagesInAllShards(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		var ids []chanq.ID
		for i := range count {
			ids = append(ids, w.send(q, of(q, i, 3, "a")...)...)
		}
		found, err := q.Cancel(w.soon(), append(ids[1:8:8], chanq.NewID())...)
		require.NoError(w, err)
		require.ElementsMatch(w, ids[1:8], found)
		require.Equal(w, chanqadmin.Stats{Ready: 2}, w.counted(q))
		if w.schemas != nil {
			return // one *sql.DB has all places
		}
		w.gone(1)
		found, err = q.Cancel(w.soon(), ids[0], ids[8])
		require.Equal(w, "orders/place1", opError(w, err).Queue)
		require.ElementsMatch(w, []chanq.ID{ids[0], ids[8]}, found, "messages of the other shards are cancelled")
	})
}

func TestRunNowAndFindLookInAllShards(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		var ids []chanq.ID
		var keys []string
		for i := range count {
			m := of(q, i, 1, "a")[0]
			m.Delay = time.Hour
			ids = append(ids, w.send(q, m)...)
			keys = append(keys, m.DedupKey)
		}
		found, err := q.Find(w.soon(), append(keys, "none")...)
		require.NoError(w, err)
		require.ElementsMatch(w, ids, found)
		require.Equal(w, chanqadmin.Stats{Scheduled: count}, w.counted(q))
		found, err = q.RunNow(w.soon(), append(found, chanq.NewID())...)
		require.NoError(w, err)
		require.ElementsMatch(w, ids, found)
		require.Equal(w, chanqadmin.Stats{Ready: count}, w.counted(q))
	})
}

func TestATransactionIsInOneShard(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(w.brief(chanq.Config{}))
		tx, err := w.places[1].DB.BeginTx(w.soon(), nil)
		require.NoError(w, err)
		defer tx.Rollback()
		wrong := of(q, 2, 1, "wrong")[0]
		_, err = w.shard(q, 1).SendTx(w.soon(), tx, wrong)
		require.ErrorContains(w, err, "belongs to shard 2")
		right := of(q, 1, 1, "right")[0]
		_, err = w.shard(q, 1).SendTx(w.soon(), tx, right, chanq.Message[string]{Body: "any"})
		require.NoError(w, err)
		require.NoError(w, tx.Commit())

		c := w.start(q, quick)
		q.Wake()
		for _, l := range testdb.Take(w, c, 2) {
			require.Equal(w, "orders/place1", l.Queue)
			tx, err := w.places[q.Origin(l)].DB.BeginTx(w.soon(), nil)
			require.NoError(w, err)
			require.NoError(w, l.AckTx(w.soon(), tx))
			require.NoError(w, tx.Commit())
		}
		require.Zero(w, w.counted(q))
	})
}

func TestCancelEndsTheContextsOfHandlersInAllShards(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		var ids []chanq.ID
		for i := range count {
			ids = append(ids, w.send(q, of(q, i, 2, "a")...)...)
		}
		c := w.start(q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		began, causes, left := make(chan chanq.ID, len(ids)), make(chan error, len(ids)), make(chan error, 1)
		go func() {
			left <- c.Handle(len(ids), func(ctx context.Context, l *chanq.Lease[string]) error {
				began <- l.ID
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			})
		}()
		for range ids {
			testdb.Receive(w, began, "a handler begins")
		}
		found, err := q.Cancel(w.soon(), ids...)
		require.NoError(w, err)
		require.ElementsMatch(w, ids, found)
		for range ids {
			require.ErrorIs(w, testdb.Receive(w, causes, "its context ends"), chanq.ErrCancelled)
		}
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "Handle returns"))
		require.Equal(w, chanqadmin.Stats{}, w.counted(q))
	})
}
