package postgres_test

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// serverQueue is a queue of a new database, with helpers for tests.
type serverQueue struct {
	*testing.T
	db  *sql.DB
	ctx context.Context
	sqlbatch.Queue
}

func newQueue(t *testing.T) *serverQueue { return newQueueOf(t, suite.Orders) }

func newQueueOf(t *testing.T, names sqlbatch.Names) *serverQueue {
	q := &serverQueue{T: t, db: pgtest.Open(t), ctx: testdb.Soon(t), Queue: postgres.Dialect.Queue(names)}
	testdb.MigrateTables(t, postgres.Dialect, q.db, names)
	return q
}

// rows returns the result of a statement.
func (q *serverQueue) rows(on testdb.Runner, st sqlbatch.Statement) [][]any {
	q.Helper()
	result, err := suite.Rows(q.ctx, on, st)
	require.NoError(q, err, st.Text)
	return result
}

// ids returns the first bytes of the ids that a statement returns first.
func (q *serverQueue) ids(on testdb.Runner, st sqlbatch.Statement) []byte {
	q.Helper()
	return suite.Numbers(q.rows(on, st))
}

var id, consumer, claimOf = suite.ID, suite.Consumer, suite.ClaimOf

// item names the current lease of a live message.
func (q *serverQueue) item(n byte) sqlbatch.Item {
	q.Helper()
	item := sqlbatch.Item{ID: id(n)}
	require.NoError(q, q.db.QueryRow(`SELECT fence FROM chanq_orders WHERE id = $1`, fmt.Sprintf("%x", item.ID)).Scan(&item.Fence))
	return item
}

func (q *serverQueue) items(ns ...byte) []sqlbatch.Item {
	q.Helper()
	var items []sqlbatch.Item
	for _, n := range ns {
		items = append(items, q.item(n))
	}
	return items
}

func (q *serverQueue) enqueue(rows ...sqlbatch.Row) {
	q.Helper()
	require.Empty(q, q.rows(q.db, q.Queue.Enqueue(rows)))
}

func (q *serverQueue) claim(on testdb.Runner, n int) []byte {
	q.Helper()
	return q.ids(on, q.Claim(claimOf(n)))
}

func (q *serverQueue) exec(text string, args ...any) {
	q.Helper()
	_, err := q.db.ExecContext(q.ctx, text, args...)
	require.NoError(q, err)
}

func (q *serverQueue) begin() *sql.Tx {
	q.Helper()
	tx, err := q.db.BeginTx(q.ctx, nil)
	require.NoError(q, err)
	q.Cleanup(func() { _ = tx.Rollback() }) // fails if the test has ended it
	return tx
}

// settled returns the id, fence pairs that a statement returns: an ack may stand for all of its items.
func (q *serverQueue) settled(on testdb.Runner, st sqlbatch.Statement, all ...sqlbatch.Item) []sqlbatch.Item {
	q.Helper()
	return suite.Acked(q.rows(on, st), all...)
}

func (q *serverQueue) get(n byte) suite.Entry {
	q.Helper()
	rows := q.rows(q.db, q.Get(id(n)))
	require.Len(q, rows, 1)
	return suite.EntryOf(q, rows[0])
}

func (q *serverQueue) claimed(p sqlbatch.ClaimParams) map[byte]suite.Claimed {
	q.Helper()
	return suite.ClaimedRows(q, q.rows(q.db, q.Claim(p)))
}

func (q *serverQueue) now() (ms int64) {
	q.Helper()
	st := q.Clock()
	require.NoError(q, q.db.QueryRow(st.Text, st.Args...).Scan(&ms))
	return ms
}

func TestQuotesEveryName(t *testing.T) {
	db := pgtest.Open(t)
	schema := `a "b" 'c' \\ $chanq$ $$ {live}`
	_, err := db.Exec(`CREATE SCHEMA "a ""b"" 'c' \\ $chanq$ $$ {live}"`)
	require.NoError(t, err)
	names := sqlbatch.Names{Schema: schema, Queue: strings.Repeat("select", 6)}
	testdb.MigrateTables(t, postgres.Dialect, db, names)
	testdb.MigrateTables(t, postgres.Dialect, db, names)
	q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}
	for name, st := range suite.Calls(q.Queue, "a") {
		tx := q.begin()
		q.rows(tx, st)
		require.NoError(t, tx.Rollback(), name)
	}

	names.Queue, names.Slots = strings.Repeat("order", 8), 4
	testdb.MigrateTables(t, postgres.Dialect, db, names)
	q.Queue = postgres.Dialect.Queue(names)
	for name, st := range suite.Calls(q.Queue, "a") {
		tx := q.begin()
		q.rows(tx, q.Begun())
		q.rows(tx, st)
		require.NoError(t, tx.Rollback(), name)
	}
	for _, st := range q.Drop() {
		q.rows(db, st)
	}
}

