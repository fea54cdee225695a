package embedded_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
)

func TestAFileOfAnyNameIsOpened(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "with space", "per%cent%20", "question?mark", "hash#tag", "am&per=sand", "ümlaut 😀", "quo'te\"s", "colon:memory:", "back\\slash"} {
		path := filepath.Join(dir, name)
		db, err := embedded.Open(path)
		require.NoError(t, err, name)
		_, err = db.Exec("CREATE TABLE t (n INTEGER)")
		require.NoError(t, err, name)
		require.NoError(t, db.Close(), name)
		_, err = os.Stat(path)
		require.NoError(t, err, "the file has the given name")

		db, err = embedded.Open(path)
		require.NoError(t, err, name)
		_, err = db.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err, "it is opened again: %s", name)
		require.NoError(t, db.Close(), name)
	}
}

func TestAnUnusablePathIsAnError(t *testing.T) {
	for _, path := range []string{"", "a\x00b", t.TempDir(), filepath.Join(t.TempDir(), "missing", "queue.db")} {
		_, err := embedded.Open(path)
		require.ErrorContains(t, err, "chanq: embedded:", path)
	}
}

func TestAFileIsDurableAndWaitsForLocks(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "queue.db"))
	require.NoError(t, err)
	defer db.Close()
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "fullfsync": "1", "checkpoint_fullfsync": "1", "busy_timeout": "250", "journal_size_limit": "33554432"} {
		var got string
		require.NoError(t, db.QueryRow("PRAGMA "+pragma).Scan(&got))
		require.Equal(t, want, got, pragma)
	}
}

func TestEachDatabaseInMemoryIsSeparateAndLivesUntilClose(t *testing.T) {
	open := func() *sql.DB {
		db, err := embedded.Open(":memory:")
		require.NoError(t, err)
		return db
	}
	a, b := open(), open()
	defer b.Close()
	_, err := a.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	_, err = b.Exec("INSERT INTO t VALUES (1)")
	require.Error(t, err)
	// The database in memory also exists without a connection in the pool.
	a.SetMaxIdleConns(-1)
	_, err = a.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

func TestManyWritersAllSucceed(t *testing.T) {
	const writers, each = 16, 25
	db, err := embedded.Open(filepath.Join(t.TempDir(), "queue.db"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				var err error
				switch w % 3 {
				case 0:
					_, err = db.Exec("INSERT INTO t VALUES (1)")
				case 1:
					err = db.QueryRow("INSERT INTO t VALUES (1) RETURNING n").Scan(new(int))
				default:
					err = inTx(db, "INSERT INTO t VALUES (1)")
				}
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
	require.Equal(t, writers*each, n)
}

func inTx(db *sql.DB, text string) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.QueryRow("SELECT count(*) FROM t").Scan(new(int)); err != nil {
		return err
	}
	if _, err := tx.Exec(text); err != nil {
		return err
	}
	return tx.Commit()
}

func TestADatabaseCreatesTheListedFilesOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "queue.db")
	db, err := embedded.Open(path)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	there, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Greater(t, len(there), 1)
	require.Subset(t, embedded.Files(path), there)
	require.NoError(t, db.Close())
}

func TestAResultOfOneStatementHasNoNextOneBeforeItIsRead(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	defer rows.Close()
	require.False(t, rows.NextResultSet())
	require.NoError(t, rows.Err())
}
