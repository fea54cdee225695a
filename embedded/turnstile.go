package embedded

import (
	"context"
	"fmt"
	"time"
)

// turnstile admits one writer at a time. SQLite would have the others poll, with
// pauses of up to 100 ms, and the unlucky starve.
type turnstile struct {
	here   chan struct{} // full while a writer of this process is inside; in the order of asking
	across *fileLock     // which writers of other processes respect; nil in memory

	journal journal // of who is inside
}

func newTurnstile(path string) *turnstile {
	t := &turnstile{here: make(chan struct{}, 1)}
	if path != inMemory {
		t.across = &fileLock{path: path}
		t.journal = newJournal(path + journalSuffix)
	}
	return t
}

// enter waits its turn for as long as SQLite would wait for the write lock: a
// goroutine that writes on one connection while it holds the turn on another
// gets an error, as it would without the turnstile, instead of waiting forever.
//
// The turn among processes is a courtesy: without it, SQLite's lock decides.
func (t *turnstile) enter(ctx context.Context) error {
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

// The lock files of the turn among processes.
const turnSuffix, nextSuffix = "-turn", "-next"

// patience is how long to wait for the turn among processes. One that has it for
// longer is in a long transaction, or was stopped by a signal: until it goes on,
// nobody of this process waits for the turn any more.
const patience = time.Second

func (t *turnstile) leave() {
	if t.across != nil {
		t.across.unlock()
	}
	<-t.here
}

func (t *turnstile) close() {
	if t.across != nil {
		t.across.close()
	}
}

// busyError is SQLITE_BUSY, told by the turnstile.
type busyError struct{}

func (busyError) Error() string {
	return fmt.Sprintf("database is locked: another connection of this process is writing, and was for %v (SQLITE_BUSY)", busyTimeout)
}

// Code is SQLite's result code, as of the driver's own errors.
func (busyError) Code() int { return 5 }
