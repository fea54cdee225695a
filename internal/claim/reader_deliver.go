package claim

import (
	"time"

	"github.com/chanq/chanq/internal/order"
)

// From the Reader to leases, and back.

// Deliver returns up to n messages whose turn it is, in order, and when their leases end. The caller reports the end of each to
// Settled.
func (r *Reader) Deliver(n int) (list []order.Delivery, ends time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	term, ends, lasts := r.cfg.Membership.Current() // under the mutex: Lost follows an end before another term's messages
	if !lasts || term != r.delivers {
		return nil, 0
	}
	return r.seq.Deliver(n, r.cfg.Now()), ends
}

// Settled is what became of a delivery.
type Settled struct {
	Message *order.Message
	Fence   int64
	order.Settle
}

// Settled takes what became of deliveries.
func (r *Reader) Settled(list []Settled) {
	r.change(func(now time.Duration) {
		for _, e := range list {
			r.seq.Settled(e.Message, e.Fence, e.Settle, now)
		}
	})
	r.cfg.Woken()
}

// Ended has the row of a message that was acked in a transaction looked at now: its handler has returned.
func (r *Reader) Ended(m *order.Message, fence int64) {
	r.mu.Lock()
	r.seq.Ended(m, fence)
	r.mu.Unlock()
	r.cfg.Woken()
}

// Leaving reports whether a message that no handler has yet is to be taken back: its slot is being returned, or is lost.
func (r *Reader) Leaving(m *order.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq.Leaving(m)
}

// Awaited reports whether other messages wait for the end of a delivery.
func (r *Reader) Awaited(m *order.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq.Awaited(m)
}

// Counts returns what is in memory.
func (r *Reader) Counts() order.Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq.Counts()
}

// Rests reports whether the owned slots have nothing that is due: all of them were read, nothing is delivered, and what is
// known waits for a time, or is held by a dead message. Slots without an owner have to be taken first.
func (r *Reader) Rests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds() && r.reb.Settled() && r.seq.Rests(r.cfg.Now())
}
