package embedded

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"path/filepath"
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
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	length = func() int64 { return (&journal{path: path + journalSuffix}).length() }
	write = func() {
		_, err := db.ExecContext(ctx, "UPDATE t SET b = randomblob(1000000) WHERE n = 1")
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

// There is always a reader that began before the last write, and none of them stays for
// long: SQLite by itself never finds a moment to begin the log anew.
func TestTheLogIsBegunAnewThoughReadersRelieveEachOther(t *testing.T) {
	db, length, write := openWritten(t)
	written, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for reader, open := read(t, db), true; open; {
			select {
			case _, open = <-written:
			case <-time.After(100 * time.Millisecond):
			}
			next := read(t, db)
			_ = reader.Close()
			if reader = next; !open {
				_ = reader.Close()
			}
		}
	}()
	t.Cleanup(func() {
		close(written)
		<-stopped
	})
	for length() <= journalLong {
		write()
		written <- struct{}{}
	}
	for length() > journalLong { // until the context of write ends
		write()
		written <- struct{}{}
	}
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
