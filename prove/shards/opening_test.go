package shards_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
)

func TestAProgramStartsWithAnUnavailableShard(t *testing.T) {
	onEach(t, func(w *world) {
		for _, cfg := range []chanq.Config{{}, ordered} {
			name := "plain"
			if cfg.Kind == chanq.KindOrdered {
				name = "ordered"
			}
			require.NoError(w, chanqshards.Migrate(w.soon(), w.shards(), name, cfg))
			w.gone(1)
			q, err := chanqshards.Open[string](w.soon(), w.shards(), name, w.brief(cfg))
			require.NoError(w, err)
			_, y := w.handle(q, quick)
			p := w.produce(q, chanq.ProducerConfig{})
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

// keyed returns messages that belong to a shard, for either kind of queue.
func keyed(q *chanqshards.Queue[string], cfg chanq.Config, shard, n int) []chanq.Message[string] {
	ms := of(q, shard, n, "keyed")
	for i := range ms {
		ms[i].Body += string(rune('a' + shard))
		if cfg.Kind == chanq.KindOrdered {
			ms[i].Key, ms[i].DedupKey = ms[i].DedupKey, ""
		}
	}
	return ms
}

// The error that Open would have returned is returned before the first statement.
func TestAShardThatReturnsAsAnotherOneIsRefused(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		other := newWorld(t, sqlite, sqlite, sqlite)
		there := other.queue(chanq.Config{})
		w.send(there, of(there, 1, 3, "foreign")...)
		list := w.shards()
		list[1].DB = other.places[1].DB
		other.gone(1)
		q, err := chanqshards.Open[string](w.soon(), list, "orders", w.brief(chanq.Config{}))
		require.NoError(w, err)
		other.Heal()
		p := w.produce(q, chanq.ProducerConfig{})
		_, err = p.Send(w.soon(), of(q, 1, 1, "own")[0])
		errShards(w, err)
		_, err = q.Shard(w.soon(), 1)
		errShards(w, err)
		c := w.start(q, quick)
		testdb.Receive(w, c.Done(), "the end")
		errShards(w, c.Err())
		require.Equal(w, chanqadmin.Stats{Ready: 3}, w.counted(there), "the shard is unchanged")
		consumers, err := testdb.Admin(w.shard(there, 1)).Consumers(w.soon())
		require.NoError(w, err)
		require.Empty(w, consumers)
	})
}

func TestNothingOpensIfNoShardAnswers(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		for i := range count {
			w.gone(i)
		}
		_, err := chanqshards.Open[string](w.soon(), w.shards(), "orders", chanq.Config{})
		require.Error(w, err)
		for _, place := range []string{"place0", "place1", "place2"} {
			require.ErrorContains(w, err, place)
		}
	})
}

func TestOpenWithADeadlineNamesTheShardThatDoesNotAnswer(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		w.silent(2)
		ctx, cancel := context.WithTimeout(w.soon(), w.soonest(100*time.Millisecond))
		defer cancel()
		_, err := chanqshards.Open[string](ctx, w.shards(), "orders", chanq.Config{})
		require.ErrorContains(w, err, "place2")
		require.ErrorIs(w, err, context.DeadlineExceeded)
	})
}
