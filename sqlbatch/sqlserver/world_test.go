package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/mssqltest"
	"github.com/chanq/chanq/prove/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// queue is chanq's own SQL against a stand-in.
type queue struct {
	sqlbatch.Queue
	*mssqltest.Server
	t testing.TB
}

func newQueue(t testing.TB, o mssqltest.Options) *queue {
	o.InMemory = true // so that a bubble can hold it
	q := &queue{sqlserver.Dialect.Queue(suite.Orders), mssqltest.Start(t, o), t}
	q.migrate()
	return q
}

// inBubble runs a test in a bubble of testing/synctest.
func inBubble(t *testing.T, test func(*testing.T)) { testdb.InBubble(t, true, test) }

// connect opens a database of newQueue's, as another program does.
func connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	c, err := testdb.Emulator.Connect(dsn)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Clock is the server's, not the statement that asks for it.
func (q *queue) Clock() *engine.ManualClock { return q.Server.Clock() }

func (q *queue) migrate() {
	q.t.Helper()
	ctx := context.Background()
	conn, err := q.DB().Conn(ctx)
	require.NoError(q.t, err)
	defer func() { require.NoError(q.t, conn.Close()) }()
	texts := sqlserver.Dialect.Begin()
	for _, m := range sqlserver.Dialect.Migrations(suite.Orders) {
		texts = append(texts, m.Statements...)
	}
	texts = append(texts, sqlserver.Dialect.Commit())
	for _, text := range texts {
		_, err := conn.ExecContext(ctx, text)
		require.NoError(q.t, err, text)
	}
	q.exec(q.Record(sqlbatch.Version))
}

func (q *queue) exec(st sqlbatch.Statement) {
	q.t.Helper()
	_, err := q.DB().ExecContext(context.Background(), st.Text, st.Args...)
	require.NoError(q.t, err)
}

// rows runs a statement and returns the rows of all its results.
func (q *queue) rows(st sqlbatch.Statement) [][]any {
	q.t.Helper()
	out, err := read(context.Background(), q.DB(), st)
	require.NoError(q.t, err)
	return out
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func read(ctx context.Context, on querier, st sqlbatch.Statement) ([][]any, error) {
	rows, err := on.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out [][]any
	for {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			row := make([]any, len(columns))
			to := make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			if err := rows.Scan(to...); err != nil {
				return nil, err
			}
			out = append(out, row)
		}
		if !rows.NextResultSet() {
			return out, rows.Err()
		}
	}
}

func newID() [16]byte { return uuid.Must(uuid.NewV7()) }

func makeRows(n int, priority int8) []sqlbatch.Row {
	rows := make([]sqlbatch.Row, n)
	for i := range rows {
		rows[i] = sqlbatch.Row{ID: newID(), Priority: priority, Body: []byte{byte(i)}}
	}
	return rows
}

func itemsOf(claimed [][]any) []sqlbatch.Item {
	items := make([]sqlbatch.Item, len(claimed))
	for i, row := range claimed {
		copy(items[i].ID[:], row[0].([]byte))
		items[i].Fence = row[2].(int64)
	}
	return items
}

var claimTen = sqlbatch.ClaimParams{Rows: 10, Lease: 30 * time.Second, Member: [16]byte{1}, Salt: 1, Suspects: true}

// numberOf is a server's error's, or 0.
func numberOf(err error) int32 {
	var e mssql.Error
	_ = errors.As(err, &e)
	return e.Number
}
