package embedded

import (
	"context"
	"fmt"
	"time"
)

// writerQueue admits one writer at a time. With SQLite alone the others would poll with pauses of
// up to 100 ms, and some could starve.
type writerQueue struct {
	here   chan struct{} // full while a writer of this process is inside; granted in the order of the calls
	across *fileLock     // respected by writers of other processes; nil in memory

	journal journal // of the writer that is inside
}

func newWriterQueue(path string) *writerQueue {
	t := &writerQueue{here: make(chan struct{}, 1)}
	if path != inMemory {
		t.across = &fileLock{path: path}
		t.journal = newJournal(path + journalSuffix)
	}
	return t
}

// enter waits as long as SQLite would wait for the write lock. A goroutine that writes on one
// connection while it holds the queue on another therefore gets an error, as without the queue,
// instead of a permanent wait.
//
// The lock between processes is optional: without it, SQLite's lock decides.
func (t *writerQueue) enter(ctx context.Context) error {
	select {
	case t.here <- struct{}{}:
	default:
		timeout := time.NewTimer(busyTimeout)
		defer timeout.Stop()
		select {
		case t.here <- struct{}{}:
		case <-timeout.C:
			return busyError{}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if t.across != nil && !t.across.lock(ctx, patience) && ctx.Err() != nil {
		t.leave()
		return ctx.Err()
	}
	return nil
}

// The files of the lock between processes.
const turnSuffix, nextSuffix = "-turn", "-next"

// patience is how long a writer waits for the lock between processes. A process that holds it
// longer is in a long transaction, or was stopped by a signal. Until it releases the lock, no
// goroutine of this process waits for it again.
const patience = time.Second

func (t *writerQueue) leave() {
	if t.across != nil {
		t.across.unlock()
	}
	<-t.here
}

func (t *writerQueue) close() {
	if t.across != nil {
		t.across.close()
	}
}

// busyError is SQLITE_BUSY, returned by the writer queue.
type busyError struct{}

func (busyError) Error() string {
	return fmt.Sprintf("database is locked: another connection of this process is writing, and was for %v (SQLITE_BUSY)", busyTimeout)
}

// Code returns SQLite's result code, as the driver's own errors do.
func (busyError) Code() int { return busyCode }

const busyCode = 5 // SQLITE_BUSY
