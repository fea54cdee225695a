package claim

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Slots has the slots that the consumer of an ordered queue owns, with their messages in memory. It is the Source of
// leases of deliverable messages. Its methods are safe for concurrent use, and run no statements: an
// Ordered runs them.
type Slots struct {
	cfg        *Config
	pace       *Pace
	membership *Membership

	ready    chan struct{} // of capacity 1: messages may be delivered
	recalled chan struct{} // of capacity 1: slots are being returned, or were lost

	took atomic.Int64 // duration of statements about messages since the last Delivered

	mu   sync.Mutex // guards what follows
	seq  *order.Sequencer
	reb  *order.Rebalancer
	term Term // of seq and reb. Only the Ordered writes it, and reads it without mu
}

// Limits of what a Sequencer keeps.
const (
	unreadMost = 4 // messages that a key keeps in addition to its first one
	// BlockedMost is the number of keys whose first message is not deliverable at which reading stops.
	BlockedMost = 10_000
)

// NewSlots returns the slots of a consumer that does not own any yet.
func NewSlots(pace *Pace, m *Membership) *Slots {
	cfg := &pace.cfg
	term, _, _ := m.Current()
	seq := order.New(order.Config{
		Unread: unreadMost, MostUnread: min(256, cfg.Prefetch/4), Blocked: BlockedMost, Bytes: cfg.PrefetchBytes,
		Behind: sqlbatch.MostWalked, Traits: cfg.Traits,
		Holds: cfg.Queue.Policy().Holds, MaxCrashes: cfg.MaxCrashes,
	})
	return &Slots{
		cfg: cfg, pace: pace, membership: m, term: term,
		ready: make(chan struct{}, 1), recalled: make(chan struct{}, 1),
		seq: seq, reb: order.NewRebalancer(cfg.Slots, term.ID, seq),
	}
}

// change changes the state under the mutex, and then signals ready if messages may be delivered.
func (s *Slots) change(f func(now time.Duration)) {
	s.mu.Lock()
	f(base.Now())
	ready := s.seq.Counts().Ready > 0
	s.mu.Unlock()
	if ready {
		base.Signal(s.ready)
	}
}

// reassign changes which slots are owned, and recalls messages of slots that are being returned or were lost.
func (s *Slots) reassign(f func(now time.Duration)) {
	fewer := false
	s.change(func(now time.Duration) {
		before := len(s.reb.Owned())
		f(now)
		fewer = len(s.reb.Owned()) < before
	})
	if fewer {
		base.Signal(s.recalled)
	}
}

// Next makes leases of deliverable messages. Leases that no reader may get are settled.
func (s *Slots) Next(n int) (b Batch) {
	for any := n > 0; any && len(b.Leases) == 0; { // no reader may get those; others may be ready behind them
		b, any = s.next(n)
	}
	return b
}

// next is like Next, but might return no lease although there are messages. any is false if there is no message.
func (s *Slots) next(n int) (b Batch, any bool) {
	list, ends := s.Deliver(min(n, s.cfg.Prefetch))
	if len(list) == 0 {
		return Batch{}, false
	}
	rows, size := make([]table.Claimed, len(list)), 0
	for i := range list {
		rows[i] = rowOf(&list[i])
		size += len(rows[i].Body)
	}
	s.cfg.Holder.Claimed(rows)
	leases := s.cfg.leases(rows, ends, base.Now()+s.cfg.MaxExtend)
	all := slices.Clone(leases)
	for i, l := range leases {
		l.Delivery, l.Message = list[i].Fence, list[i].Message
		switch d := &list[i]; {
		case d.Expired:
			s.cfg.deadLetter(l, &rows[i], sqlbatch.CauseExpired, base.ReasonExpired)
		case rows[i].Unread != nil:
			l.Take(lease.Nack)
			s.cfg.blame(l, &rows[i], rows[i].Unread, s.cfg.UsefulTimeout())
		case d.Crashed:
			s.cfg.deadLetter(l, &rows[i], sqlbatch.CauseKilled, killed(&rows[i]))
		}
	}
	b, aside := split(Batch{leases, rows})
	s.cfg.Holder.Track(all) // from here on each of them might end
	s.pace.drop(len(aside))
	if len(aside) > 0 {
		s.cfg.Holder.SettleAll(aside...)
	}
	s.pace.claimed.Add(int64(len(list)))
	s.cfg.Holder.Delivered(len(list), size, time.Duration(s.took.Swap(0)))
	return b, true
}

