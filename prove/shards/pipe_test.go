package shards_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// TestAPipeReplacesInputsInTheirShard while one place is temporarily unavailable.
func TestAPipeReplacesInputsInTheirShard(t *testing.T) {
	onEach(t, func(w *world) {
		const away = 1
		from := w.queue(w.brief(ordered))
		require.NoError(w, chanqshards.Migrate(w.soon(), w.shards(), "billed", ordered))
		to, err := chanqshards.Open[string](w.soon(), w.shards(), "billed", ordered)
		require.NoError(w, err)
		in := w.produce(from, chanq.ProducerConfig{})
		var ms []chanq.Message[string]
		for shard := range count {
			ms = append(ms, keyed(from, ordered, shard, 8)...)
		}
		testdb.SendBy(w, in, ms...)
		w.gone(away)

		c := w.start(from, quick)
		ended := make(chan error, 1)
		go func() {
			ended <- chanqshards.Pipe(c, to, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				return []chanq.Message[string]{{Key: l.Key, Body: l.Body}, {Body: "without a key"}}, nil
			})
		}()
		w.Cleanup(func() { w.Heal(); c.Stop() })
		for _, shard := range []int{0, 2} {
			testdb.Eventually(w, "the others are replaced", func() bool {
				s, err := testdb.Admin(w.shard(to, shard)).Stats(w.soon())
				return err == nil && s.Ready == 16
			})
			require.Zero(w, testdb.Counted(w, w.shard(from, shard)))
		}
		w.Heal()
		testdb.Eventually(w, "all are", func() bool {
			return w.counted(to).Ready == 48
		})
		require.Zero(w, w.counted(from))
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "the end"))
		for i := range count {
			page, err := testdb.Peek(w.soon(), w.shard(to, i), chanqadmin.StateReady, 100)
			require.NoError(w, err)
			for _, e := range page {
				if e.Key != "" {
					require.Equal(w, i, to.ShardOf(chanq.Message[string]{Key: e.Key}))
				}
			}
		}
	})
}

// TestAPipeContinuesAlthoughOneShardStoresNothing: transactions of that shard hang while its claims continue, so more of its inputs are
// handled than can wait for a statement.
func TestAPipeContinuesAlthoughOneShardStoresNothing(t *testing.T) {
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		const stuck = 1
		many := 3*server.Dialect.Traits().AckItems + 100
		w := newWorld(t, sqlite, server, sqlite)
		from := w.queue(w.brief(chanq.Config{}))
		require.NoError(w, chanqshards.Migrate(w.soon(), w.shards(), "billed", chanq.Config{}))
		to, err := chanqshards.Open[string](w.soon(), w.shards(), "billed", chanq.Config{})
		require.NoError(w, err)
		w.send(from, of(from, stuck, many, "a")...)
		w.places[stuck].Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind == faultdb.Begin {
				return faultdb.Hang()
			}
			return faultdb.Fault{}
		})
		w.Cleanup(w.Heal)
		cfg := quick
		cfg.LeaseFor = time.Minute
		c := w.start(from, cfg)
		ended := make(chan error, 1)
		var handled atomic.Int64 // inputs of the blocked place
		go func() {
			ended <- chanqshards.Pipe(c, to, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				if from.Origin(l) == stuck {
					handled.Add(1)
				}
				return []chanq.Message[string]{{Body: l.Body}}, nil
			})
		}()
		w.Cleanup(func() { w.Heal(); c.Stop() })
		for last := int64(-1); last != handled.Load() || last < int64(server.Dialect.Traits().AckItems); {
			last = handled.Load()
			<-time.After(500 * time.Millisecond) // until no more inputs are handled
		}
		require.Less(w, handled.Load(), int64(many), "claims wait")
		for _, shard := range []int{0, 2} {
			w.send(from, of(from, shard, 50, "b")...)
			testdb.Eventually(w, "the others are replaced", func() bool {
				s, err := testdb.Admin(w.shard(to, shard)).Stats(w.soon())
				return err == nil && s.Ready == 50
			})
		}
		w.Heal()
		testdb.Eventually(w, "all are", func() bool {
			return w.counted(to).Ready == many+100
		})
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "the end"))
	})
}

// TestAPipeEndsAlthoughAShardOfItsTargetHangsWhileOpening: the driver ignores the context.
func TestAPipeEndsAlthoughAShardOfItsTargetHangsWhileOpening(t *testing.T) {
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		const stuck = 1
		w := newWorld(t, sqlite, server)
		from := w.queue(w.brief(chanq.Config{}))
		require.NoError(w, chanqshards.Migrate(w.soon(), w.shards(), "billed", chanq.Config{}))
		to, struck, release := w.stuckOpening("billed", stuck)
		c := w.start(from, quick)
		ended := make(chan error, 1)
		go func() {
			ended <- chanqshards.Pipe(c, to, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				return []chanq.Message[string]{{Body: l.Body}}, nil
			})
		}()
		testdb.Receive(w, struck, "an attempt to open the shard")
		w.send(from, of(from, 0, 5, "a")...)
		testdb.Eventually(w, "the other shard is served", func() bool { return testdb.Counted(w, w.shard(to, 0)).Ready == 5 })
		c.Stop()
		err := testdb.Receive(w, ended, "the end")
		require.ErrorIs(w, err, chanq.ErrStopped)
		require.Equal(w, "billed/place1", opError(w, err).Queue)
		release()
	})
}

func TestAnOutputForAnotherShardDeadLettersItsInput(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		from := w.queue(w.brief(chanq.Config{}))
		in, there := of(from, 0, 1, "in"), of(from, 1, 1, "out")
		w.send(from, in...)
		c := w.start(from, quick)
		ended := make(chan error, 1)
		go func() {
			ended <- chanqshards.Pipe(c, from, 1, func(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error) { return there, nil })
		}()
		testdb.Eventually(w, "the input is dead-lettered", func() bool { return w.counted(from) == chanqadmin.Stats{Dead: 1} })
		dead := w.stored(from, chanqadmin.StateDead)
		require.Contains(w, dead[0].LastError, "output 0: by its Key, DedupKey or ID the message belongs to shard 1")
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "the end"))
	})
}

func TestAPipeIsRefusedIfNoTransactionSpansBoth(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		from := w.queue(w.brief(chanq.Config{}))
		to := func(name string, places ...chanqshards.Shard) *chanqshards.Queue[string] {
			require.NoError(w, chanqshards.Migrate(w.soon(), places, name, chanq.Config{}))
			q, err := chanqshards.Open[string](w.soon(), places, name, chanq.Config{})
			require.NoError(w, err)
			return q
		}
		list := w.shards()
		c := w.start(from, quick)
		require.ErrorContains(w, chanqshards.Pipe(c, to("turned", list[0], list[2], list[1]), 1, pass), "must be on the same *sql.DB")
		require.ErrorContains(w, chanqshards.Pipe(c, to("fewer", list[0], list[1]), 1, pass), "from has 3 shards, and to has 2")
		require.ErrorContains(w, chanqshards.Pipe(c, to("alone", list[0]), 1, pass), "must be on the same *sql.DB")
		require.ErrorContains(w, chanqshards.Pipe(c, to("same", list...), 0, pass), "workers is 0")
	})
}
