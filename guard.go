package chanq

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Functions of the user's may panic, and except for codecs may leave by
// runtime.Goexit, as t.FailNow does: neither may end a goroutine that chanq needs.
//
//   - Hooks, Backoff and looks into errors are called apart, on a goroutine of their
//     own that is waited for: a microsecond, where a statement or a failure was
//     before.
//   - Handlers are called by their workers, too often for that. A worker that a
//     handler leaves is replaced, and goes on behind the message that it was at.
//   - Codecs are called by the goroutines that need them. Their panics are caught;
//     runtime.Goexit in them ends that goroutine.
//
// What a function that blocks holds up is said at Hooks, Codec and ConsumerConfig.

// errLeft is the outcome of a function that left by runtime.Goexit.
var errLeft = errors.New("left by runtime.Goexit, as t.FailNow does")

// apart runs f on a goroutine of its own and waits for it. It returns how f ended,
// nil if it returned.
func apart(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := errLeft
		defer func() { done <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p) // the value's own methods may leave here
			}
		}()
		f()
		err = nil
	}()
	return <-done
}

// panicked makes an error of what a function of the user's panicked with. Call it
// where that was recovered: it has the stack.
func panicked(p any) error {
	stack := debug.Stack()
	text := fmt.Sprintf("%T", p)
	_ = apart(func() { text = fmt.Sprint(p) })
	return fmt.Errorf("panic: %s\n%s", text, stack)
}

// crew runs work in n goroutines until it has returned in each. One that left work
// otherwise, because a handler took it along, is replaced.
func crew(n int, work func()) {
	var all sync.WaitGroup
	var join func()
	join = func() {
		all.Go(func() {
			through := false
			defer func() {
				if !through {
					join()
				}
			}()
			work()
			through = true
		})
	}
	for range n {
		join()
	}
	all.Wait()
}

// teller calls hooks for those that may not wait for them, because leases of others
// depend on them: one after another, in order, on a goroutine that lives while there
// is something to tell. A hook that does not return keeps up to maxUntold events
// waiting; what comes then is not told.
type teller struct {
	mu      sync.Mutex // guards what follows; not held while an event is told
	untold  []func()
	telling chan struct{} // closed at the end of the goroutine; nil: there is none
	closed  bool
}

const maxUntold = 4096

// tell has an event told soon.
func (t *teller) tell(event func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.untold) >= maxUntold {
		return
	}
	t.untold = append(t.untold, event)
	if t.telling == nil {
		t.telling = make(chan struct{})
		go t.tellAll() // ends when all is told; wait and close join it
	}
}

func (t *teller) tellAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.untold) > 0 {
		event := t.untold[0]
		t.untold = t.untold[1:]
		t.mu.Unlock()
		event()
		t.mu.Lock()
	}
	close(t.telling)
	t.untold, t.telling = nil, nil
}

// wait returns when all that was to be told before is told.
func (t *teller) wait() {
	t.mu.Lock()
	telling := t.telling
	t.mu.Unlock()
	if telling != nil {
		<-telling
	}
}

// close is wait; what comes later is not told.
func (t *teller) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wait()
}
