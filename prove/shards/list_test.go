package shards_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

func TestAnotherListOfShardsIsRefused(t *testing.T) {
	onEach(t, func(w *world) {
		w.queue(chanq.Config{})
		open := func(shards ...chanqshards.Shard) error {
			_, err := chanqshards.Open[string](w.soon(), shards, "orders", chanq.Config{})
			return err
		}
		list := w.shards()
		errShards(w, open(list[:2]...), "shard 0 of 2", "shard 0 of 3")
		errShards(w, open(list[1], list[0], list[2]), "shard 0 of 3", "shard 1 of 3")
		other := newWorld(w.T, w.places[0].Engine, w.places[1].Engine, w.places[2].Engine)
		other.queue(chanq.Config{})
		mixed := slices.Clone(list)
		mixed[2] = other.shards()[2]
		mixed[2].Name = "foreign"
		errShards(w, open(mixed...), "orders/foreign")
		alone := chanq.Config{Schema: list[1].Schema}
		_, err := chanq.Open[string](w.soon(), list[1].DB, "orders", alone)
		errShards(w, err, "chanqshards.Open")
		errShards(w, chanq.Migrate(w.soon(), list[1].DB, "orders", alone))
		errShards(w, chanqshards.Migrate(w.soon(), list[:2], "orders", chanq.Config{}))
		require.NoError(w, chanqshards.Migrate(w.soon(), list, "orders", chanq.Config{}), "Migrate can be repeated")
		require.NoError(w, open(list...))
	})
}

// TestAShardHasABoundOfItsKeysIfTheQueueHas: a share of 0 would mean no limit.
func TestAShardHasABoundOfItsKeysIfTheQueueHas(t *testing.T) {
	onBubbles(t, func(w *world) {
		cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 1, MaxKeys: count - 1}}
		err := chanqshards.Migrate(w.soon(), w.shards(), "orders", cfg)
		require.ErrorContains(w, err, "Spec.MaxKeys is 2: must be at least 3, the number of shards, which divide it")
		_, err = chanqshards.Open[string](w.soon(), w.shards(), "orders", cfg)
		require.ErrorContains(w, err, "Spec.MaxKeys is 2")
		cfg.MaxKeys = count
		q := w.queue(cfg)
		for i := range count {
			a, err := q.Admin(w.soon(), i)
			require.NoError(w, err)
			s, err := a.Spec(w.soon())
			require.NoError(w, err)
			require.Equal(w, 1, s.MaxKeys)
		}
	})
}

func TestAQueueWithoutShardsDoesNotBecomeAShard(t *testing.T) {
	onEach(t, func(w *world) {
		first := w.shards()[0]
		require.NoError(w, chanq.Migrate(w.soon(), first.DB, "orders", chanq.Config{Schema: first.Schema}))
		errShards(w, chanqshards.Migrate(w.soon(), w.shards(), "orders", chanq.Config{}), "a queue without shards")
		_, err := chanqshards.Open[string](w.soon(), w.shards(), "orders", chanq.Config{})
		errShards(w, err, "orders/place0")
	})
}

// TestNothingIsMigratedIfOneShardCannotBe: the shard is a queue without shards, part of another
// set, of another kind, or unavailable, or the tables cannot be created.
func TestNothingIsMigratedIfOneShardCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"a queue by itself": func(w *world) {
			require.NoError(w, chanq.Migrate(w.soon(), w.places[2].DB, "orders", chanq.Config{}))
		},
		"of another set": func(w *world) {
			cfg := chanq.Config{Shard: chanq.ShardMark{Index: 2, Count: count, Set: chanq.NewID()}}
			require.NoError(w, chanq.Migrate(w.soon(), w.places[2].DB, "orders", cfg))
		},
		"of another kind": func(w *world) {
			cfg := ordered
			cfg.Shard = chanq.ShardMark{Index: 2, Count: count, Set: chanq.NewID()}
			require.NoError(w, chanq.Migrate(w.soon(), w.places[2].DB, "orders", cfg))
		},
		"away": func(w *world) { w.gone(2) },
		"with a table of another program": func(w *world) {
			_, err := w.places[2].DB.Exec(`CREATE TABLE chanq_orders (id INTEGER)`)
			require.NoError(w, err)
		},
		"with a view of another program": func(w *world) {
			_, err := w.places[2].DB.Exec(`CREATE VIEW chanq_orders__dead AS SELECT 1 AS id`)
			require.NoError(w, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
				w := newWorld(t, sqlite, sqlite, sqlite)
				spoil(w)
				err := chanqshards.Migrate(w.soon(), w.shards(), "orders", chanq.Config{})
				require.Equal(w, "orders/place2", opError(w, err).Queue)
				for place := range 2 {
					_, err := chanq.StoredConfig(w.soon(), w.places[place].DB, "orders", chanq.Config{})
					require.ErrorIs(w, err, chanq.ErrNoSchema, "place %d is unchanged", place)
				}
				w.Heal()
				switch name {
				case "away":
				case "with a table of another program", "with a view of another program":
					return
				default:
					require.NoError(w, chanqadmin.Drop(w.soon(), w.places[2].DB, "orders", chanq.Config{}, chanqadmin.Change{}))
				}
				w.queue(chanq.Config{})
				require.NoError(w, chanqshards.Migrate(w.soon(), w.shards(), "orders", chanq.Config{}), "Migrate can be repeated")
			})
		})
	}
}

