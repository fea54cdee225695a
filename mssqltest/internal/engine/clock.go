package engine

import (
	"slices"
	"sync"
	"time"
)

// Clock is the time of the server, for SYSUTCDATETIME, WAITFOR and lock timeouts.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives after d; stop frees the timer early.
	After(d time.Duration) (expired <-chan time.Time, stop func())
}

// RealClock is the machine's clock.
type RealClock struct{}

// Now returns the current time in UTC.
func (RealClock) Now() time.Time { return time.Now().UTC() }

// After uses a timer of package time.
func (RealClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// ManualClock is stopped until Advance moves it, so that a test decides when a lease ends. Create it with
// NewManualClock. Safe for concurrent use.
type ManualClock struct {
	mu      sync.Mutex
	now     time.Time
	waits   []*manualWait
	changed chan struct{} // closed and replaced when waits changes
}

type manualWait struct {
	at time.Time
	ch chan time.Time
}

// NewManualClock returns a clock that shows start.
func NewManualClock(start time.Time) *ManualClock {
	return &ManualClock{now: start.UTC(), changed: make(chan struct{})}
}

// Now returns the time that the clock shows.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After waits for Advance to pass d.
func (c *ManualClock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &manualWait{at: c.now.Add(d), ch: make(chan time.Time, 1)}
	if d <= 0 {
		w.ch <- c.now
		return w.ch, func() {}
	}
	c.waits = append(c.waits, w)
	c.announce()
	return w.ch, func() { c.remove(w) }
}

// Advance moves the clock and ends every wait whose time has passed.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.waits = slices.DeleteFunc(c.waits, func(w *manualWait) bool {
		if w.at.After(c.now) {
			return false
		}
		w.ch <- c.now
		return true
	})
	c.announce()
}

// Waiting returns the number of waits that only Advance can end: statements in WAITFOR and lock requests with a
// timeout.
func (c *ManualClock) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waits)
}

// Changed returns a channel that is closed at the next change of Waiting. Call it before reading Waiting.
func (c *ManualClock) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *ManualClock) remove(w *manualWait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waits, w); i >= 0 {
		c.waits = slices.Delete(c.waits, i, i+1)
		c.announce()
	}
}

func (c *ManualClock) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}
