package base

import "sync"

// Events calls functions of the user's for those that may not wait for them, because leases depend on them: one after
// another, in order, on a goroutine that lives while there are events. A function that does not return keeps up to
// maxPending events waiting; later ones are dropped.
type Events struct {
	mu      sync.Mutex // guards what follows; not held while an event is called
	pending []func()
	running chan struct{} // closed at the end of the goroutine; nil: there is none
	closed  bool
}

const maxPending = 4096

// Enqueue has an event called soon.
func (e *Events) Enqueue(event func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.pending) >= maxPending {
		return
	}
	e.pending = append(e.pending, event)
	if e.running == nil {
		e.running = make(chan struct{})
		go e.run() // ends when no event is pending; Wait and Close join it
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
	close(e.running)
	e.pending, e.running = nil, nil
}

// Wait returns when the events of before have been called.
func (e *Events) Wait() {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running != nil {
		<-running
	}
}

// Close is Wait, and drops later events.
func (e *Events) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.Wait()
}
