package shards_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

func TestAProgramStartsThoughAPlaceIsAway(t *testing.T) {
	onEach(t, func(w *world) {
		for _, cfg := range []chanq.Config{{}, ordered} {
			name := "plain"
			if cfg.Kind == chanq.KindOrdered {
				name = "ordered"
			}
			require.NoError(w, chanq.MigrateShards(w.soon(), w.shards(), name, cfg))
			w.gone(1)
			q, err := chanq.OpenShards[string](w.soon(), w.shards(), name, cfg)
			require.NoError(w, err)
			_, y := w.handle(q, quick)
			p := testdb.Produce(w, q, chanq.ProducerConfig{StatementTimeout: time.Second})
			others, own := keyed(q, cfg, 0, 5), keyed(q, cfg, 1, 5)
			testdb.SendBy(w, p, others...)
			for _, m := range own {
				p.C() <- m
			}
			testdb.Eventually(w, "the others are handled", func() bool { return y.has(others) })
			require.Zero(w, y.count(own))
			w.Heal()
			testdb.Eventually(w, "all are handled", func() bool { return y.has(own) })
		}
	})
}

// keyed are messages that belong to a shard, of whatever kind of queue.
func keyed(q *chanq.Queue[string], cfg chanq.Config, shard, n int) []chanq.Message[string] {
	ms := of(q, shard, n, "keyed")
	for i := range ms {
		ms[i].Body += string(rune('a' + shard))
		if cfg.Kind == chanq.KindOrdered {
			ms[i].Key, ms[i].DedupKey = ms[i].DedupKey, ""
		}
	}
	return ms
}

// TestAPlaceThatWasAwayIsRefusedWhenItIsAnother: what Open would have said is said before the
// first statement.
func TestAPlaceThatWasAwayIsRefusedWhenItIsAnother(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		other := newWorld(t, sqlite, sqlite, sqlite)
		there := other.queue(chanq.Config{})
		testdb.Send(w, there, of(there, 1, 3, "foreign")...)
		list := w.shards()
		list[1].DB = other.places[1].DB
		other.gone(1)
		q, err := chanq.OpenShards[string](w.soon(), list, "orders", chanq.Config{})
		require.NoError(w, err)
		other.Heal()
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		_, err = p.Send(w.soon(), of(q, 1, 1, "own")[0])
		errShards(w, err)
		_, err = q.Shard(1).Stats(w.soon())
		errShards(w, err)
		tx, err := list[1].DB.BeginTx(w.soon(), nil)
		require.NoError(w, err)
		_, err = q.Shard(1).SendTx(w.soon(), tx, chanq.Message[string]{Body: "a"})
		errShards(w, err)
		require.NoError(w, tx.Rollback())
		c := testdb.Start(w, q, quick)
		testdb.Receive(w, c.Done(), "the end")
		errShards(w, c.Err())
		require.Equal(w, chanq.Stats{Ready: 3}, testdb.Counted(w, there), "nothing of it was touched")
		require.Empty(w, members(w, there))
	})
}

func members(w *world, q *chanq.Queue[string]) []chanq.Member {
	list, err := q.Members(w.soon())
	require.NoError(w, err)
	return list
}

func TestNothingOpensWhereNoPlaceAnswers(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		for i := range count {
			w.gone(i)
		}
		_, err := chanq.OpenShards[string](w.soon(), w.shards(), "orders", chanq.Config{})
		require.Error(w, err)
		for _, place := range []string{"place0", "place1", "place2"} {
			require.ErrorContains(w, err, place)
		}
	})
}

func TestACallerWhoDoesNotWaitIsTold(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		w.silent(2)
		ctx, cancel := context.WithTimeout(w.soon(), 100*time.Millisecond)
		defer cancel()
		_, err := chanq.OpenShards[string](ctx, w.shards(), "orders", chanq.Config{})
		require.ErrorContains(w, err, "place2")
		require.ErrorIs(w, err, context.DeadlineExceeded)
	})
}
