package lease

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Outcomes of a settle that is not stored.
var (
	ErrLost    = errors.New("chanq: lease lost")
	ErrSettled = errors.New("chanq: lease already settled")
	// ErrStopped is the cause of the end of contexts when the time to drain is over.
	ErrStopped = errors.New("chanq: consumer stopped, and its time to drain is over")
	// ErrHidden: a first try may have been applied, and what happened since hides whether it was.
	ErrHidden = errors.New("the connection broke during the first try, and the message has moved on since")
)

var errInTx = errors.New("chanq: wait: the message was acked in the caller's transaction; its commit is the outcome")

// State is a state of a lease: see the package comment.
type State uint32

const (
	Held State = iota
	Expired
	InTx
	Settling
	Settled
	Lost
)

// Op is a way to settle a lease.
type Op uint8

const (
	Ack Op = iota
	Nack
	Snooze // given back uncounted, but for later, as by a nack
	Release
	Dead
)

func (op Op) String() string {
	return [...]string{"ack", "nack", "release", "release", "dead-letter"}[op]
}

// Owner has leases: a consumer.
type Owner interface {
	// Settle takes over a lease in state Settling, and calls Finish on it later. An error means that it never will:
	// batch.ErrClosed, or the cause of the end of ctx, within which it waits for room.
	Settle(ctx context.Context, l *Lease) error
	// Extend asks the database, once, and notes the new deadline.
	Extend(ctx context.Context, l *Lease, d time.Duration) (held bool, err error)
	// Expire is called when the time of a lease whose context is in use ran out. A lease that is held has expired then.
	Expire(l *Lease)
	// Expedite is called when a caller waits for a settle that was handed over.
	Expedite()
	// Changed is called after each change of the state of leases: they are in a transaction, expired, lost or settled. It is
	// called once for a group of settles.
	Changed(leases ...*Lease)
}

// Home is what the leases of one Owner share.
type Home struct {
	Owner  Owner
	Parent context.Context // of the contexts of leases
	Of     any             // what they belong to for who made the Owner

	contexts contexts
}

// Lease is one delivery. Place is of the writer of settles.
type Lease struct {
	batch.Place

	Home     *Home
	Item     sqlbatch.Item
	Due      int64 // Unix ms by the database: with Priority the place in the table
	Attempt  int   // the claims that count, this one included
	Lapses   int   // leases before this one, in a row, that ran out
	Heavy    int   // bytes of its body if they are HeavyBody or more, else 0
	Message  *order.Message
	Delivery int64 // of an ordered queue: the fence that the reader sees; Item has the stored one
	Priority int8
	Suspect  bool       // its message may be one that ends processes
	Extend   *Extension // of the goroutine that extends leases; nil before the first extension

	// Written by who begins a settle, before the state is Settling or the settle is handed over.
	Settlement
	Quiet     bool // Text may have parts of the body: it is for the table only
	Uncounted bool // it is dead-lettered by the claim that found it, which was no attempt
	inTx      bool // it was acked in a transaction before: that it is gone is no loss
	seen      bool // it was, and only its row shows the commit

	// Of who stores the settle.
	MaybeApplied bool // a transaction of a pipe may have been applied
	Locked       bool // its row was found locked

	Period     Period
	Number     Number
	About      atomic.Value // of who made the Owner: the message, of a lease that may be dead-lettered
	RolledBack atomic.Bool  // it is InTx, and its transaction was rolled back
	ByTx       bool         // it is settled by the commit of its transaction

	state atomic.Uint32
	ended atomic.Bool
	err   error                         // outcome; written before the state is Settled
	done  atomic.Pointer[chan struct{}] // closed when settled or lost; made by the first Wait
	ctx   ownContext
}

// Settlement is what a settle does with a message.
type Settlement struct {
	Op    Op
	Delay time.Duration // until the message is due again
	Text  string
	Cause sqlbatch.Cause // of its death, if this settle is the end of the message; 0: the last attempt failed
}

