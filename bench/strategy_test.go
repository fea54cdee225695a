package main

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// server is a server on which strategies are tested, for counts and never for speed.
type server struct {
	engine, dsn string
	left        string // counts the objects that a measurement has left behind
	db          *sql.DB
}

func eachServer(t *testing.T, f func(t *testing.T, s server)) {
	t.Run("sqlserver", func(t *testing.T) {
		t.Parallel()
		emulator := mssqltest.Start(t, mssqltest.Options{})
		f(t, server{"sqlserver", emulator.DSN(), `SELECT (SELECT COUNT(*) FROM sys.tables WHERE name NOT IN ('chanq__queues', 'chanq__consumers', 'chanq__samples', 'chanq__log')) +
(SELECT COUNT(*) FROM dbo.chanq__queues) + (SELECT COUNT(*) FROM dbo.chanq__samples) + (SELECT COUNT(*) FROM sys.objects WHERE [type] IN ('V', 'P'))`, emulator.DB()})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t)
		s := server{"postgres", dsn, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'bench%'`, nil}
		inner, err := postgresEngine.connector(place{DSN: dsn}, &measure.Counter{})
		require.NoError(t, err)
		s.db = sql.OpenDB(inner)
		defer s.db.Close()
		f(t, s)
	})
}

func (s server) requireEmpty(t *testing.T) {
	t.Helper()
	var left int
	require.NoError(t, s.db.QueryRow(s.left).Scan(&left))
	require.Zero(t, left, "a measurement leaves the database as it was")
}

func TestEveryStrategyIsMeasuredAndLeavesTheServersUnchanged(t *testing.T) {
	testdb.Long(t)
	t.Parallel()
	eachServer(t, func(t *testing.T, s server) {
		results := runJSON(t, "throughput", "-engine", s.engine, "-dsn", s.dsn, "-n", "120", "-batch", "50", "-single-n", "10", "-rounds", "1")
		require.Len(t, results, len(strategiesOf(s.engine)))
		for _, r := range results {
			require.Equal(t, s.engine, r.Engine)
			require.Positive(t, r.DrainPerS, r.Strategy)
			require.Positive(t, r.PipelinePerS, r.Strategy)
			if s.engine == "postgres" {
				require.Contains(t, r.Server, "synchronous_commit=")
			}
			require.NotContains(t, r.Command, s.dsn, "an address may contain a password")
		}
		s.requireEmpty(t)
	})
}

// Statements are counted in the driver: a begin and a commit count as one each.
func TestMethodsOfArticlesTakeEachMessageOnceInKnownStatements(t *testing.T) {
	t.Parallel()
	const n = 12
	perMessage := map[string]map[string]float64{
		"sqlserver": {"updlock-readpast": 5, "cursor-applock": 1 + 3./4, "view-output": 2, "cte-readpast": 3, "guid-marker": 2 + 1./4},
		"postgres":  {"updlock-readpast": 5, "cursor-applock": 1 + 1./4, "view-output": 2, "cte-readpast": 3, "guid-marker": 2 + 1./4},
	}
	eachServer(t, func(t *testing.T, s server) {
		o := options{engine: s.engine, dsn: s.dsn, articleBatch: 4}
		for _, a := range articles {
			t.Run(a.name, func(t *testing.T) {
				require.NoError(t, onStore(t.Context(), o, a.name, func(s *store, way strategy) error {
					before := s.counter.Statements()
					require.NoError(t, way.enqueue(t.Context(), makeBodies(n, 50)))
					require.NoError(t, way.drain(t.Context(), n))
					require.InDelta(t, n*perMessage[o.engine][a.name], s.counter.Statements()-before, 1e-6)
					require.ErrorContains(t, way.drain(t.Context(), 1), "nothing is left")
					return way.pipeline(t.Context(), makeBodies(2, 50))
				}))
			})
		}
		s.requireEmpty(t)
	})
}

func TestTheMethodOfAnArticleSkipsMessagesOfAnotherWorker(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s server) {
		o := options{engine: s.engine, dsn: s.dsn, articleBatch: 1}
		require.NoError(t, onStore(t.Context(), o, "view-output", func(s *store, way strategy) error {
			require.NoError(t, way.enqueue(t.Context(), makeBodies(2, 50)))
			loop := way.(articleLoop)
			return loop.session(t.Context(), func(first *articleSession) error {
				return first.inTx(func() error {
					got, err := loop.method.take(first, 1)
					require.NoError(t, err)
					require.Equal(t, 1, got)
					return loop.session(t.Context(), func(second *articleSession) error {
						got, err := loop.method.take(second, 1)
						require.Equal(t, 1, got)
						return err
					})
				})
			})
		}))
	})
}

// A pipe leaves as many messages in the second queue and none in the first.
func TestPipesMoveEveryMessage(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, o options) {
		for _, name := range []string{"raw-pipe", "chanq-pipe"} {
			require.NoError(t, onStore(t.Context(), o, name, func(s *store, way strategy) error {
				require.NoError(t, way.enqueue(t.Context(), makeBodies(150, 50)))
				require.NoError(t, way.drain(t.Context(), 150))
				require.NoError(t, way.pipeline(t.Context(), makeBodies(70, 50)))
				next := *s
				next.place.Queue += "_next"
				require.EqualValues(t, 0, readyIn(t, s), name)
				require.EqualValues(t, 220, readyIn(t, &next), name)
				return nil
			}))
		}
	}
	t.Run("sqlite", func(t *testing.T) { check(t, options{engine: "sqlite", batch: 40, send: sendChannel}) })
	eachServer(t, func(t *testing.T, s server) {
		check(t, options{engine: s.engine, dsn: s.dsn, batch: 40, send: sendChannel})
		s.requireEmpty(t)
	})
}

func readyIn(t *testing.T, s *store) int64 {
	t.Helper()
	queue, err := s.open(t.Context())
	require.NoError(t, err)
	stats, err := testdb.Admin(queue).Stats(t.Context())
	require.NoError(t, err)
	return int64(stats.Ready)
}

// Messages before the head, which were committed late or released, are found as soon as no message
// is left after the head.
func TestTheBareLoopFindsMessagesBeforeItsHead(t *testing.T) {
	s, err := openQueue(t.Context(), options{engine: "sqlite"})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.remove()) }()
	require.NoError(t, s.session(t.Context(), func(session *bareSession) error {
		require.NoError(t, session.enqueue(makeBodies(5, 20)))
		taken, err := session.claimAndAck(10)
		require.NoError(t, err)
		require.Equal(t, 5, taken)
		require.NotZero(t, session.floors)
		require.NoError(t, session.enqueue(makeBodies(3, 20)))
		_, err = s.db.Exec("UPDATE " + s.liveTable() + " SET due_at = due_at - 3600000")
		require.NoError(t, err)
		taken, err = session.claimAndAck(10)
		require.Equal(t, 3, taken)
		return err
	}))
}
