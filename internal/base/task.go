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

// Task reports whether the database refuses a task that no delivery waits for. One goroutine calls Report; another may
// call End.
type Task struct {
	// Away reports whether the cause of an error is not the task but an outage of the database, which is reported
	// elsewhere.
	Away func(error) bool
	// Changed is called once for each change: with the error of a refusal, or with nil when the task succeeds again or
	// has ended.
	Changed func(err error, ended bool)

	mu             sync.Mutex // guards the fields below; held during Changed, to report changes in order
	refused, ended bool
}

// Report notes the outcome of the task.
func (t *Task) Report(err error) {
	if err != nil && t.Away(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if refused := err != nil; !t.ended && refused != t.refused {
		t.refused = refused
		t.Changed(err, false)
	}
}

// End is called when the task is not run any more. It ends a refusal, as Availability.End ends an outage.
func (t *Task) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused && !t.ended {
		t.Changed(nil, true)
	}
	t.ended = true
}
