package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Errors of leases. ErrLost, ErrSettled and ErrHidden are outcomes of a settle that is not stored.
var (
	ErrLost    = errors.New("chanq: lease lost")
	ErrSettled = errors.New("chanq: lease already settled")
	// ErrCancelled is the ErrLost of a lease whose message was deleted while its holder worked on it.
	ErrCancelled = fmt.Errorf("%w: its message was cancelled", ErrLost)
	// ErrStopped is the cause of contexts that end when the time to drain is over.
	ErrStopped = errors.New("chanq: consumer stopped, and its time to drain is over")
	// ErrHidden means that a first try might have been applied, and later changes of the row hide whether it was.
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
	Snooze // released uncounted, with a delay like that of a nack
	Release
	Dead
)

func (op Op) String() string {
	return [...]string{"ack", "nack", "release", "release", "dead-letter"}[op]
}

// Owner is the consumer that has the leases.
type Owner interface {
	// Settle takes over a lease in state Settling, and calls Finish on it later. It waits for room until ctx ends.
	// After an error Finish is never called: batch.ErrClosed, or the cause of ctx.
	Settle(ctx context.Context, l *Lease) error
	// Extend makes one attempt to extend the lease in the database, and notes the new deadline.
	Extend(ctx context.Context, l *Lease, d time.Duration) (held bool, err error)
	// Expire is called at the deadline of a lease whose context is in use. It moves a held lease to Expired.
	Expire(l *Lease)
	// Expedite is called when a caller waits for a settle that the owner has taken over.
	Expedite()
	// Changed is called after leases have moved to InTx, Expired, Lost or Settled. It is called once for a batch of
	// settles.
	Changed(leases ...*Lease)
}

// Home is what the leases of one Owner share.
type Home struct {
	Owner  Owner
	Parent context.Context // of the contexts of leases
	Of     any             // set by the creator of the Owner: what the leases belong to

	contexts contexts
}

// Lease is one delivery. Its Place is for the writer of settles.
type Lease struct {
	batch.Place

	Home     *Home
	Item     sqlbatch.Item
	Due      int64 // Unix ms by the database's clock; with Priority, the place in the table
	Attempt  int32 // number of the claims that count, including this one
	Lapses   int32 // number of expired leases in a row before this one
	Message  *order.Message
	Delivery int64 // of an ordered queue: the fence that the reader sees; Item has the stored one
	Period   Period
	Number   Number
	Rare     Rare
	Priority int8

	// Written by the caller that begins a settle, before the state is Settling or the settle is handed over.
	Op   Op
	inTx bool // it was acked in a transaction before: if the row is gone, it is not lost

	ByTx       bool        // it is settled by the commit of its transaction
	RolledBack atomic.Bool // it is InTx, and its transaction was rolled back

	ended atomic.Bool
	state atomic.Uint32
	done  atomic.Pointer[chan struct{}] // closed when settled or lost; stored by the first Wait, or at the end
	ctx   ownContext
}

// Rare makes the Details of a lease when one of them is written: most leases have none.
type Rare struct{ made atomic.Pointer[Details] }

// Details are what few leases need.
type Details struct {
	// Written like Op of the lease.
	Settlement
	Quiet     bool // Text might have parts of the body: it is for the table only
	Uncounted bool // it is dead-lettered by the claim that found it, which does not count as an attempt

	MaybeApplied bool // a transaction of a pipe might have been applied; written by the writer that stores the settle

	Heavy  int          // size of the body in bytes if it is HeavyBody or more, else 0
	Extend *Extension   // of the goroutine that extends leases; nil before the first extension
	About  atomic.Value // set by the creator of the Owner: the message of a lease that might be dead-lettered

	err error // outcome; written before the state is Settled
}

// none are the details of a lease that has none.
var none Details

// Read returns the details, which must not be written.
func (s *Rare) Read() *Details {
	if made := s.made.Load(); made != nil {
		return made
	}
	return &none
}

// Write returns the details, to be written.
func (s *Rare) Write() *Details {
	if s.made.Load() == nil {
		s.made.CompareAndSwap(nil, &Details{})
	}
	return s.made.Load()
}

