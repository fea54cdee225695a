package base

import "sync"

// Events calls user functions for goroutines that must not wait for them, because leases depend on these goroutines. It
// calls them one after another, in order, on a goroutine that exists while there are events. If a function does not
// return, up to maxPending events wait; later ones are dropped.
type Events struct {
	mu      sync.Mutex // guards the fields below; not held while an event is called
	pending []func()
	running *Group // has the goroutine; nil: there is none
	closed  bool
}

const maxPending = 4096

// Enqueue adds an event, which is called soon.
func (e *Events) Enqueue(event func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.pending) >= maxPending {
		return
	}
	e.pending = append(e.pending, event)
	if e.running == nil {
		e.running = &Group{}
		e.running.Go(e.run) // ends when no event is pending; Wait and Close join it
	}
}

func (e *Events) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.pending) > 0 {
		event := e.pending[0]
		e.pending = e.pending[1:]
		e.mu.Unlock()
		event()
		e.mu.Lock()
	}
	e.pending, e.running = nil, nil
}

// Wait returns when all earlier events have been called.
func (e *Events) Wait() {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running != nil {
		running.Wait()
	}
}

// Close is Wait, and drops later events.
func (e *Events) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.Wait()
}
