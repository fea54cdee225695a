package postgres_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// wear is the result of the statement for a table.
type wear struct {
	dead, live, vacuums int64
	denied              any
}

func (q *serverQueue) wear(on testdb.Runner) wear {
	q.Helper()
	rows := q.rows(on, q.Bloat())
	require.Len(q, rows, 1)
	row := rows[0]
	return wear{row[0].(int64), row[1].(int64), row[2].(int64), row[3]}
}

// worn makes a table with 3000 live rows and 2000 dead ones, and waits until the statistics show them.
func (q *serverQueue) worn() {
	q.Helper()
	q.exec(`ALTER TABLE chanq_orders SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)`)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(q, err)
	defer conn.Close()
	for _, text := range []string{
		`INSERT INTO chanq_orders (body) SELECT '' FROM generate_series(1, 5000)`,
		`DELETE FROM chanq_orders WHERE id IN (SELECT id FROM chanq_orders LIMIT 2000)`,
	} {
		_, err := conn.ExecContext(q.ctx, text)
		require.NoError(q, err)
	}
	_ = conn.Raw(func(c any) error { return c.(*stdlib.Conn).Conn().Close(q.ctx) }) // closing flushes the statistics of the session
	q.eventually(func() bool { return q.wear(q.db).dead == 2000 })
	q.unseen()
}

