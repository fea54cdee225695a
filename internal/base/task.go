package base

import "sync"

// Isolated reports how many items of one writer are isolated. One goroutine at a time calls Set.
type Isolated struct {
	// Changed is called for each change, in order. Nothing waits for it, except for Close. It may be nil.
	Changed func(items, change int, err error)

	items  int
	events Events
}

// Set notes the number of isolated items, and the error of the one that was isolated last.
func (i *Isolated) Set(items int, err error) {
	change := items - i.items
	i.items = items
	if i.Changed != nil {
		i.events.Enqueue(func() { i.Changed(items, change, err) })
	}
}

// Close returns when Changed has been called for all changes.
func (i *Isolated) Close() { i.events.Close() }

// Task reports whether the database refuses a task that no delivery waits for. One goroutine reports; another one may end it.
type Task struct {
	// Away reports that an error says nothing about the task: the database does not answer, which others report.
	Away func(error) bool
	// Changed is called once for each change: with what the database refuses, or nil when it no longer does, or the task has ended.
	Changed func(err error, ended bool)

	mu             sync.Mutex // guards what follows; held during Changed, so that changes are reported in order
	refused, ended bool
}

// Report notes how the task went.
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

// End is called when nothing does the task any more. What was refused is over then, as an outage is.
func (t *Task) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused && !t.ended {
		t.Changed(nil, true)
	}
	t.ended = true
}
