package embedded

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// SQLite is slow with the race detector, so the logs of the tests are shorter: here SQLite restarts
// a log at testRestart, not at 4 MiB.
const (
	testRestart = 200_000
	testLong    = 1_000_000
)

// written returns a file with one connection that writes, and the journal of that connection.
func written(t *testing.T) (db *sql.DB, j *journal, exec func(text string)) {
	path := filepath.Join(t.TempDir(), "t.db")
	opened, err := Connector(path)
	require.NoError(t, err)
	db = sql.OpenDB(opened)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	writer, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, writer.Close()) })
	exec = func(text string) {
		_, err := writer.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec(fmt.Sprintf("PRAGMA wal_autocheckpoint(%d)", testRestart/4096))
	exec("CREATE TABLE t (n INTEGER PRIMARY KEY, b BLOB); INSERT INTO t VALUES (1, x''), (2, x'')")
	j = &opened.(*connector).writers.journal
	j.next = time.Now().Add(time.Hour) // to test what SQLite does on its own
	return db, j, exec
}

const write = "UPDATE t SET b = randomblob(100000) WHERE n = 1"

// read begins a read that continues until its rows are closed.
func read(t *testing.T, db *sql.DB) *sql.Rows {
	rows, err := db.Query("SELECT n FROM t")
	require.NoError(t, err)
	require.True(t, rows.Next())
	return rows
}

// There is always a reader that began before the last write, and each read is short. SQLite on its
// own never gets to restart the log.
func TestTheLogIsRestartedDespiteOverlappingReaders(t *testing.T) {
	db, j, exec := written(t)
	reader := read(t, db)
	replace := func() {
		next := read(t, db)
		_ = reader.Close()
		reader = next
	}
	for j.length() <= testLong {
		exec(write)
		replace()
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(10 * time.Millisecond); ; replace() {
			select {
			case <-tick.C:
			case <-stop:
				tick.Stop()
				_ = reader.Close()
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	*j = newJournal(j.path)
	j.long, j.patience = testLong, busyTimeout // long enough for the next reader on a slow machine
	exec(write)
	require.LessOrEqual(t, j.length(), int64(testLong))
}

// The file itself becomes shorter.
func TestTheLogShrinksAfterALongRead(t *testing.T) {
	const limit = testLong / 2
	db, j, exec := written(t)
	exec(fmt.Sprintf("PRAGMA journal_size_limit(%d)", limit))
	staying := read(t, db)
	for j.length() <= testLong {
		exec(write)
	}
	require.NoError(t, staying.Close())
	exec(write) // copies the pages that the reader kept in the log
	exec(write) // restarts the log
	require.LessOrEqual(t, j.length(), int64(limit))
}

// execer is a connection on which do may shorten the log.
type execer struct {
	calls int
	do    func()
}

func (e *execer) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	e.calls++
	e.do()
	return driver.RowsAffected(0), nil
}

// In a bubble, so that no attempt takes longer than its statements, and no pause ends by itself.
func TestALogThatCannotBeShortenedIsTriedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		long := func() { require.NoError(t, os.Truncate(path, journalLong+1)) }
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		j := newJournal(path)
		nothing := &execer{do: func() {}}
		j.shorten(nothing)
		require.Zero(t, nothing.calls, "a short log is left alone")

		long()
		slow := &execer{do: func() { time.Sleep(2 * time.Millisecond) }} // each of three statements, as with readers
		var pauses []time.Duration
		for range 12 {
			j.next = time.Time{} // the pause is over
			began := time.Now()
			j.shorten(slow)
			calls := slow.calls
			j.shorten(slow)
			require.Equal(t, calls, slow.calls, "a pause follows a slow attempt")
			require.Equal(t, began.Add(j.pause), j.next)
			pauses = append(pauses, j.pause)
		}
		require.Equal(t, journalShare*6*time.Millisecond, pauses[0], "at most 5 % of the time")
		require.Greater(t, pauses[1], pauses[0])
		require.Equal(t, journalAtLeast, pauses[11])

		j.next = time.Time{}
		j.shorten(&execer{do: func() { require.NoError(t, os.Truncate(path, 0)) }})
		require.Zero(t, j.pause)
		require.LessOrEqual(t, time.Until(j.next), journalLook)
	})
}
