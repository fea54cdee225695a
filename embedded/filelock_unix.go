//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// fileLock is a lock between processes, on two empty files that it makes. The
// kernel gives a lock that is free to whoever comes first, and that is the process
// which has just given it back, again and again. So who waits for the turn keeps
// the place of the next meanwhile, and the one that was inside cannot have both.
//
// One goroutine at a time may have the lock or wait for it.
type fileLock struct {
	path string

	mu         sync.Mutex
	turn, next *os.File
	asking     bool          // a goroutine waits in the kernel, which cannot be called off
	waiter     chan struct{} // closed when that goroutine has the turn; nil when nobody waits any more
}

// lock waits for the turn, and reports false where it did not get it.
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
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiter == nil { // granted meanwhile
		return true
	}
	l.waiter = nil
	return false
}

// try takes the turn if it is free, or has a goroutine ask for it, which closes
// granted when it has it. With neither, locks cannot be had.
func (l *fileLock) try() (granted chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
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
		go l.ask(l.next, l.turn)
	}
	l.waiter = make(chan struct{})
	return l.waiter, false
}

// open makes the files. mu is held.
func (l *fileLock) open() error {
	if l.turn != nil {
		return nil
	}
	turn, err := os.OpenFile(l.path+turnSuffix, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	next, err := os.OpenFile(l.path+nextSuffix, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		_ = turn.Close()
		return err
	}
	l.turn, l.next = turn, next
	return nil
}

// ask waits in the kernel, and gives the turn to who waits for it, if anybody.
func (l *fileLock) ask(next, turn *os.File) {
	err := flock(next, syscall.LOCK_EX)
	if err == nil {
		err = flock(turn, syscall.LOCK_EX)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = flock(next, syscall.LOCK_UN)
	l.asking = false
	switch {
	case err != nil: // closed: the waiter's patience ends
	case l.waiter == nil:
		_ = flock(turn, syscall.LOCK_UN)
	default:
		close(l.waiter)
		l.waiter = nil
	}
}

// unlock gives the turn back; without it, it does nothing.
func (l *fileLock) unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != nil {
		_ = flock(l.turn, syscall.LOCK_UN) // of an open file it cannot fail
	}
}

func (l *fileLock) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != nil {
		_ = l.turn.Close() // nothing was written to them
		_ = l.next.Close()
		l.turn, l.next = nil, nil
	}
}

// flock keeps the descriptor open for as long as the call takes.
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
