package base

import (
	"fmt"
	"runtime/debug"

	"github.com/sourcegraph/conc"
)

// Call calls a function of the user on its own goroutine, and waits for it: neither a panic nor runtime.Goexit, which
// t.FailNow calls, ends the caller. It takes a microsecond. Hooks, Backoff and methods of errors are called in this
// way, after a statement or a failure.
func Call(f func()) {
	var g conc.WaitGroup
	g.Go(f)
	g.WaitAndRecover()
}

// Panicked makes an error of the value with which a user function panicked. Call it where the panic was recovered: the
// error has the stack.
func Panicked(p any) error {
	stack := debug.Stack()
	text := fmt.Sprintf("%T", p)
	Call(func() { text = fmt.Sprint(p) })
	return fmt.Errorf("panic: %s\n%s", text, stack)
}

// Signal leaves a value in a channel of capacity 1 unless one is there.
func Signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
