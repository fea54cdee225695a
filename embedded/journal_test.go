package embedded

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openWritten(t *testing.T) (db *sql.DB, length func() int64, write func()) {
	path := filepath.Join(t.TempDir(), "t.db")
	db, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.Exec("CREATE TABLE t (n INTEGER PRIMARY KEY, b BLOB); INSERT INTO t VALUES (1, x''), (2, x'')")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	length = func() int64 { return (&journal{path: path + journalSuffix}).length() }
	write = func() {
		_, err := db.ExecContext(ctx, "UPDATE t SET b = randomblob(200000) WHERE n = 1")
		require.NoError(t, err)
	}
	return db, length, write
}

// read begins a read that goes on until its rows are closed.
func read(t *testing.T, db *sql.DB) *sql.Rows {
	rows, err := db.Query("SELECT n FROM t")
	require.NoError(t, err)
	require.True(t, rows.Next())
	return rows
}

// There is always a reader, and none of them for long: SQLite by itself never finds a
// moment to begin the log anew.
func TestTheLogIsBegunAnewThoughReadersRelieveEachOther(t *testing.T) {
	db, length, write := openWritten(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var n int // of a read that takes some ten milliseconds
				err := db.QueryRow("WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 30000) SELECT count(*) FROM t, c").Scan(&n)
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for length() <= journalLong {
		write()
	}
	for length() > journalLong { // until the context of write ends
		write()
	}
	close(stop)
	readers.Wait()
}

func TestTheLogShrinksWhenAReaderThatStayedHasEnded(t *testing.T) {
	db, length, write := openWritten(t)
	staying := read(t, db)
	for length() <= journalLong {
		write()
	}
	require.NoError(t, staying.Close())
	write() // which copies what the reader kept
	write() // and this one begins anew
	require.LessOrEqual(t, length(), int64(journalLimit))
}

// execer is a connection on which a log is shortened, or not.
type execer struct {
	calls int
	do    func()
}

func (e *execer) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	e.calls++
	e.do()
	return driver.RowsAffected(0), nil
}

func TestALogThatCannotBeShortenedIsTriedEverMoreSeldom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := func() { require.NoError(t, os.Truncate(path, journalLong+1)) }
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	j := journal{path: path}
	nothing := &execer{do: func() {}}
	j.shorten(nothing)
	require.Zero(t, nothing.calls, "a short log is left alone")

	long()
	slow := &execer{do: func() { time.Sleep(2 * time.Millisecond) }} // each of three statements, as readers would have it
	var pauses []time.Duration
	for range 12 {
		j.next = time.Time{} // the pause is over
		j.shorten(slow)
		calls := slow.calls
		j.shorten(slow)
		require.Equal(t, calls, slow.calls, "it is not")
		require.WithinDuration(t, time.Now().Add(j.pause), j.next, time.Second)
		pauses = append(pauses, j.pause)
	}
	require.GreaterOrEqual(t, pauses[0], journalShare*6*time.Millisecond, "a twentieth of the time")
	require.Greater(t, pauses[1], pauses[0])
	require.Equal(t, journalAtLeast, pauses[11])

	j.next = time.Time{}
	j.shorten(&execer{do: func() { require.NoError(t, os.Truncate(path, 0)) }})
	require.Zero(t, j.pause)
	require.LessOrEqual(t, time.Until(j.next), journalLook)
}
