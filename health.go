package chanq

import (
	"sync"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// health tells the Availability hook of changes, once each. It is shared by
// the goroutines of one producer or consumer.
type health struct {
	queue *queue
	part  string

	// mu guards what follows. Hooks are called without it.
	mu      sync.Mutex
	since   time.Time // zero while up
	last    time.Time // of the latest failure
	well    time.Time // of the latest success
	ended   bool
	changes teller
}

// Failed notes a failure. One of an operation that began before another succeeded
// is no sign that the database is away: its connection broke in an outage that
// is over.
func (h *health) Failed(began time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || began.Before(h.well) {
		return
	}
	h.last = time.Now()
	if h.since.IsZero() {
		h.since = h.last
		h.tell(AvailabilityEvent{Queue: h.queue.label, Part: h.part, Err: err})
	}
}

// away says that the database does not answer.
func (h *health) away() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.since.IsZero()
}

// Worked notes a success. One that was under way when another failed is no sign
// that the database is back.
func (h *health) Worked(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || began.Before(h.last) {
		return
	}
	h.well = time.Now()
	h.over(false)
}

// end is called when the producer or consumer has ended. An outage ends with it, or whoever counts
// those that are in one would count it for ever. It returns when all is told.
func (h *health) end() {
	h.mu.Lock()
	h.over(true)
	h.ended = true
	h.mu.Unlock()
	h.changes.close()
}

// over tells that an outage is over, if there is one: because the database answers, or because
// nobody asks it any more. mu is held.
func (h *health) over(ended bool) {
	if h.since.IsZero() {
		return
	}
	down := time.Since(h.since)
	h.since = time.Time{}
	h.tell(AvailabilityEvent{Queue: h.queue.label, Part: h.part, Up: true, Ended: ended, Down: down})
}

// tell has the hook called, in the order of the changes and without the lock: not by
// those that find them, since the keeper is one. mu is held.
func (h *health) tell(e AvailabilityEvent) {
	if hook := h.queue.cfg.Hooks.Availability; hook != nil {
		h.changes.tell(func() { call(hook, e) })
	}
}

// isolated calls the Isolated hook of one producer or consumer.
type isolated struct {
	queue  *queue
	part   string
	items  int // by the last event; changed is called by one goroutine at a time
	events teller
}

// changed is Observer.Isolated of a writer, which does not wait for the hook.
func (i *isolated) changed(items int, err error) {
	e := IsolatedEvent{Queue: i.queue.label, Part: i.part, Items: items, Change: items - i.items, Err: err}
	i.items = items
	if hook := i.queue.cfg.Hooks.Isolated; hook != nil {
		i.events.tell(func() { call(hook, e) })
	}
}

// housework tells the Housekeeping hook of changes of one task, once each. One goroutine
// reports; another one may end it.
type housework struct {
	queue    *queue
	task, op string // op: as in OpError

	mu             sync.Mutex // guards what follows; held while the hook is called, so that changes are told in order
	refused, ended bool
}

// report notes how the task went. That the database is away is told by others.
func (h *housework) report(err error) {
	if err != nil {
		switch h.queue.classify(err) {
		case sqlbatch.Unknown, sqlbatch.Refused, sqlbatch.RolledBack:
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if refused := err != nil; !h.ended && refused != h.refused {
		h.refused = refused
		call(h.queue.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: h.queue.label, Task: h.task, Err: h.queue.fail(h.op, err)})
	}
}

// end is called when nobody does the task any more. What was refused is over then, as an outage is.
func (h *housework) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused && !h.ended {
		call(h.queue.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: h.queue.label, Task: h.task, Ended: true})
	}
	h.ended = true
}

// tell reports the result of a chore, and ends the consumer if the driver panicked in it.
func (c *consumer[T]) tell(h *housework, err error) {
	h.report(err)
	mind(c, h.op, err)
}

// mind ends the owner of leases if err is a panic of the driver. It is for statements that are repeated
// whatever their outcome.
func mind(o leaseOwner, op string, err error) {
	if session.Panicked(err) {
		o.broken(o.home().fail(op, err))
	}
}