// Settlement is what a settle does with a message, apart from its Op. The zero value suits an Ack and a Release.
type Settlement struct {
	Delay time.Duration // until the message is due again
	Took  time.Duration // by the handler; 0: not known
	Text  string
	Cause sqlbatch.Cause // why the message is dead-lettered, if this settle does so; 0: its last attempt failed
}

// HeavyBody is the size in bytes from which a body makes its lease heavy: larger than almost all bodies, but written
// quickly.
const HeavyBody = 4 << 20

// Extension is a lease in the writer of extensions.
type Extension struct {
	batch.Place

	Lease   *Lease
	Pending atomic.Bool // the writer has it
}

// State returns the state.
func (l *Lease) State() State { return State(l.state.Load()) }

func (l *Lease) move(from, to State) bool {
	return l.state.CompareAndSwap(uint32(from), uint32(to))
}

// Settle passes the lease to its owner, to be settled. If ctx ends before there is room for the settle, the lease keeps
// its state.
func (l *Lease) Settle(ctx context.Context, op Op, how Settlement) error {
	for {
		switch s := l.State(); s {
		case Held, Expired, InTx:
			if !l.move(s, Settling) {
				continue
			}
			l.Op, l.inTx = op, s == InTx
			// The details might be those of a settle that was refused.
			if op != Ack && op != Release || l.Rare.Read() != &none {
				l.Rare.Write().Settlement = how
			}
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
			return l.ctx.loss()
		default:
			return ErrSettled
		}
	}
}

// Take takes a lease for a settle by chanq itself, after which no caller can settle it. It also takes an expired lease:
// the deadline might pass at the same moment, and the database might still have the lease.
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

// TakeAll calls Take for each lease, and returns the leases that it took.
func TakeAll(leases []*Lease, op Op) (taken []*Lease) {
	for _, l := range leases {
		if l.Take(op) {
			taken = append(taken, l)
		}
	}
	return taken
}

// DeadLetter takes a lease that no reader has seen, to be dead-lettered, unless it has ended. Its claim does not count
// as an attempt.
func (l *Lease) DeadLetter(cause sqlbatch.Cause, reason string) {
	if l.Take(Dead) {
		d := l.Rare.Write()
		d.Cause, d.Text, d.Uncounted = cause, reason, true
		l.Attempt--
	}
}

// Revoke moves a held lease to Lost, and returns a new one in its place that is to be released, or nil if the lease is
// not held. The owner is not called, because it now has the new lease.
func (l *Lease) Revoke() *Lease {
	if !l.move(Held, Lost) {
		return nil
	}
	l.ended.Store(true)
	l.ctx.lost(l.Home, ErrLost)
	l.wake()
	r := &Lease{
		Home: l.Home, Item: l.Item, Due: l.Due, Priority: l.Priority, Attempt: l.Attempt, Lapses: l.Lapses,
		Message: l.Message, Delivery: l.Delivery, Op: Release,
	}
	r.Period.Begin(l.Period.Deadline(), l.Period.Until())
	r.state.Store(uint32(Settling))
	return r
}

// Failures returns how many attempts have failed, if this one did. A handler that returns clears its message: the
// leases that expired before were not its fault, and do not count.
func (l *Lease) Failures() int { return int(l.Attempt - l.Lapses) }

// Finish sets the outcomes of the settles of one owner's leases, and wakes the calls that wait for them.
func Finish(leases []*Lease, outcomes []error) {
	if len(leases) == 0 {
		return
	}
	for i, l := range leases {
		if outcomes[i] != nil { // nothing else changes: a statement that was given up might still read the settlement
			l.Rare.Write().err = outcomes[i]
		}
		l.state.Store(uint32(Settled))
		l.endContext()
	}
	leases[0].Home.Owner.Changed(leases...)
	for _, l := range leases {
		l.wake()
	}
}

// Lose moves a held lease to Lost or Expired, or an expired one to Lost. It reports whether it did.
func (l *Lease) Lose(to State) bool {
	if !l.move(Held, to) && !(to == Lost && l.move(Expired, to)) {
		return false
	}
	l.changed(to)
	return true
}

