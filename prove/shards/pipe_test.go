package shards_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// TestAPipeReplacesInputsInTheirShard has one place go away meanwhile.
func TestAPipeReplacesInputsInTheirShard(t *testing.T) {
	onEach(t, func(w *world) {
		const away = 1
		from := w.queue(ordered)
		require.NoError(w, chanq.MigrateShards(w.soon(), w.shards(), "billed", ordered))
		to, err := chanq.OpenShards[string](w.soon(), w.shards(), "billed", ordered)
		require.NoError(w, err)
		in := testdb.Produce(w, from, chanq.ProducerConfig{})
		var ms []chanq.Message[string]
		for shard := range count {
			ms = append(ms, keyed(from, ordered, shard, 8)...)
		}
		testdb.SendBy(w, in, ms...)
		w.gone(away)

		c, p := testdb.Start(w, from, quick), testdb.Produce(w, to, chanq.ProducerConfig{})
		ended := make(chan error, 1)
		go func() {
			ended <- chanq.Pipe(c, p, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				return []chanq.Message[string]{{Key: l.Key, Body: l.Body}, {Body: "without a key"}}, nil
			})
		}()
		w.Cleanup(func() { w.Heal(); c.Stop() })
		for _, shard := range []int{0, 2} {
			testdb.Eventually(w, "the others are replaced", func() bool {
				s, err := to.Shard(shard).Stats(w.soon())
				return err == nil && s.Ready == 16
			})
			require.Zero(w, testdb.Counted(w, from.Shard(shard)))
		}
		w.Heal()
		testdb.Eventually(w, "all are", func() bool {
			s, err := to.Stats(w.soon())
			return err == nil && s.Ready == 48
		})
		require.Zero(w, testdb.Counted(w, from))
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "the end"))
		for _, e := range pages(w, to, chanq.StateReady, 30) {
			if e.Key != "" {
				require.Equal(w, e.Shard, to.ShardOf(chanq.Message[string]{Key: e.Key}))
			}
		}
	})
}

// TestAPipeGoesOnThoughOnePlaceStoresNothing: its transactions hang there, while its claims go on, so
// that more of its inputs are handled than wait for a statement anywhere.
func TestAPipeGoesOnThoughOnePlaceStoresNothing(t *testing.T) {
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		const stuck = 1
		many := 3*server.Dialect.Traits().AckItems + 100
		w := newWorld(t, sqlite, server, sqlite)
		from := w.queue(chanq.Config{})
		require.NoError(w, chanq.MigrateShards(w.soon(), w.shards(), "billed", chanq.Config{}))
		to, err := chanq.OpenShards[string](w.soon(), w.shards(), "billed", chanq.Config{})
		require.NoError(w, err)
		testdb.Send(w, from, of(from, stuck, many, "a")...)
		w.places[stuck].Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind == faultdb.Begin {
				return faultdb.Hang()
			}
			return faultdb.Fault{}
		})
		w.Cleanup(w.Heal)
		cfg := quick
		cfg.LeaseFor = time.Minute
		c, p := testdb.Start(w, from, cfg), testdb.Produce(w, to, chanq.ProducerConfig{})
		ended := make(chan error, 1)
		var handled atomic.Int64 // of the place that is stuck
		go func() {
			ended <- chanq.Pipe(c, p, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				if l.Shard == stuck {
					handled.Add(1)
				}
				return []chanq.Message[string]{{Body: l.Body}}, nil
			})
		}()
		w.Cleanup(func() { w.Heal(); c.Stop() })
		for last := int64(-1); last != handled.Load() || last < int64(server.Dialect.Traits().AckItems); {
			last = handled.Load()
			<-time.After(500 * time.Millisecond) // it gets no further
		}
		require.Less(w, handled.Load(), int64(many), "claims wait")
		for _, shard := range []int{0, 2} {
			testdb.Send(w, from, of(from, shard, 50, "b")...)
			testdb.Eventually(w, "the others are replaced", func() bool {
				s, err := to.Shard(shard).Stats(w.soon())
				return err == nil && s.Ready == 50
			})
		}
		w.Heal()
		testdb.Eventually(w, "all are", func() bool {
			s, err := to.Stats(w.soon())
			return err == nil && s.Ready == many+100
		})
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "the end"))
	})
}

func TestAnOutputThatBelongsToAnotherShardSetsItsInputAside(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		from := w.queue(chanq.Config{})
		in, there := of(from, 0, 1, "in"), of(from, 1, 1, "out")
		testdb.Send(w, from, in...)
		c, p := testdb.Start(w, from, quick), testdb.Produce(w, from, chanq.ProducerConfig{})
		ended := make(chan error, 1)
		go func() {
			ended <- chanq.Pipe(c, p, 1, func(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error) { return there, nil })
		}()
		testdb.Eventually(w, "it is set aside", func() bool { return testdb.Counted(w, from) == chanq.Stats{Dead: 1} })
		dead, err := from.Peek(w.soon(), chanq.StateDead, 1)
		require.NoError(w, err)
		require.Contains(w, dead[0].LastError, "output 0: by its Key, DedupKey or ID the message belongs to shard 1")
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "the end"))
	})
}

func TestAPipeIsRefusedWhereNoTransactionSpansBoth(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		all, alone := testdb.Produce(w, q, chanq.ProducerConfig{}), testdb.Produce(w, q.Shard(1), chanq.ProducerConfig{})
		require.ErrorContains(w, chanq.Pipe(testdb.Start(w, q, quick), alone, 1, pass), "shard place0 must be on the same *sql.DB")
		require.ErrorContains(w, chanq.Pipe(testdb.Start(w, q.Shard(0), quick), all, 1, pass), "has 1 shards and the other 2")
	})
}