func TestAMigrationThatFailedHalfwayCanBeRepeated(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		for place := range count {
			fault := w.places[place].Broken(false)
			w.places[place].Faults.Inject(func(faultdb.Op) faultdb.Fault { return fault })
			require.Error(w, chanqshards.Migrate(w.soon(), w.shards(), "orders", chanq.Config{}))
			w.Heal()
		}
		w.queue(chanq.Config{})
	})
}

func TestProcessesMayMigrateAtTheSameTime(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		errs := make(chan error)
		for range 4 {
			go func() {
				errs <- chanqshards.Migrate(context.Background(), w.shards(), "orders", chanq.Config{})
			}()
		}
		for range 4 {
			require.NoError(w, testdb.Receive(w, errs, "an end"))
		}
		w.open(chanq.Config{})
	})
}

// TestShardsAreMigratedOneByOne, as the command does, each from where it can be reached.
func TestShardsAreMigratedOneByOne(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		migrate := func(i int, set chanq.ID) error {
			cfg := chanq.Config{Shard: chanq.ShardMark{Index: i, Count: count, Set: set}}
			return chanq.Migrate(w.soon(), w.places[i].DB, "orders", cfg)
		}
		require.ErrorContains(w, migrate(1, chanq.ID{}), "Config.Shard.Set is zero")
		require.NoError(w, migrate(0, chanq.ID{}))
		first, err := chanq.StoredConfig(w.soon(), w.places[0].DB, "orders", chanq.Config{})
		require.NoError(w, err)
		require.NoError(w, migrate(1, first.Shard.Set))
		require.NoError(w, migrate(2, first.Shard.Set))
		errShards(w, migrate(2, chanq.NewID()))
		w.open(chanq.Config{})
		_, err = chanq.Open[string](w.soon(), w.places[0].DB, "orders", first)
		require.NoError(w, err, "one shard can be inspected by itself")
	})
}

func TestAnInvalidListOfShardsIsReportedImmediately(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		list := w.shards()
		list[0].Name, list[1].Name = "a\n", "a\n"
		err := chanqshards.Migrate(w.soon(), list, "orders", chanq.Config{Schema: "s", Shard: chanq.ShardMark{Count: 2}})
		for _, words := range []string{"control characters", "for two shards: must be unique", "Config.Schema", "Config.Shard"} {
			require.ErrorContains(w, err, words)
		}
		require.ErrorContains(w, chanqshards.Migrate(w.soon(), nil, "orders", chanq.Config{}), "shards is empty")
		list[0].Name, list[1].Name, list[1].Schema, list[1].DB = "a", "b", list[0].Schema, list[0].DB
		require.ErrorContains(w, chanqshards.Migrate(w.soon(), list, "orders", chanq.Config{}), `Shard "b" has the DB and the Schema of shard "a"`)
		keys := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 8, MaxKeys: 15}}
		require.ErrorContains(w, chanqshards.Migrate(w.soon(), w.shards(), "orders", keys), "orders/place1: Spec.MaxKeys is 7")
		_, err = chanq.StoredConfig(w.soon(), w.places[0].DB, "orders", chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNoSchema, "the shard with 8 keys is unchanged")
		_, err = chanqshards.Open[string](w.soon(), []chanqshards.Shard{{}}, "orders", chanq.Config{})
		require.ErrorContains(w, err, "db is nil")
		err = chanq.Migrate(w.soon(), list[0].DB, "orders", chanq.Config{Shard: chanq.ShardMark{Index: 2, Count: 2}})
		require.ErrorContains(w, err, "Config.Shard.Index is 2")
		err = chanq.Migrate(w.soon(), list[0].DB, "orders", chanq.Config{Shard: chanq.ShardMark{Index: 1}})
		require.ErrorContains(w, err, "Config.Shard.Count is 0")
	})
}
