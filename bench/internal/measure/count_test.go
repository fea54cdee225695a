package measure

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	driver "modernc.org/sqlite"
)

func TestStatementsOfEveryKindAreCounted(t *testing.T) {
	ctx := t.Context()
	counter := &Counter{}
	db := sql.OpenDB(counter.DSN(&driver.Driver{}, "file:"+t.TempDir()+"/x.db"))
	defer db.Close()
	counts := func(want int64, f func() error) {
		t.Helper()
		before := counter.Statements()
		require.NoError(t, f())
		require.Equal(t, want, counter.Statements()-before)
	}
	counts(1, func() error { _, err := db.ExecContext(ctx, "CREATE TABLE t (a)"); return err })
	var n int
	counts(1, func() error { return db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n) })
	var stmt *sql.Stmt
	counts(0, func() (err error) { stmt, err = db.PrepareContext(ctx, "INSERT INTO t VALUES (?)"); return err })
	defer stmt.Close()
	counts(1, func() error { _, err := stmt.ExecContext(ctx, 1); return err })
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		counts(3, func() error { // a begin and an end count as one each
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			return end(tx)
		})
	}
	require.Zero(t, (*Counter)(nil).Statements())
}
