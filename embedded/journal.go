package embedded

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"time"
)

// journal keeps the write-ahead log short despite overlapping readers. SQLite copies the log into
// the database while they read, but restarts it only at a moment when no reader uses it. If each
// read overlaps the next, there is no such moment, and the log grows without bound. A writer whose
// log has become long therefore waits for the current readers; readers that begin during the wait
// read only the database.
//
// A single long read always keeps the log, because its snapshot exists only there. The wait for it
// ends soon, and is repeated with growing pauses. When the read has ended, SQLite restarts the log
// on its own.
//
// Only the writer that holds the writer queue uses the journal.
type journal struct {
	path     string        // of the log; "" in memory
	long     int64         // journalLong
	patience time.Duration // journalPatience
	next     time.Time
	pause    time.Duration // after the last try, if that failed; otherwise 0
}

func newJournal(path string) journal {
	return journal{path: path, long: journalLong, patience: journalPatience}
}

const (
	// journalLong is a log length that SQLite does not reach when it restarts the log on its own:
	// it restarts at 4 MiB, and few transactions write more than this.
	journalLong = 2 * journalLimit
	journalLook = time.Second
	// journalPatience is how long a writer waits for the readers; all writers wait with it. The
	// waits take at most 5 % of the time, later 5 % of a minute.
	journalPatience = 250 * time.Millisecond
	journalShare    = 20
	journalAtLeast  = time.Minute
)

// shorten is called by a writer after its commit, before it leaves the writer queue. It
// reads the length of the file at most once per second.
func (j *journal) shorten(conn driver.ExecerContext) {
	began := time.Now()
	if j.path == "" || began.Before(j.next) {
		return
	}
	j.next = began.Add(journalLook)
	if j.length() <= j.long {
		j.pause = 0
		return
	}
	// An error here has no effect on the writes of this connection.
	for _, text := range []string{
		fmt.Sprintf("PRAGMA busy_timeout(%d)", j.patience.Milliseconds()),
		"PRAGMA wal_checkpoint(TRUNCATE)",
		fmt.Sprintf("PRAGMA busy_timeout(%d)", busyTry.Milliseconds()),
	} {
		_, _ = conn.ExecContext(context.Background(), text, nil)
	}
	took := time.Since(began)
	if j.length() <= j.long {
		j.pause = 0
		return
	}
	j.pause = min(max(2*j.pause, journalShare*took), max(journalAtLeast, journalShare*took))
	j.next = began.Add(j.pause)
}

func (j *journal) length() int64 {
	info, err := os.Stat(j.path)
	if err != nil {
		return 0
	}
	return info.Size()
}