// HeavyBody is how many bytes of a body make a lease heavy: more than almost all messages have, and written in a moment.
const HeavyBody = 4 << 20

// Extension is a lease in the writer of extensions.
type Extension struct {
	batch.Place

	Lease   *Lease
	Pending atomic.Bool // it is in the writer
}

// State returns the state.
func (l *Lease) State() State { return State(l.state.Load()) }

func (l *Lease) move(from, to State) bool {
	return l.state.CompareAndSwap(uint32(from), uint32(to))
}

// Settle hands the lease to its owner, to be settled. If ctx ends before there is room for the settle, the lease is what it
// was.
func (l *Lease) Settle(ctx context.Context, how Settlement) error {
	for {
		switch s := l.State(); s {
		case Held, Expired, InTx:
			if !l.move(s, Settling) {
				continue
			}
			l.Settlement, l.inTx = how, s == InTx
			switch err := l.Home.Owner.Settle(ctx, l); err {
			case nil:
				return nil
			case batch.ErrClosed:
				Finish([]*Lease{l}, []error{err})
				return err
			default:
				l.state.Store(uint32(s))
				return err
			}
		case Lost:
			return ErrLost
		default:
			return ErrSettled
		}
	}
}

// Take takes a lease for a settle of chanq's own: no one else may settle it then. The time of the lease may run out at
// the same moment: then it has expired here, but the database may know it still.
func (l *Lease) Take(op Op) bool {
	for {
		s := l.State()
		if s != Held && s != Expired {
			return false
		}
		if l.move(s, Settling) {
			l.Op = op
			return true
		}
	}
}

// TakeAll takes leases as Take does, and returns those that it got.
func TakeAll(leases []*Lease, op Op) (taken []*Lease) {
	for _, l := range leases {
		if l.Take(op) {
			taken = append(taken, l)
		}
	}
	return taken
}

// DeadLetter takes a lease that no reader has seen, to be dead-lettered, unless it has ended. Its claim was no attempt.
func (l *Lease) DeadLetter(cause sqlbatch.Cause, reason string) {
	if l.Take(Dead) {
		l.Cause, l.Text, l.Uncounted = cause, reason, true
		l.Attempt--
	}
}

// Revoke takes a held lease from its reader, who has lost it, and returns one in its place that is to be released, or nil if the lease
// is no longer held. The owner is not called: the lease in its place is held now.
func (l *Lease) Revoke() *Lease {
	if !l.move(Held, Lost) {
		return nil
	}
	l.ended.Store(true)
	l.ctx.lost(l.Home)
	l.wake()
	r := &Lease{
		Home: l.Home, Item: l.Item, Due: l.Due, Priority: l.Priority, Attempt: l.Attempt, Lapses: l.Lapses,
		Message: l.Message, Delivery: l.Delivery, Suspect: l.Suspect, Settlement: Settlement{Op: Release},
	}
	r.Period.Begin(l.Period.Deadline(), l.Period.Until())
	r.state.Store(uint32(Settling))
	return r
}

// Failures is how many attempts have failed, if this one did. A handler that returns clears its message: the leases before
// that ran out were not its doing, and count no more.
func (l *Lease) Failures() int { return l.Attempt - l.Lapses }

// Finish gives leases of one owner the outcomes of their settles, and wakes the calls that wait for them.
func Finish(leases []*Lease, outcomes []error) {
	if len(leases) == 0 {
		return
	}
	for i, l := range leases {
		l.err, l.Text = outcomes[i], "" // somebody may keep the lease, and its slab, for long
		l.state.Store(uint32(Settled))
		l.endContext()
	}
	leases[0].Home.Owner.Changed(leases...)
	for _, l := range leases {
		l.wake()
	}
}

// Lose moves a lease that is not being settled to Lost or Expired.
func (l *Lease) Lose(to State) bool {
	if !l.move(Held, to) && !(to == Lost && l.move(Expired, to)) {
		return false
	}
	l.changed(to)
	return true
}

