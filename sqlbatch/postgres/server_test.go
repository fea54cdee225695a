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

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/stretchr/testify/require"
)

// serverQueue is a queue of a new database, and what tests say about it.
type serverQueue struct {
	*testing.T
	db  *sql.DB
	ctx context.Context
	sqlbatch.Queue
}

// runner is a *sql.DB, *sql.Conn or *sql.Tx.
type runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

func newQueue(t *testing.T) *serverQueue {
	db := pgtest.Open(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	names := sqlbatch.Names{Queue: "orders"}
	suite.Migrate(t, postgres.Dialect, db, names)
	return &serverQueue{T: t, db: db, ctx: ctx, Queue: postgres.Dialect.Queue(names)}
}

// rows are the result of a statement, column by column as the driver has them.
func (q *serverQueue) rows(on runner, st sqlbatch.Statement) [][]any {
	q.Helper()
	result, err := q.tryRows(on, st)
	require.NoError(q, err, st.Text)
	return result
}

func (q *serverQueue) tryRows(on runner, st sqlbatch.Statement) (result [][]any, err error) {
	rows, err := on.QueryContext(q.ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		result = append(result, row)
	}
	return result, rows.Err()
}

// ids are the first bytes of the ids that a statement returns first.
func (q *serverQueue) ids(on runner, st sqlbatch.Statement) []byte {
	q.Helper()
	var ids []byte
	for _, row := range q.rows(on, st) {
		id := row[0].([]byte)
		require.Len(q, id, 16)
		ids = append(ids, id[0])
	}
	return ids
}

func id(n byte) [16]byte { return [16]byte{n} }

// member is who claims.
var member = [16]byte{0xA0, 15: 0x0A}

func claimOf(n int) sqlbatch.ClaimParams {
	return sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Member: member, Salt: 1, Suspects: true}
}

// item names the lease of a live message as it is now.
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

func (q *serverQueue) claim(on runner, n int) []byte {
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
	q.Cleanup(func() { _ = tx.Rollback() }) // fails where the test has ended it
	return tx
}

// settled are the id, fence pairs that a statement returns.
func (q *serverQueue) settled(on runner, st sqlbatch.Statement) []sqlbatch.Item {
	q.Helper()
	var items []sqlbatch.Item
	for _, row := range q.rows(on, st) {
		items = append(items, sqlbatch.Item{ID: [16]byte(row[0].([]byte)), Fence: row[1].(int64)})
	}
	return items
}

func (q *serverQueue) get(n byte) map[string]any {
	q.Helper()
	rows := q.rows(q.db, q.Get(id(n)))
	require.Len(q, rows, 1)
	columns := []string{"state", "id", "priority", "fence", "attempts", "enqueued_at", "due_at", "lease_until", "ended_at", "expires_at", "leased_by", "holder", "dedup_key", "last_error", "headers", "body"}
	require.Len(q, rows[0], len(columns))
	entry := map[string]any{}
	for i, c := range columns {
		entry[c] = rows[0][i]
	}
	for _, text := range []string{"holder", "dedup_key", "last_error"} {
		if entry[text] != nil {
			entry[text] = string(entry[text].([]byte))
		}
	}
	return entry
}

// claimed is one row that a claim returned.
type claimed struct {
	ID                              byte
	Priority, Fence, Attempts       int64
	Lapses, Expired, EnqueuedAt, At int64
	ExpiresAt, Key, Headers, Body   any
}

func (q *serverQueue) claimed(p sqlbatch.ClaimParams) map[byte]claimed {
	q.Helper()
	all := map[byte]claimed{}
	for _, r := range q.rows(q.db, q.Claim(p)) {
		require.Len(q, r, 12)
		id := r[0].([]byte)[0]
		all[id] = claimed{id, r[1].(int64), r[2].(int64), r[3].(int64), r[4].(int64), r[5].(int64), r[6].(int64), r[7].(int64), r[8], r[9], r[10], r[11]}
	}
	return all
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
	names := sqlbatch.Names{Schema: schema, Queue: strings.Repeat("select", 10)}
	suite.Migrate(t, postgres.Dialect, db, names)
	suite.Migrate(t, postgres.Dialect, db, names)
	q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}
	for name, st := range suite.Calls(q.Queue, "a") {
		tx := q.begin()
		q.rows(tx, st)
		require.NoError(t, tx.Rollback(), name)
	}

	names.Queue, names.Slots = strings.Repeat("order", 12), 4
	suite.Migrate(t, postgres.Dialect, db, names)
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

// A DBA's own choice of storage outlives the next migration.
func TestMigratesWithoutChangingWhatIsThere(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	q.exec(`ALTER TABLE chanq_orders SET (fillfactor = 90), ALTER COLUMN body SET STORAGE EXTENDED`)
	suite.Migrate(t, postgres.Dialect, q.db, sqlbatch.Names{Queue: "orders"})
	var kept bool
	require.NoError(t, q.db.QueryRow(`SELECT 'fillfactor=90' = ANY (c.reloptions) AND a.attstorage = 'x'
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'body' WHERE c.oid = 'chanq_orders'::regclass`).Scan(&kept))
	require.True(t, kept)
	require.Equal(t, []byte{1}, q.claim(q.db, 1))
}

// A program that migrates when it starts would wait for an open SendTx, or a vacuum, and
// all others behind it.
func TestAMigrationOfWhatIsThereLocksNoTable(t *testing.T) {
	q := newQueue(t)
	tx := q.begin()
	_, err := tx.ExecContext(q.ctx, `LOCK TABLE chanq_orders, chanq_orders_dead, chanq_orders_done IN EXCLUSIVE MODE`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(q.ctx, 10*time.Second)
	defer cancel()
	require.NoError(t, chanq.Migrate(ctx, q.db, "orders", chanq.Config{}))
}

// now() would be the start of the transaction: a delay would be over before it
// began.
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

// What a pool of transactions in between needs: statements that are prepared
// by no name, or not at all.
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
			suite.Migrate(t, postgres.Dialect, db, names)
			q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}

			q.enqueue(sqlbatch.Row{ID: id(1), Body: []byte{0, 1, 255, '\''}, Headers: []byte{0}, Key: `a'b"`}, sqlbatch.Row{ID: id(2)})
			require.Len(t, q.rows(db, q.Find([][16]byte{id(2)}, []string{`a'b"`})), 2)
			require.Len(t, q.claim(db, 10), 2)
			require.Equal(t, []byte{0, 1, 255, '\''}, q.get(1)["body"])
			require.Len(t, q.settled(db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1), Error: "it's"}})), 1)
			require.Equal(t, "it's", q.get(1)["last_error"])
			require.Len(t, q.settled(db, q.Ack(q.items(2))), 1)
			require.Equal(t, []byte{1}, q.ids(db, q.Cancel([][16]byte{id(1)})))
			for name, st := range suite.Calls(q.Queue, "a") {
				tx := q.begin()
				q.rows(tx, st)
				require.NoError(t, tx.Rollback(), name)
			}
		})
	}
}
