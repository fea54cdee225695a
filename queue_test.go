package chanq

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/chanq/chanq/internal/table"
)

// Interleavings and limits that a code review questioned.

// openSQLite opens an empty database directly with the driver: package embedded imports this one.
func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	path := filepath.ToSlash(filepath.Join(t.TempDir(), "q.db"))
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func openTestQueue[T any](t *testing.T, cfg Config) *Queue[T] {
	t.Helper()
	db := openSQLite(t)
	require.NoError(t, Migrate(t.Context(), db, "orders", cfg))
	q, err := Open[T](t.Context(), db, "orders", cfg)
	require.NoError(t, err)
	return q
}

// counts returns the numbers of messages of a queue.
func counts[T any](t testing.TB, q *Queue[T]) (c table.Counts) {
	t.Helper()
	require.NoError(t, q.core.once(context.Background(), q.core.table.SQL.Stats(table.CountLimit), c.Scan))
	return c
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func testConsumer[T any](t *testing.T, q *Queue[T], cfg ConsumerConfig) *Consumer[T] {
	t.Helper()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

func testProducer[T any](t *testing.T, q *Queue[T], cfg ProducerConfig) *Producer[T] {
	t.Helper()
	p, err := q.Producer(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}
