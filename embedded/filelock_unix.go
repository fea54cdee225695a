//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// fileLock is a lock between processes, on two empty files that it creates. The kernel grants a
// free lock to the first process that requests it, which is often the process that has just
// released it. A process that waits for the lock "turn" therefore holds the lock "next" meanwhile,
// and the process that releases "turn" has to wait for "next".
//
// One goroutine at a time may hold the lock or wait for it.
type fileLock struct {
	path string

	mu         sync.Mutex
	turn, next *os.File
	closed     bool
	asking     bool          // a goroutine waits in the kernel, which cannot be interrupted
	stuck      bool          // it has waited for longer than the patience of one caller: no other caller waits
	waiter     chan struct{} // closed when that goroutine has the lock; nil if no caller waits
}

// lock waits for the lock, and reports whether it has it.
func (l *fileLock) lock(ctx context.Context, patience time.Duration) bool {
	granted, ok := l.try()
	if granted == nil {
		return ok
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-granted:
		return true
	case <-timeout.C:
		return l.giveUp(true)
	case <-ctx.Done():
		return l.giveUp(false)
	}
}

// giveUp ends the wait, and reports whether the lock has been granted in the meantime.
func (l *fileLock) giveUp(stuck bool) (granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiter == nil {
		return true
	}
	l.waiter = nil
	l.stuck = stuck
	return false
}

// try takes the lock if it is free. Otherwise it starts a goroutine that waits for it, and
// closes granted when it has the lock. If granted is nil and ok false, there are no locks.
func (l *fileLock) try() (granted chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stuck || l.closed || l.open() != nil {
		return nil, false
	}
	if !l.asking {
		err := flock(l.next, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			err = flock(l.turn, syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = flock(l.next, syscall.LOCK_UN)
			return nil, err == nil
		}
		l.asking = true
		go l.wait(l.next, l.turn)
	}
	l.waiter = make(chan struct{})
	return l.waiter, false
}

// open creates the files with the mode of the database. mu is held.
func (l *fileLock) open() error {
	if l.turn != nil {
		return nil
	}
	database, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	turn, err := openLock(l.path+turnSuffix, database.Mode().Perm())
	if err != nil {
		return err
	}
	next, err := openLock(l.path+nextSuffix, database.Mode().Perm())
	if err != nil {
		_ = turn.Close()
		return err
	}
	l.turn, l.next = turn, next
	return nil
}

// openLock creates a lock file, or opens an existing one. In a directory that other users can write
// to, the name may be in use: a link is not followed, only a regular file is used, and only the
// mode of a file that was created here is set.
func openLock(name string, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_ = file.Chmod(mode) // to override the umask
		return file, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	file, err = os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, fmt.Errorf("%s is not a regular file (%w)", name, fs.ErrInvalid)
	}
	return file, nil
}

// wait waits in the kernel, and passes the lock on to the caller that waits, if any.
func (l *fileLock) wait(next, turn *os.File) {
	err := flock(next, syscall.LOCK_EX)
	if err == nil {
		err = flock(turn, syscall.LOCK_EX)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = flock(next, syscall.LOCK_UN)
	l.asking, l.stuck = false, false
	switch {
	case err != nil: // closed, or locks are not supported: the wait of the caller times out
	case l.waiter == nil:
		_ = flock(turn, syscall.LOCK_UN)
	default:
		close(l.waiter)
		l.waiter = nil
	}
}

// unlock releases the lock. Without the lock it does nothing.
func (l *fileLock) unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != nil {
		_ = flock(l.turn, syscall.LOCK_UN) // cannot fail for an open file
	}
}

func (l *fileLock) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true // connections may outlive the *sql.DB
	if l.turn != nil {
		_ = l.turn.Close() // nothing was written to the files
		_ = l.next.Close()
		l.turn, l.next = nil, nil
	}
}

// flock keeps the descriptor open during the call.
func flock(file *os.File, how int) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) {
		for {
			if result = syscall.Flock(int(fd), how); !errors.Is(result, syscall.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, result)
}
