package base

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Functions of the user's may panic, and except for codecs may leave by runtime.Goexit, as t.FailNow does. Neither may end
// a goroutine that chanq needs:
//
//   - Hooks, Backoff and methods of errors are called by Call, on a goroutine of their own that is waited for. That takes a
//     microsecond, where a statement or a failure was before.
//   - Handlers, and the Handled hook after a success, are called by Workers, too often for that. A worker that one of them has ended is
//     replaced, and goes on behind the message that it was at.
//   - Codecs are called by the goroutines that need them. Their panics are caught; runtime.Goexit in them ends that goroutine.

// ErrGoexit is the outcome of a function that left by runtime.Goexit.
var ErrGoexit = errors.New("left by runtime.Goexit, as t.FailNow does")

// Call runs f on a goroutine of its own and waits for it. It returns how f ended, nil if it returned.
func Call(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() { done <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p) // methods of the value may leave here
			}
		}()
		f()
		err = nil
	}()
	return <-done
}

// Panicked makes an error of the value that a function of the user's panicked with. Call it where that was recovered: the
// error has the stack.
func Panicked(p any) error {
	stack := debug.Stack()
	text := fmt.Sprintf("%T", p)
	_ = Call(func() { text = fmt.Sprint(p) })
	return fmt.Errorf("panic: %s\n%s", text, stack)
}

// Workers runs work in n goroutines until it has returned in each. A goroutine that leaves work otherwise, because a
// handler ended it, is replaced.
func Workers(n int, work func()) {
	var all sync.WaitGroup
	var join func()
	join = func() {
		all.Go(func() {
			returned := false
			defer func() {
				if !returned {
					join()
				}
			}()
			work()
			returned = true
		})
	}
	for range n {
		join()
	}
	all.Wait()
}

// Signal leaves a value in a channel of capacity 1 unless one is there.
func Signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
