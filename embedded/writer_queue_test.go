package embedded

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openTest(t *testing.T) (*sql.DB, context.Context) {
	t.Helper()
	db, err := Open(t.TempDir() + "/t.db")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	_, err = db.Exec("CREATE TABLE t (x INTEGER)")
	require.NoError(t, err)
	return db, ctx
}

func TestAScriptWithItsOwnTransactionLeavesTheWriterQueue(t *testing.T) {
	db, ctx := openTest(t)
	_, err := db.ExecContext(ctx, "BEGIN; INSERT INTO t VALUES (1); COMMIT;")
	require.NoError(t, err)
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	other, err := db.Conn(ctx)
	require.NoError(t, err)
	defer other.Close()
	_, err = conn.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	_, err = other.ExecContext(ctx, "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
}

func TestAnOpenTransactionKeepsTheWriterQueueLocked(t *testing.T) {
	for _, c := range []struct {
		script, end string // end is the statement that ends the transaction of script, if it is left open
	}{
		{"BEGIN; INSERT INTO t VALUES (1); COMMIT", ""},
		{"-- two\nBEGIN IMMEDIATE;\nINSERT INTO t VALUES (1);\nROLLBACK;", ""},
		{"INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", ""},
		{"SELECT x FROM t; INSERT INTO t VALUES (1)", ""},
		{"INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2)", "COMMIT"},
		{"INSERT INTO t VALUES (1); BEGIN IMMEDIATE; INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3); COMMIT"},
		{"BEGIN; INSERT INTO t VALUES (1); INSERT INTO nowhere VALUES (1)", "ROLLBACK"},
		{"BEGIN; COMMIT; BEGIN IMMEDIATE", "COMMIT; SELECT 1"},
	} {
		for name, run := range map[string]func(context.Context, *sql.Conn, string) error{
			"exec": func(ctx context.Context, conn *sql.Conn, text string) error {
				_, err := conn.ExecContext(ctx, text)
				return err
			},
			"query": func(ctx context.Context, conn *sql.Conn, text string) error {
				rows, err := conn.QueryContext(ctx, text)
				if err != nil {
					return err
				}
				return rows.Close()
			},
			"prepared": func(ctx context.Context, conn *sql.Conn, text string) error {
				stmt, err := conn.PrepareContext(ctx, text)
				if err != nil {
					return err
				}
				_, err = stmt.ExecContext(ctx)
				return errors.Join(err, stmt.Close())
			},
		} {
			t.Run(name+" "+c.script, func(t *testing.T) {
				db, ctx := openTest(t)
				conn, err := db.Conn(ctx)
				require.NoError(t, err)
				defer conn.Close()
				err = run(ctx, conn, c.script)
				require.Equal(t, c.end == "ROLLBACK", err != nil, "%v", err)
				inside := make(chan error, 1)
				go func() {
					_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (9)")
					inside <- err
				}()
				if c.end != "" {
					select {
					case <-inside:
						require.Fail(t, "written inside another's transaction")
					case <-time.After(50 * time.Millisecond):
					}
					require.NoError(t, run(ctx, conn, c.end))
				}
				require.NoError(t, <-inside)
			})
		}
	}
}

func TestAReaderWithASemicolonInALiteralWaitsForNoWriter(t *testing.T) {
	db, ctx := openTest(t)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var n int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM t WHERE x <> 'a; b'").Scan(&n))
}

func TestARollbackBySQLiteItselfLeavesTheWriterQueue(t *testing.T) {
	db, ctx := openTest(t)
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(ctx, "BEGIN; INSERT INTO t VALUES (1); COMMIT")
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	require.Error(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
}

func TestARollbackToASavepointKeepsTheWriterQueueLocked(t *testing.T) {
	db, ctx := openTest(t)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	for _, text := range []string{"SAVEPOINT s", "INSERT INTO t VALUES (1)", "ROLLBACK TO s"} {
		_, err = tx.ExecContext(ctx, text)
		require.NoError(t, err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
		written <- err
	}()
	select {
	case <-written:
		require.Fail(t, "written inside another's transaction")
	case <-time.After(50 * time.Millisecond):
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-written)
}

func TestAnOpenReadDoesNotBlockWriters(t *testing.T) {
	db, ctx := openTest(t)
	_, err := db.Exec("INSERT INTO t VALUES (1), (2)")
	require.NoError(t, err)
	for _, query := range []string{
		"-- name: List :many\nSELECT x FROM t",
		"/* all */ SELECT x FROM t",
		"WITH a AS (SELECT x FROM t) SELECT x FROM a",
	} {
		rows, err := db.QueryContext(ctx, query)
		require.NoError(t, err, query)
		require.True(t, rows.Next())
		_, err = db.ExecContext(ctx, "UPDATE t SET x = x")
		require.NoError(t, err, query)
		require.NoError(t, rows.Close())
	}
}

func TestKindsOfStatements(t *testing.T) {
	for query, want := range map[string]kind{
		"SELECT 1":                            reads,
		"\n\t(select 1)":                      reads,
		"--\n/* */ ; values (1)":              reads,
		"PRAGMA user_version":                 reads,
		"PRAGMA main.incremental_vacuum(9)":   writes,
		"INSERT INTO t VALUES (1)":            writes,
		"WITH a AS (SELECT 1) delete from t":  writes,
		"BEGIN IMMEDIATE":                     begins,
		"begin;":                              begins,
		"COMMIT":                              commits,
		"END TRANSACTION":                     commits,
		"ROLLBACK":                            rollsBack,
		"ROLLBACK TRANSACTION;":               rollsBack,
		"ROLLBACK TO s":                       reads,
		"rollback transaction to savepoint s": reads,
		"":                                    writes,
		"--":                                  writes,
		"CREATE TABLE u (x)":                  writes,
		"UPDATE\tt SET x = 1 RETURNING x":     writes,
		"SELECT 1; -- and no more\n;":         reads,
		"SELECT 1; SELECT 2":                  scripts,
		"SELECT ';x', 'it''s; y', 1":          reads,
		"SELECT \"a;\", `b;`, [c;] FROM t":    reads,
		"SELECT 1 -- one; two\n, 2 /* ; x */": reads,
		"SELECT ';'; -- and\nDELETE FROM t":   scripts,
		"INSERT INTO t VALUES ('a; b')":       writes,
		"BEGIN; INSERT INTO t VALUES (1)":     scripts,
		"; /**/ COMMIT; BEGIN":                scripts,
	} {
		require.Equal(t, want, kindOf(query), query)
	}
}
