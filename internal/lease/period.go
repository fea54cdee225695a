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

// Begin gives it the deadline of a new lease, and the end of automatic extension.
func (p *Period) Begin(deadline, until time.Duration) {
	p.deadline.Store(int64(deadline))
	p.until.Store(int64(until))
}

// After is when a lease of d that was asked for at start is over here at the latest. Databases count in milliseconds and
// may round down: without the millisecond that is taken off, this process could believe in its lease longer than they do.
func After(start, d time.Duration) time.Duration { return start + d - base.Tolerance }

// Deadline is when the lease ends here unless it is extended.
func (p *Period) Deadline() time.Duration { return time.Duration(p.deadline.Load()) }

// Until is when automatic extension ends.
func (p *Period) Until() time.Duration { return time.Duration(p.until.Load()) }

// Prolong notes that the database has the lease until end at least.
func (p *Period) Prolong(end time.Duration) { raise(&p.deadline, end) }

// KeepUntil has the lease extended until end at least.
func (p *Period) KeepUntil(end time.Duration) { raise(&p.until, end) }

// raise sets t to at, unless it is later.
func raise(t *atomic.Int64, at time.Duration) {
	for was := t.Load(); was < int64(at) && !t.CompareAndSwap(was, int64(at)); was = t.Load() {
	}
}

// Number is the place of a lease on the channel of its consumer, from 1. 0: it was not put there.
type Number struct{ atomic.Int64 }

// Waits reports that no reader has the lease, of a consumer whose readers have taken so many from its channel.
func (n *Number) Waits(taken int64) bool {
	at := n.Load()
	return at == 0 || at > taken
}
