package base

import "sync"

// Isolated reports how many items of one writer are isolated. One goroutine at a time calls Set.
type Isolated struct {
	// Changed is called for each change, in order. Nothing waits for it, except for Close. It may be nil.
	Changed func(items, change int, err error)

	items  int
	events Events
}

// Set notes the number of isolated items, and the error of the item that was isolated last.
func (i *Isolated) Set(items int, err error) {
	change := items - i.items
	i.items = items
	if i.Changed != nil {
		i.events.Enqueue(func() { i.Changed(items, change, err) })
	}
}

// Close returns when Changed has been called for all changes.
func (i *Isolated) Close() { i.events.Close() }

// Task reports whether something works that is tried again and again: a task that no delivery waits for, or a Notifier.
// It is safe for concurrent use.
type Task struct {
	// Away reports whether the cause of an error is not the task but an outage of the database, which is reported
	// elsewhere. nil: no error has such a cause.
	Away func(error) bool
	// Changed is called for each change, in order: with the error of the first failure, or with nil when the task
	// succeeds again or has ended. Nothing waits for it, except for End.
	Changed func(err error, ended bool)

	mu     sync.Mutex // guards err and ended; not held while Changed is called
	err    error      // of the last try
	ended  bool
	events Events
}

// Report notes the outcome of a try.
func (t *Task) Report(err error) {
	if err != nil && t.Away != nil && t.Away(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if (err != nil) != (t.err != nil) && !t.ended {
		t.events.Enqueue(func() { t.Changed(err, false) })
	}
	t.err = err
}

// Err returns the error of the last try.
func (t *Task) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// End is called when the task is not tried any more. It ends a failure, as Availability.End ends an outage, and returns
// when Changed was called for all changes.
func (t *Task) End() {
	t.mu.Lock()
	if t.err != nil && !t.ended {
		t.events.Enqueue(func() { t.Changed(nil, true) })
	}
	t.ended = true
	t.mu.Unlock()
	t.events.Close()
}
