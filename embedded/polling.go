package embedded

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"time"
)

const (
	// pollEvery is how often SQLite is polled while a consumer without a pipe is idle.
	pollEvery = 5 * time.Millisecond
	// pollRest is the pause after a commit of another connection to any table.
	pollRest = 20 * time.Millisecond
)

// poll wakes the consumers without a pipe whenever another connection has committed. SQLite reads the number of commits from
// shared memory. It ends when every consumer has a pipe.
func (b *notifier) poll() {
	conn, err := b.connect()
	if err == nil {
		defer conn.Close()
	}
	was, timer := int64(-1), time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.closing:
		case <-timer.C:
		}
		version := was
		if err == nil {
			version, err = dataVersion(conn)
		}
		if !b.polled(version != was, err) {
			return
		}
		timer.Reset(pollEvery)
		if version != was {
			was = version
			timer.Reset(pollRest)
		}
	}
}

// polled wakes the consumers without a pipe, or closes their channels after an error. It reports whether any are left.
func (b *notifier) polled(changed bool, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.polls = false
	again := time.Since(b.tried) > missing // the cause of the failure might be gone, for example too many open files
	for _, l := range b.plain {
		switch {
		case l.pipe != nil:
		case err != nil:
			b.closeAll(l)
		case again && b.openPipe(l):
			l.wake(len(l.waiters))
		default:
			b.polls = true
			if changed {
				l.wake(len(l.waiters))
			}
		}
	}
	for _, q := range b.owners {
		switch {
		case q.pipe != nil:
		case err != nil:
			b.closeOwners(q)
		case again && b.openOwners(q):
			q.wake(nil)
		default:
			b.polls = true
			if changed {
				q.wake(nil)
			}
		}
	}
	return b.polls
}

// dataVersion returns a number that changes with each commit of another connection.
func dataVersion(conn driver.Conn) (int64, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(context.Background(), "PRAGMA data_version", nil)
	if err != nil {
		return 0, err
	}
	value := make([]driver.Value, 1)
	err = rows.Next(value)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	version, _ := value[0].(int64)
	return version, errors.Join(err, rows.Close())
}
