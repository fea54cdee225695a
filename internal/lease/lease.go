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
	Op        Op
	Quiet     bool // Text may have parts of the body: it is for the table only
	Uncounted bool // it is dead-lettered by the claim that found it, which was no attempt
	inTx      bool // it was acked in a transaction before: that it is gone is no loss
	seen      bool // it was, and only its row shows the commit
	Delay     time.Duration
	Text      string
	Cause     sqlbatch.Cause // of its death, if this settle is the end of the message; 0: the last attempt failed

	// Of who stores the settle.
	MaybeApplied bool // a transaction of a pipe may have been applied
	Locked       bool // its row was found locked

	Number     atomic.Int64 // on the channel of its consumer, from 1; 0: it was not put there
	About      atomic.Value // of who made the Owner: the message, of a lease that may be dead-lettered
	RolledBack atomic.Bool  // it is InTx, and its transaction was rolled back
	ByTx       bool         // it is settled by the commit of its transaction

	deadline atomic.Int64 // of base.Now
	until    atomic.Int64 // end of automatic extension
	state    atomic.Uint32
	ended    atomic.Bool

	err  error                         // outcome; written before the state is Settled
	done atomic.Pointer[chan struct{}] // closed when settled or lost; made by the first Wait
	ctx  atomic.Pointer[cancellable]   // made by the first use of its context
	with atomic.Pointer[together]      // the leases that are handled by the same call, or nil
}

// HeavyBody is how many bytes of a body make a lease heavy: more than almost all messages have, and written in a moment.
const HeavyBody = 4 << 20

// Extension is a lease in the writer of extensions.
type Extension struct {
	batch.Place

	Lease   *Lease
	Pending atomic.Bool // it is in the writer
}

// Begin gives a new lease its deadline, and the end of automatic extension.
func (l *Lease) Begin(deadline, until time.Duration) {
	l.deadline.Store(int64(deadline))
	l.until.Store(int64(until))
}

// After is when a lease of d that was asked for at start is over here at the latest. Databases count in milliseconds and
// may round down: without the millisecond that is taken off, this process could believe in its lease longer than they do.
func After(start, d time.Duration) time.Duration { return start + d - base.Tolerance }

// Deadline is when the lease ends here unless it is extended.
func (l *Lease) Deadline() time.Duration { return time.Duration(l.deadline.Load()) }

// Until is when automatic extension ends.
func (l *Lease) Until() time.Duration { return time.Duration(l.until.Load()) }

// Prolong notes that the database has the lease until end at least.
func (l *Lease) Prolong(end time.Duration) { raise(&l.deadline, end) }

// KeepUntil has the lease extended until end at least.
func (l *Lease) KeepUntil(end time.Duration) { raise(&l.until, end) }

// Waits reports that no reader has the lease, of a consumer whose readers have taken so many from its channel.
func (l *Lease) Waits(taken int64) bool {
	n := l.Number.Load()
	return n == 0 || n > taken
}

// raise sets t to at, unless it is later.
func raise(t *atomic.Int64, at time.Duration) {
	for was := t.Load(); was < int64(at) && !t.CompareAndSwap(was, int64(at)); was = t.Load() {
	}
}

// State returns the state.
func (l *Lease) State() State { return State(l.state.Load()) }

func (l *Lease) move(from, to State) bool {
	return l.state.CompareAndSwap(uint32(from), uint32(to))
}

// Settle hands the lease to its owner, to be settled. If ctx ends before there is room for the settle, the lease is what it
// was.
func (l *Lease) Settle(ctx context.Context, op Op, delay time.Duration, text string) error {
	return l.settle(ctx, op, delay, text, 0)
}

// Reject is Settle for a dead letter of this cause.
func (l *Lease) Reject(ctx context.Context, cause sqlbatch.Cause, text string) error {
	return l.settle(ctx, Dead, 0, text, cause)
}

func (l *Lease) settle(ctx context.Context, op Op, delay time.Duration, text string, cause sqlbatch.Cause) error {
	for {
		switch s := l.State(); s {
		case Held, Expired, InTx:
			if !l.move(s, Settling) {
				continue
			}
			l.Op, l.Delay, l.Text, l.Cause, l.inTx = op, delay, text, cause, s == InTx
			switch err := l.Home.Owner.Settle(ctx, l); err {
			case nil:
				return nil
			case batch.ErrClosed:
				Finish(l.Home.Owner, []*Lease{l}, []error{err})
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
	l.endContexts()
	l.wake()
	r := &Lease{
		Home: l.Home, Item: l.Item, Due: l.Due, Priority: l.Priority, Attempt: l.Attempt, Lapses: l.Lapses,
		Message: l.Message, Delivery: l.Delivery, Suspect: l.Suspect, Op: Release,
	}
	r.Begin(l.Deadline(), l.Until())
	r.state.Store(uint32(Settling))
	return r
}

// Failures is how many attempts have failed, if this one did. A handler that returns clears its message: the leases before
// that ran out were not its doing, and count no more.
func (l *Lease) Failures() int { return l.Attempt - l.Lapses }

// Finish gives leases of one owner the outcomes of their settles, and wakes the calls that wait for them.
func Finish(owner Owner, leases []*Lease, outcomes []error) {
	for i, l := range leases {
		l.err, l.Text = outcomes[i], "" // somebody may keep the lease, and its slab, for long
		l.state.Store(uint32(Settled))
		l.endContext()
	}
	owner.Changed(leases...)
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
	if len(leases) > 0 {
		Finish(leases[0].Home.Owner, leases, make([]error, len(leases)))
	}
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
	l.endContexts()
	l.Home.Owner.Changed(l)
	if to == Lost {
		l.wake()
	}
}

// endContexts ends the context of the lease, and that of the call that handles it together with others.
func (l *Lease) endContexts() {
	l.cancel()
	if t := l.with.Load(); t != nil {
		t.cancel(ErrLost)
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
		return base.Now() >= l.Deadline()
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
