package limits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// A step of a purge reads neither the messages before the purged ones again, nor those that earlier
// steps passed. (Deleted rows leave nothing on SQLite.)
func TestOnSQLiteAStepOfAPurgeReadsNothingOfTheStepsBefore(t *testing.T) {
	t.Parallel()
	const step, steps = 200, 5
	const before = 10_000 // leased if ready messages are purged, and vice versa
	for state, by := range map[sqlbatch.State][2]string{sqlbatch.Ready: {"", "another"}, sqlbatch.Leased: {"another", ""}} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			db, q := countedSQLite(t)
			fillSQLite(t, db, before, "-7200000 + i", by[1])
			fillSQLite(t, db, 4*step*steps, "-3600000 + i", by[0]) // a quarter in each priority
			w := sqlbatch.Window{Before: 1 << 42}
			var pages []int
			for range steps {
				from := pagesRead(t, db)
				rows, err := testdb.Rows(t.Context(), db, q.Purge(state, step, w))
				require.NoError(t, err)
				for _, row := range rows {
					if at := row[1].(int64); at > w.After {
						w.After, w.AfterID = at, [16]byte(row[0].([]byte))
					}
				}
				require.Len(t, rows, step)
				pages = append(pages, pagesRead(t, db)-from)
			}
			t.Logf("pages of each step of %d: %v", step, pages)
			for _, n := range pages[1:] {
				require.LessOrEqual(t, n, 20*step)
				require.Less(t, n, pages[0], "the first step scans the messages before the purged ones")
			}
		})
	}
}
