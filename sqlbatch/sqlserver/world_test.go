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

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// queue runs chanq's SQL against an emulator.
type queue struct {
	sqlbatch.Queue
	*mssqltest.Server
	t testing.TB
}

func newQueue(t testing.TB, o mssqltest.Options) *queue {
	testdb.Emulator.Require(t)
	o.InMemory = true // so that a bubble can contain it
	q := &queue{sqlserver.Dialect.Queue(suite.Orders), mssqltest.Start(t, o), t}
	testdb.MigrateTables(t, sqlserver.Dialect, q.DB(), suite.Orders)
	return q
}

// inBubble runs a test in a bubble of testing/synctest.
func inBubble(t *testing.T, test func(*testing.T)) { testdb.InBubble(t, true, test) }

// connect opens a database from newQueue, as another program does.
func connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	c, err := testdb.Emulator.Connect(dsn)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Clock returns the server's clock, not the statement that reads it.
func (q *queue) Clock() *mssqltest.ManualClock { return q.Server.Clock() }

func (q *queue) exec(st sqlbatch.Statement) {
	q.t.Helper()
	_, err := q.DB().ExecContext(context.Background(), st.Text, st.Args...)
	require.NoError(q.t, err)
}

// rows runs a statement and returns the rows of all its results.
func (q *queue) rows(st sqlbatch.Statement) [][]any {
	q.t.Helper()
	out, err := suite.Rows(context.Background(), q.DB(), st)
	require.NoError(q.t, err)
	return out
}

func newID() [16]byte { return uuid.Must(uuid.NewV7()) }

func makeRows(n int, priority int8) []sqlbatch.Row {
	rows := make([]sqlbatch.Row, n)
	for i := range rows {
		rows[i] = sqlbatch.Row{ID: newID(), Priority: priority, Body: []byte{byte(i)}}
	}
	return rows
}

// itemsOf returns the leases of a claim.
func itemsOf(claimed [][]any) []sqlbatch.Item { return suite.Items(claimed, 2) }

var claimTen = sqlbatch.ClaimParams{Rows: 10, Lease: 30 * time.Second, Consumer: [16]byte{1}, Salt: 1, Inline: sqlbatch.MaxBody}

// numberOf returns the number of a server's error, or 0.
func numberOf(err error) int32 {
	var e mssql.Error
	_ = errors.As(err, &e)
	return e.Number
}
