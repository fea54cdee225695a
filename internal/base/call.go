package base

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// User functions might panic and, except for codecs, may call runtime.Goexit, as t.FailNow does. Neither may end a goroutine
// that chanq needs:
//
//   - Hooks, Backoff and methods of errors are called by Call, which runs them on a new goroutine and waits. That takes a
//     microsecond, after a statement or a failure.
//   - Handlers, and the Handled hook after a success, are called too often for that. Workers calls them: a worker that one of them
//     has ended is replaced, and continues after its message.
//   - Codecs are called by the goroutines that need them. Their panics are caught; runtime.Goexit in a codec ends that goroutine.

// ErrGoexit is the outcome of a function that called runtime.Goexit.
var ErrGoexit = errors.New("left by runtime.Goexit, as t.FailNow does")

// Call runs f on a new goroutine and waits for it. It returns nil if f returned, and otherwise how it ended.
func Call(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() { done <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p) // methods of the value might call Goexit here
			}
		}()
		f()
		err = nil
	}()
	return <-done
}

// Panicked makes an error of the value with which a user function panicked. Call it where the panic was recovered: the
// error has the stack.
func Panicked(p any) error {
	stack := debug.Stack()
	text := fmt.Sprintf("%T", p)
	_ = Call(func() { text = fmt.Sprint(p) })
	return fmt.Errorf("panic: %s\n%s", text, stack)
}

// Workers runs work in n goroutines until it has returned in each. A goroutine that ends otherwise, because a handler
// called runtime.Goexit, is replaced.
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
