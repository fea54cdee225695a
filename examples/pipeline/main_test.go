package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
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

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