// EnterTx moves a lease to InTx, before a transaction locks its row. The lease is then not extended.
func (l *Lease) EnterTx() error {
	for {
		s := l.State()
		if err := NotHeld(l); err != nil {
			return err
		}
		if l.move(s, InTx) {
			l.RolledBack.Store(false)
			if l.ctx.with.Load() != nil {
				(*Context)(l).made() // nothing else ends the context of its call
			}
			l.Home.Owner.Changed(l)
			return nil
		}
	}
}

// Committed settles leases of one owner whose messages were acked by a transaction that is committed. It takes over the
// slice, and returns the leases that were in the transaction.
func Committed(leases []*Lease) []*Lease {
	leases = slices.DeleteFunc(leases, func(l *Lease) bool {
		return !l.move(InTx, Settling) // a settle is under way, which finds the message gone
	})
	for _, l := range leases {
		l.Op, l.ByTx = Ack, true
	}
	Finish(leases, make([]error, len(leases)))
	return leases
}

// LoseInTx moves a lease from InTx to Lost, because its transaction did not find the message.
func (l *Lease) LoseInTx() {
	if l.move(InTx, Lost) {
		l.changed(Lost)
	}
}

// changed ends the context of a lease that has moved to Expired or Lost, calls the owner, and wakes the calls that
// wait. The state of the lease might have changed again.
func (l *Lease) changed(to State) {
	l.ctx.lost(l.Home, l.ctx.loss())
	l.Home.Owner.Changed(l)
	if to == Lost {
		l.wake()
	}
}

// NotHeld returns why a lease cannot be acked in a transaction, or nil if it can.
func NotHeld(l *Lease) error {
	switch l.State() {
	case Held, Expired, InTx:
		return nil
	case Lost:
		return l.ctx.loss()
	}
	return ErrSettled
}

// End returns true on its first call. The owner calls it when the lease is not held any more: settled, in a
// transaction, expired or lost.
func (l *Lease) End() bool { return l.ended.CompareAndSwap(false, true) }

// Ended reports whether End was called.
func (l *Lease) Ended() bool { return l.ended.Load() }

// past is the channel of leases that ended before anyone waited.
var past = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wake wakes the calls that wait for the outcome, once, after the owner has processed it.
func (l *Lease) wake() {
	if !l.done.CompareAndSwap(nil, &past) {
		close(*l.done.Load())
	}
}

// Awaited reports whether Wait was called.
func (l *Lease) Awaited() bool { return l.done.Load() != nil }

// Gone reports whether a buffered lease has expired or was lost.
func (l *Lease) Gone() bool {
	switch l.State() {
	case Held:
		return base.Now() >= l.Period.Deadline()
	case Expired, Lost:
		return true
	}
	return false
}

// Wait returns the outcome of the settle. It waits until the lease is settled or lost and the owner has processed that,
// or ctx ends.
func (l *Lease) Wait(ctx context.Context) error {
	if l.done.Load() == nil {
		done := make(chan struct{})
		l.done.CompareAndSwap(nil, &done)
	}
	switch l.State() {
	case Settled, Lost:
	case InTx:
		return errInTx
	default:
		l.Home.Owner.Expedite()
	}
	select {
	case <-*l.done.Load(): // also if ctx has ended
		return l.Outcome()
	default:
	}
	select {
	case <-*l.done.Load():
		return l.Outcome()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Outcome returns the outcome of a lease that is settled or lost.
func (l *Lease) Outcome() error {
	if l.State() == Lost {
		return l.ctx.loss()
	}
	return l.Rare.Read().err
}

// ExtendBy extends the lease to at least d from now.
func (l *Lease) ExtendBy(ctx context.Context, d time.Duration) error {
	switch l.State() {
	case Lost:
		return l.ctx.loss()
	case Settling, Settled, InTx:
		return ErrSettled
	}
	held, err := l.Home.Owner.Extend(ctx, l, d)
	if err != nil {
		return err
	}
	if !held {
		if l.Lose(Lost) || l.State() == Lost {
			return l.ctx.loss()
		}
		return ErrSettled // by another goroutine in the meantime
	}
	switch {
	case l.Message == nil:
		l.move(Expired, Held)
	case l.State() == Expired: // meanwhile: its message is being made ready again
		l.Lose(Lost)
		return ErrLost
	}
	return nil
}
