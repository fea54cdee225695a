package embedded_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

func TestACallThatWasGivenUpIsNotApplied(t *testing.T) {
	testdb.Long(t)
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (x INTEGER)")
	require.NoError(t, err)
	program, err := sql.Open("sqlite", "file:"+path) // another program
	require.NoError(t, err)
	defer program.Close()
	foreign, err := program.Conn(t.Context())
	require.NoError(t, err)
	defer foreign.Close()
	for name, write := range map[string]func(context.Context) error{
		"exec": func(ctx context.Context) error { _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); return err },
		"query": func(ctx context.Context) error {
			return db.QueryRowContext(ctx, "INSERT INTO t VALUES (1) RETURNING x").Scan(new(int))
		},
		"begin": func(ctx context.Context) error { _, err := db.BeginTx(ctx, nil); return err },
	} {
		_, err = foreign.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		err := write(ctx)
		cancel()
		require.Error(t, err, name)
		require.Less(t, time.Since(began), 5*time.Second, name)
		_, err = foreign.ExecContext(t.Context(), "COMMIT")
		require.NoError(t, err)
		rows := 0
		require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&rows))
		require.Zero(t, rows, name)
	}
}

// A program creates its own tables by a script when it starts, while another program writes.
func TestAScriptWaitsForAnotherProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = db.Exec("CREATE TABLE t (x INTEGER)")
	require.NoError(t, err)
	program, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	defer program.Close()
	foreign, err := program.Conn(t.Context())
	require.NoError(t, err)
	defer foreign.Close()
	_, err = foreign.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	go func() { // ends with the test, which waits for its commit
		time.Sleep(time.Second) // the other program writes for longer than SQLite itself waits for other statements
		_, _ = foreign.ExecContext(t.Context(), "COMMIT")
	}()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE a (x INTEGER); CREATE TABLE b (x INTEGER)")
	require.NoError(t, err)
	wait := 0
	require.NoError(t, db.QueryRow("PRAGMA busy_timeout").Scan(&wait))
	require.Equal(t, 250, wait)
}