// rowOf converts a message that is delivered, or dead-lettered instead, to a row of a claim.
func rowOf(d *order.Delivery) table.Claimed {
	row := table.Claimed{Item: sqlbatch.Item{ID: d.ID, Fence: d.Message.Fence}, Expired: d.Expired}
	row.Attempts, row.Lapses, row.OrderKey = d.Attempts, d.Lapses, d.Key() // all that is known of a crashed message
	if in, ok := d.Contents.(*table.Row); ok {
		row.Row = *in
	}
	return row
}

// Deliver returns up to n deliverable messages, in order, and when their leases end. The caller must have Changed
// called when each lease ends.
func (s *Slots) Deliver(n int) (list []order.Delivery, ends time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Under the mutex: messages of another term follow only after the loss of the slots
	term, ends, lasts := s.membership.Current()
	if !lasts || term != s.term {
		return nil, 0
	}
	return s.seq.Deliver(n, base.Now()), ends
}

func (s *Slots) Waiting() int              { return s.Counts().Ready }
func (s *Slots) Ready() <-chan struct{}    { return s.ready }
func (s *Slots) Recalled() <-chan struct{} { return s.recalled }

// Recall reports a lease of a slot that is being returned or is lost. A key has at most one lease, so the order is
// kept.
func (s *Slots) Recall(l *lease.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq.Leaving(l.Message)
}

// Rest returns nil: messages in memory are not leased.
func (s *Slots) Rest() []*lease.Lease { return nil }

// Changed processes state changes of leases: see lease.Owner.
func (s *Slots) Changed(leases []*lease.Lease) {
	s.change(func(now time.Duration) {
		for _, l := range leases {
			if o, until, ended := ending(l); ended && l.Message != nil {
				s.seq.Settled(l.Message, l.Delivery, o, until, now)
			}
		}
	})
	s.pace.Progress()
}

// ending returns how a lease ended, if it has ended or is in a transaction.
func ending(l *lease.Lease) (o order.Outcome, until time.Duration, ended bool) {
	switch l.State() {
	case lease.InTx:
		return order.InTx, l.Period.Deadline(), true
	case lease.Expired, lease.Lost:
		return order.Unknown, 0, true
	case lease.Settled:
		switch err := l.Outcome(); {
		case err == lease.ErrSettled, err == nil && l.Op == lease.Ack:
			return order.Acked, 0, true
		case err != nil:
			return order.Unknown, 0, true
		case l.Op == lease.Dead:
			return order.Dead, 0, true
		}
		return order.Given, base.Now() + l.Rare.Read().Delay, true
	}
	return order.Unknown, 0, false
}

// Returned triggers an immediate lookup of a message that was acked in a transaction, because its handler has returned.
func (s *Slots) Returned(l *lease.Lease) {
	s.change(func(now time.Duration) {
		s.seq.Settled(l.Message, l.Delivery, order.Returned, 0, now)
	})
	s.pace.Progress()
}

// Awaited reports whether other messages wait for the end of a lease.
func (s *Slots) Awaited(l *lease.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.Message != nil && s.seq.Awaited(l.Message)
}

// PolicyChanged applies the new policy of the queue: whether dead messages hold their keys, and how many keys of each
// slot may be active at the same time.
func (s *Slots) PolicyChanged() {
	holds := s.cfg.Queue.Policy().Holds
	s.change(func(now time.Duration) { s.seq.SetPolicy(holds, s.cfg.keys, now) })
}

// Counts returns what is in memory.
func (s *Slots) Counts() order.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq.Counts()
}

// Owned returns the slots that are read, in ascending order. The result is not nil.
func (s *Slots) Owned() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned := s.reb.Owned()
	slots := make([]int, len(owned))
	for i, o := range owned {
		slots[i] = o.Slot
	}
	return slots
}

// Hurry makes the consumer check all slots soon.
func (s *Slots) Hurry() {
	s.mu.Lock()
	s.reb.Hurry(base.Now())
	s.mu.Unlock()
	s.pace.Progress()
}

// End makes further Steps return all slots and take no more.
func (s *Slots) End() { s.reassign(s.reb.End) }

// Empty reports whether no slot is owned.
func (s *Slots) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reb.Empty()
}

// lasts reports whether the membership of the last statement has not ended.
func (s *Slots) lasts() bool {
	term, _, lasts := s.membership.Current()
	return lasts && term == s.term
}

// rests reports whether nothing is due in the owned slots: all of them were read, nothing is delivered, and all known
// messages wait for a time, or are held by a dead message. Slots without an owner have to be taken first.
func (s *Slots) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lasts() && s.reb.Settled() && s.seq.Rests(base.Now())
}