// EnterTx ends the extension of a lease, whose row a transaction is to hold.
func (l *Lease) EnterTx() error {
	for {
		s := l.State()
		if err := s.NotHeld(); err != nil {
			return err
		}
		if l.move(s, InTx) {
			l.RolledBack.Store(false)
			l.Home.Owner.Changed(l)
			return nil
		}
	}
}

// Committed notes that the transaction of leases of one owner has acked their messages and is committed. seen says that only their rows
// showed that: the call of the commit may still hang, and must end with the context of its lease. It takes over the slice, and returns the
// leases that were in that transaction.
func Committed(leases []*Lease, seen bool) []*Lease {
	leases = slices.DeleteFunc(leases, func(l *Lease) bool {
		return !l.move(InTx, Settling) // a settle is under way, which finds the message gone
	})
	for _, l := range leases {
		l.Op, l.ByTx, l.seen = Ack, true, seen
	}
	Finish(leases, make([]error, len(leases)))
	return leases
}

// LoseInTx notes that the transaction has not found the message.
func (l *Lease) LoseInTx() {
	if l.move(InTx, Lost) {
		l.changed(Lost)
	}
}

// changed ends the context of a lease that has moved to Expired or Lost, calls the owner, and wakes the calls that wait. The lease may have
// moved on meanwhile.
func (l *Lease) changed(to State) {
	l.ctx.lost(l.Home)
	l.Home.Owner.Changed(l)
	if to == Lost {
		l.wake()
	}
}

// NotHeld says why a lease of this state cannot be acked in a transaction.
func (s State) NotHeld() error {
	switch s {
	case Held, Expired, InTx:
		return nil
	case Lost:
		return ErrLost
	}
	return ErrSettled
}

// End reports, once, that the lease is no longer held: it is settled, in a transaction, expired or lost. Its owner calls it.
func (l *Lease) End() bool { return l.ended.CompareAndSwap(false, true) }

// Ended reports that End was called.
func (l *Lease) Ended() bool { return l.ended.Load() }

// wake wakes those who wait for the outcome.
func (l *Lease) wake() {
	if done := l.done.Load(); done != nil {
		close(*done)
	}
}

// Awaited reports that somebody waits for the outcome.
func (l *Lease) Awaited() bool { return l.done.Load() != nil }

// Gone reports that the lease ran out or was lost while it lay in a buffer.
func (l *Lease) Gone() bool {
	switch l.State() {
	case Held:
		return base.Now() >= l.Period.Deadline()
	case Expired, Lost:
		return true
	}
	return false
}

// Wait returns the outcome of the settle. It waits until the lease is settled or lost, or ctx ends.
func (l *Lease) Wait(ctx context.Context) error {
	if l.done.Load() == nil {
		done := make(chan struct{})
		l.done.CompareAndSwap(nil, &done)
	}
	// A settle that finished before it could see done is seen here.
	switch l.State() {
	case Settled, Lost:
		return l.Outcome()
	case InTx:
		return errInTx
	}
	l.Home.Owner.Expedite()
	select {
	case <-*l.done.Load():
		return l.Outcome()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Outcome is that of a lease that is settled or lost.
func (l *Lease) Outcome() error {
	if l.State() == Lost {
		return ErrLost
	}
	return l.err
}

// ExtendBy makes the lease last at least d from now.
func (l *Lease) ExtendBy(ctx context.Context, d time.Duration) error {
	switch l.State() {
	case Lost:
		return ErrLost
	case Settling, Settled, InTx:
		return ErrSettled
	}
	held, err := l.Home.Owner.Extend(ctx, l, d)
	if err != nil {
		return err
	}
	if !held {
		if l.Lose(Lost) || l.State() == Lost {
			return ErrLost
		}
		return ErrSettled // meanwhile, by another goroutine
	}
	l.move(Expired, Held)
	return nil
}
