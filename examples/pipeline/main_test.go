package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachFileIsCountedOnceDespiteAnInterruption(t *testing.T) {
	dir := t.TempDir()
	db, err := embedded.Open(filepath.Join(dir, "pipeline.db"))
	require.NoError(t, err)
	defer db.Close()
	const n = 60
	var paths []string
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("word ", i)), 0o644))
		paths = append(paths, path)
	}
	paths = append(paths, filepath.Join(dir, "missing"))

	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db, paths) }()
	require.Eventually(t, func() bool { // some are counted
		var counted int
		return db.QueryRow("SELECT COUNT(*) FROM words").Scan(&counted) == nil && counted > 0
	}, 30e9, 1e6)
	interrupt()
	require.NoError(t, <-ended)

	require.NoError(t, run(t.Context(), db, nil))
	require.Equal(t, n*(n-1)/2, number(t, db, "SELECT SUM(n) FROM words"))
	require.Equal(t, n, number(t, db, "SELECT COUNT(*) FROM words"))
	require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_files WHERE last_error LIKE '%no such file%'"))
}

// The program is killed after each of its statements and started again.
func TestEachFileIsCountedOnceWhereverTheProgramDies(t *testing.T) {
	testdb.Long(t) // some 100 programs
	path := filepath.Join(t.TempDir(), "three")
	require.NoError(t, os.WriteFile(path, []byte("one two three"), 0o644))
	for crash := range chanqtest.Crashes(t) {
		synctest.Test(t, func(t *testing.T) {
			db := chanqtest.DB(t)
			files, err := open[string](t.Context(), db, "files")
			require.NoError(t, err)
			_, err = files.Send(t.Context(), chanq.Msg(path))
			require.NoError(t, err)
			crash(t, db)
			program := func(ctx context.Context) error { return run(ctx, db, nil) }
			chanqtest.Drain(t, program)
			time.Sleep(time.Hour) // what the dead program held has expired
			chanqtest.Drain(t, program)
			require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM words WHERE n = 3"))
			require.Empty(t, chanqtest.Sent(t, files))
		})
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
