package lease

import (
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Period is the time of a lease, by the clock of base.Now.
type Period struct {
	deadline atomic.Int64
	until    atomic.Int64 // end of automatic extension
}

// Begin sets the deadline of a new lease, and the end of automatic extension.
func (p *Period) Begin(deadline, until time.Duration) {
	p.deadline.Store(int64(deadline))
	p.until.Store(int64(until))
}

// After returns when a lease of d that was requested at start must end here. Databases count in milliseconds and might
// round down: one millisecond is subtracted, or this process could hold its lease longer than the database does.
func After(start, d time.Duration) time.Duration { return start + d - base.Tolerance }

// Deadline returns when the lease ends here, unless it is extended.
func (p *Period) Deadline() time.Duration { return time.Duration(p.deadline.Load()) }

// Until returns when automatic extension ends.
func (p *Period) Until() time.Duration { return time.Duration(p.until.Load()) }

// Prolong notes that the lease lasts at least until end in the database.
func (p *Period) Prolong(end time.Duration) { raise(&p.deadline, end) }

// KeepUntil makes automatic extension last at least until end.
func (p *Period) KeepUntil(end time.Duration) { raise(&p.until, end) }

// raise sets t to at, unless t is later.
func raise(t *atomic.Int64, at time.Duration) {
	for was := t.Load(); was < int64(at) && !t.CompareAndSwap(was, int64(at)); was = t.Load() {
	}
}

// Number is the position of a lease on the channel of its consumer, from 1, or 0 if the lease was not put there.
type Number struct{ atomic.Int64 }

// Waits reports whether no reader has taken the lease. taken is how many leases were taken from the channel of its
// consumer.
func (n *Number) Waits(taken int64) bool {
	at := n.Load()
	return at == 0 || at > taken
}
