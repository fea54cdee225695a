package sqlite_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

// BenchmarkShrink reports how long a step on a file of 200 MB holds the write lock. A tenth of its rows stays between the deleted ones:
// pages are moved, which takes longer than cutting them off.
func BenchmarkShrink(b *testing.B) {
	db, err := embedded.Open(filepath.Join(b.TempDir(), "queue.db"))
	require.NoError(b, err)
	defer db.Close()
	require.NoError(b, chanq.Migrate(b.Context(), db, "orders", chanq.Config{}))
	for _, text := range []string{
		"CREATE TABLE filling (body BLOB NOT NULL)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 67000) INSERT INTO filling SELECT zeroblob(3000) FROM n",
		"DELETE FROM filling WHERE rowid % 10 <> 0",
	} {
		_, err := db.ExecContext(b.Context(), text)
		require.NoError(b, err)
	}
	step := sqlite.Dialect.Queue(sqlbatch.Names{Queue: "orders"}).Shrink()
	var took []time.Duration
	for b.Loop() {
		began, pages := time.Now(), 0
		rows, err := db.QueryContext(b.Context(), step.Text)
		require.NoError(b, err)
		for rows.Next() {
			pages++
		}
		require.NoError(b, rows.Close())
		require.Equal(b, sqlbatch.ShrinkPages, pages, "the file has no more free pages: run it with -benchtime 100x")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