// Compressed bodies need a third of the disk and of the WAL.
func TestBodiesAreCompressed(t *testing.T) {
	q := newQueue(t)
	var has bool
	require.NoError(t, q.db.QueryRow(`SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'`).Scan(&has))
	if !has {
		t.Skip("NOT TESTED: this server is built without lz4")
	}
	body := []byte("[" + strings.Repeat(`{"name": "order", "status": "paid"},`, 300) + "]")
	q.enqueue(sqlbatch.Row{ID: id(1), Body: body})
	var method string
	var size int
	require.NoError(t, q.db.QueryRow(`SELECT pg_column_compression(body), pg_column_size(body) FROM chanq_orders`).Scan(&method, &size))
	require.Equal(t, "lz4", method)
	require.Less(t, size, len(body)/3)
	require.Equal(t, []byte{1}, q.claim(q.db, 1))
}

// The next migration keeps a DBA's choice of storage.
func TestMigrationLeavesExistingSettingsUnchanged(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	q.exec(`ALTER TABLE chanq_orders SET (fillfactor = 90), ALTER COLUMN body SET STORAGE EXTENDED`)
	testdb.MigrateTables(t, postgres.Dialect, q.db, sqlbatch.Names{Queue: "orders"})
	var kept bool
	require.NoError(t, q.db.QueryRow(`SELECT 'fillfactor=90' = ANY (c.reloptions) AND a.attstorage = 'x'
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'body' WHERE c.oid = 'chanq_orders'::regclass`).Scan(&kept))
	require.True(t, kept)
	require.Equal(t, []byte{1}, q.claim(q.db, 1))
}

// A program that migrates when it starts would wait for an open SendTx, or a vacuum, and all others behind it.
func TestAMigrationOfAnExistingQueueLocksNoTable(t *testing.T) {
	q := newQueue(t)
	tx := q.begin()
	_, err := tx.ExecContext(q.ctx, `LOCK TABLE chanq_orders, chanq_orders__dead, chanq_orders__done IN EXCLUSIVE MODE`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(q.ctx, time.Minute)
	defer cancel()
	require.NoError(t, chanq.Migrate(ctx, q.db, "orders", chanq.Config{}))
}

// now() would be the start of the transaction: a delay would end before it began.
func TestADelayCountsFromTheSendNotFromTheTransaction(t *testing.T) {
	q := newQueue(t)
	tx := q.begin()
	_, err := tx.Exec("SELECT pg_sleep(0.3)")
	require.NoError(t, err)
	var before int64
	require.NoError(t, tx.QueryRow("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&before))
	require.Empty(t, q.rows(tx, q.InTx().Enqueue([]sqlbatch.Row{{ID: id(1), Delay: 250 * time.Millisecond}})))
	require.NoError(t, tx.Commit())
	require.GreaterOrEqual(t, q.get(1)["due_at"], before+250)
}

// A pooler per transaction requires statements that are prepared without a name, or not at all.
func TestRunsInEveryModeOfPgx(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			config := pgtest.Config(t)
			config.DefaultQueryExecMode = mode
			db := stdlib.OpenDB(*config)
			t.Cleanup(func() { db.Close() })
			names := sqlbatch.Names{Queue: "orders"}
			testdb.MigrateTables(t, postgres.Dialect, db, names)
			q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}

			q.enqueue(sqlbatch.Row{ID: id(1), Body: []byte{0, 1, 255, '\''}, Headers: []byte{0}, Key: `a'b"`, Type: "t"}, sqlbatch.Row{ID: id(2)})
			require.Len(t, q.rows(db, q.Find([][16]byte{id(2)}, []string{`a'b"`})), 2)
			require.Len(t, q.claim(db, 10), 2)
			require.Equal(t, "\x00\x01\xff'", q.get(1)["body"])
			require.Equal(t, "t", q.get(1)["type"])
			require.Len(t, q.settled(db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1), Error: "it's"}})), 1)
			require.Equal(t, "it's", q.get(1)["last_error"])
			items := q.items(2)
			require.Equal(t, items, q.settled(db, q.Ack(items), items...))
			require.Equal(t, []byte{1}, q.ids(db, q.Cancel([][16]byte{id(1)})))
			for name, st := range suite.Calls(q.Queue, "a") {
				tx := q.begin()
				q.rows(tx, st)
				require.NoError(t, tx.Rollback(), name)
			}
		})
	}
}
