package embedded

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"time"
)

const (
	// askEvery is how often SQLite is asked while somebody is idle.
	askEvery = 5 * time.Millisecond
	// askRest is for how long it is not, after something was committed: by whoever wrote to
	// the file, and whatever it was.
	askRest = 20 * time.Millisecond
)

// ask wakes those who have no pipe whenever another connection has committed, which
// SQLite tells by a number that it reads from shared memory. It ends when nobody needs it.
func (b *notifier) ask() {
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
		if !b.answered(version != was, err) {
			return
		}
		timer.Reset(askEvery)
		if version != was {
			was = version
			timer.Reset(askRest)
		}
	}
}

// answered wakes those who have no pipe, or tells them that nothing can be heard. It reports
// whether there are any left.
func (b *notifier) answered(changed bool, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asks = false
	again := time.Since(b.tried) > missing // what was in the way may be gone, such as too many open files
	for _, l := range b.lines {
		switch {
		case l.pipe != nil:
		case err != nil:
			b.deafen(l)
		case again && b.openPipe(l):
			l.wake(len(l.waiters))
		default:
			b.asks = true
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
			b.asks = true
			if changed {
				q.wake(nil)
			}
		}
	}
	return b.asks
}

// dataVersion is another number after each commit of another connection.
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
