package base

import (
	"sync"
	"time"
)

// Availability tracks whether the database answers one producer or consumer, whose goroutines share it. It implements
// batch.Health.
type Availability struct {
	// Changed is called once for each change, in order. Nothing waits for it, except for End. It may be nil.
	Changed func(AvailabilityChange)

	mu      sync.Mutex // guards the fields below; not held while Changed is called
	since   time.Time  // zero while the database answers
	failed  time.Time  // of the latest failure
	worked  time.Time  // of the latest success
	ended   bool
	changes Events
}

// AvailabilityChange is the beginning or the end of an outage.
type AvailabilityChange struct {
	Err   error         // what failed; nil: the outage is over
	Ended bool          // because the producer or consumer has ended
	Down  time.Duration // the length of the outage, when it is over
}

// Failed notes a failure of an operation. It is ignored if the operation began before the latest success: the
// connection broke in an outage that has ended.
func (a *Availability) Failed(began time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || began.Before(a.worked) {
		return
	}
	a.failed = time.Now()
	if a.since.IsZero() {
		a.since = a.failed
		a.report(AvailabilityChange{Err: err})
	}
}

// Away reports whether the database does not answer.
func (a *Availability) Away() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.since.IsZero()
}

// Worked notes the success of an operation. It is ignored if the operation began before the latest failure: the outage
// might go on.
func (a *Availability) Worked(began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || began.Before(a.failed) {
		return
	}
	a.worked = time.Now()
	a.over(false)
}

// End is called when the producer or consumer has ended. It ends an outage: otherwise a metric that counts the
// producers and consumers in an outage would count this one permanently. It returns after Changed was called for all
// changes.
func (a *Availability) End() {
	a.mu.Lock()
	a.over(true)
	a.ended = true
	a.mu.Unlock()
	a.changes.Close()
}

// over ends an outage, if there is one. mu is held.
func (a *Availability) over(ended bool) {
	if a.since.IsZero() {
		return
	}
	down := time.Since(a.since)
	a.since = time.Time{}
	a.report(AvailabilityChange{Ended: ended, Down: down})
}

// report queues a call of Changed. The caller must not wait for it, because it might be the goroutine that extends
// leases. mu is held.
func (a *Availability) report(c AvailabilityChange) {
	if a.Changed != nil {
		a.changes.Enqueue(func() { a.Changed(c) })
	}
}
