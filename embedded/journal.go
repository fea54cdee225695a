package embedded

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"time"
)

// journal keeps the write-ahead log short where readers relieve each other. SQLite copies
// the log into the database beside them, but begins it anew only in a moment in which
// none of them is in it; where some read always overlaps the next, there is no such
// moment, and the log grows for ever. So a writer whose log has become long asks for that
// moment: those who read already are waited for, and whoever comes meanwhile reads the
// database alone.
//
// A single read that stays keeps the log whatever anybody does: what it sees is there
// only. Waiting for it is given up soon, and tried again ever more seldom; when it has
// ended, SQLite begins the log anew by itself.
//
// It belongs to whoever is inside the turnstile.
type journal struct {
	path     string        // of the log; "" in memory
	long     int64         // journalLong
	patience time.Duration // journalPatience
	next     time.Time
	pause    time.Duration // after the last try, which was in vain; 0 if it was not
}

func newJournal(path string) journal {
	return journal{path: path, long: journalLong, patience: journalPatience}
}

const (
	// journalLong is the length from which a log is not what SQLite keeps by itself: it
	// begins one anew at 4 MiB, and what one transaction writes is below this but for a few.
	journalLong = 2 * journalLimit
	journalLook = time.Second
	// journalPatience is for how long the readers are waited for, and all writers with it.
	// It is a twentieth of the time at most, and of a minute in the end.
	journalPatience = 250 * time.Millisecond
	journalShare    = 20
	journalAtLeast  = time.Minute
)

// shorten is called by a writer who has committed, before he leaves the turnstile. It
// costs a look at the file's length, once a second.
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
	// What fails here failed in vain, and the writes of this connection have not.
	for _, text := range []string{
		fmt.Sprintf("PRAGMA busy_timeout(%d)", j.patience.Milliseconds()),
		"PRAGMA wal_checkpoint(TRUNCATE)",
		fmt.Sprintf("PRAGMA busy_timeout(%d)", busyTimeout.Milliseconds()),
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