// unseen waits until no other session of the database, such as autovacuum's, has a snapshot from before: a vacuum keeps the rows that
// a snapshot sees.
func (q *serverQueue) unseen() {
	q.Helper()
	q.eventually(func() bool {
		var snapshots int
		err := q.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL`).Scan(&snapshots)
		return err == nil && snapshots == 0
	})
}

func (q *serverQueue) eventually(is func() bool) {
	q.Helper()
	require.Eventually(q, is, time.Minute, 10*time.Millisecond)
}

func TestAVacuumRemovesDeadRowsAndReportsTheirNumber(t *testing.T) {
	q := newQueue(t)
	q.worn()
	before := q.wear(q.db)
	require.Equal(t, wear{2000, 3000, 0, nil}, before)
	q.rows(q.db, q.Vacuum())
	q.eventually(func() bool { return q.wear(q.db) == wear{0, 3000, 1, nil} })
}

func TestRowsOutsideTheTableCountAsBloat(t *testing.T) {
	q := newQueue(t)
	q.exec(`INSERT INTO chanq_orders (body) SELECT (SELECT string_agg(sha512((i || ',' || j)::bytea), '') FROM generate_series(1, 320) AS j)
FROM generate_series(1, 10) AS i`) // 20 kB that cannot be compressed
	q.eventually(func() bool { return q.wear(q.db).live > 100 }) // each row has ten rows in the TOAST table
}

// Another process's vacuum, or autovacuum, holds the lock of a vacuum.
func TestAVacuumDuringAnotherOneDoesNothingAndDoesNotWait(t *testing.T) {
	q := newQueue(t)
	q.worn()
	tx := q.begin()
	_, err := tx.ExecContext(q.ctx, `LOCK TABLE chanq_orders IN SHARE UPDATE EXCLUSIVE MODE`)
	require.NoError(t, err)
	q.rows(q.db, q.Vacuum()) // would wait until the end of ctx
	require.Equal(t, wear{2000, 3000, 0, nil}, q.wear(q.db))
}

func TestAVacuumRunsInEveryModeOfPgxAndQuotesItsTable(t *testing.T) {
	config := pgtest.Config(t)
	run := func(name string, db *sql.DB) {
		t.Run(name, func(t *testing.T) {
			defer db.Close()
			names := sqlbatch.Names{Schema: `a "b" 'c'`, Queue: "orders"}
			_, err := db.Exec(`CREATE SCHEMA IF NOT EXISTS "a ""b"" 'c'"`)
			require.NoError(t, err)
			testdb.MigrateTables(t, postgres.Dialect, db, names)
			q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}
			before := q.wear(db).vacuums
			for range 2 { // the first run prepares it, if statements are prepared
				_, err = db.ExecContext(t.Context(), q.Vacuum().Text)
				require.NoError(t, err)
			}
			q.eventually(func() bool { return q.wear(db).vacuums == before+2 })
		})
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		c := config.Copy()
		c.DefaultQueryExecMode = mode
		run(mode.String(), stdlib.OpenDB(*c))
	}
}

// whatHelps names the role of this test; PostgreSQL might have cut its name.
const whatHelps = `before PostgreSQL 17 only the owner of chanq_orders may, chanq_migrator_\w+: have one consumer log in|GRANT MAINTAIN ON chanq_orders TO chanq_\w+`

func TestThePermissionToVacuumIsReadFromTheCatalog(t *testing.T) {
	r := newRights(t).migrated()
	denied := func(role string) (why sql.NullString) {
		var dead, live, vacuums int64
		require.NoError(t, r.as(role).QueryRow(orders.Bloat().Text).Scan(&dead, &live, &vacuums, &why))
		return why
	}
	require.False(t, denied("migrator").Valid, "the owner of the table")
	for _, role := range []string{"consumer", "operator"} {
		why := denied(role)
		require.True(t, why.Valid)
		require.Regexp(t, whatHelps, why.String)
	}
	owner := stdlib.OpenDB(*r.config)
	defer owner.Close()
	var version int
	require.NoError(t, owner.QueryRow(`SELECT current_setting('server_version_num')::integer`).Scan(&version))
	grant := `GRANT chanq_migrator TO chanq_consumer`
	if version >= 170000 {
		grant = denied("consumer").String
	}
	_, err := owner.Exec(r.rename.Replace(grant))
	require.NoError(t, err)
	require.False(t, denied("consumer").Valid, "the reported remedy helps")
	require.True(t, denied("operator").Valid)
}

// counter counts the runs of a statement.
type counter struct {
	text string
	n    atomic.Int64
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == c.text {
		c.n.Add(1)
	}
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A missing permission is reported once, when the queue is worth a vacuum.
func TestAMissingPermissionToVacuumIsReportedOnce(t *testing.T) {
	r := newRights(t).migrated()
	looks := &counter{text: orders.Bloat().Text}
	r.config.Tracer = looks
	migrator := r.as("migrator")
	migrator.SetMaxIdleConns(0) // each connection reports its statistics when it closes
	for _, text := range []string{
		`ALTER TABLE chanq_orders SET (autovacuum_enabled = off)`,
		`INSERT INTO chanq_orders (body) SELECT '' FROM generate_series(1, 50000)`, `DELETE FROM chanq_orders`,
	} {
		_, err := migrator.ExecContext(r.ctx, text)
		require.NoError(t, err)
	}
	told := make(chan chanq.HousekeepingEvent, 100)
	cfg := chanq.Config{VacuumEvery: 10 * time.Millisecond, Hooks: chanq.Hooks{Housekeeping: func(e chanq.HousekeepingEvent) { told <- e }}}
	q, _ := r.open(r.as("consumer"), cfg)
	_, p := r.open(r.as("producer"), chanq.Config{})
	c, err := q.Consume(r.ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	consume := func(n int) {
		_, err := p.SendBatch(r.ctx, make([]chanq.Message[string], n)...)
		require.NoError(t, err)
		for range n {
			require.NoError(t, (<-c.C()).Ack())
		}
	}
	for looks.n.Load() < 5 {
		consume(1000)
	}
	e := <-told
	require.Equal(t, "vacuum", e.Task)
	require.ErrorContains(t, e.Err, "autovacuum_naptime")
	require.Regexp(t, whatHelps, e.Err.Error())
	require.Empty(t, told)
	require.NoError(t, c.Shutdown(r.ctx))
	require.NoError(t, c.Err())
}
