package chanq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Lease is a message that this process holds for a while. Settle it once, by
// Ack, Nack, Release, DeadLetter or AckTx; a consumer extends it until then.
// Its methods are safe for concurrent use; its fields are the reader's.
//
// Leases come from a Consumer. One that a test has made by hand can be given
// to a handler, and Outcome tells what Consumer.Handle would do: its own methods return
// an error, its Context does not end, and its Deadline is the zero time.
type Lease[T any] struct {
	Message[T]
	// Queue is the queue that the message is in: Config.Label, or its name.
	Queue string
	// Attempt counts the claims of this message, this one included, that were
	// deliveries or may have been: one that was given back undelivered (Release, Stop)
	// does not count, one whose process died with the message in its buffer does, until
	// a Nack: who nacks was not killed, so the lapses before it, leases in a row that ran
	// out without a settle, count no more. It may exceed Config.MaxAttempts: see there.
	Attempt int
	// Fence grows with every claim of this message, and no two claims of it have the
	// same, even if the message is sent again, or the database is restored. Hand it to
	// another system with what you write there, and have that refuse a fence lower than
	// one it has seen: then a holder whose lease ended cannot overwrite the work of the
	// next.
	Fence int64
	// EnqueuedAt and DueAt are times of the database's clock, in milliseconds, and so
	// is ExpiresAt, when the message's TTL is over; zero if it has none. A lease that
	// began before goes on.
	EnqueuedAt, DueAt, ExpiresAt time.Time

	lease *lease
}

// Context ends, with the cause ErrLeaseLost, when the lease is known to be lost,
// and at its Deadline at the latest, whatever has become of the consumer or of the
// transaction of AckTx. It does not end with a settle that succeeds, nor with Stop.
// Its values are those of the context given to Consume. Its first use
// costs a timer.
func (l *Lease[T]) Context() context.Context {
	if l.lease == nil {
		return context.Background()
	}
	return (*leaseContext)(l.lease)
}

// Deadline is when the lease ends by this process's clock unless it is
// extended. It is early rather than late: it counts from before the claim was
// sent.
func (l *Lease[T]) Deadline() time.Time {
	if l.lease == nil {
		return time.Time{}
	}
	return base.WallTime(l.lease.deadlineAt())
}

// Ack marks the message as done: it leaves the queue. The settle joins the next
// group; Ack returns at once unless the backlog of settles is full, and costs
// no round trip of its own. Wait tells the outcome. Ack returns ErrLeaseLost
// if the loss is known already, ErrSettled, or ErrClosed after the end of the consumer:
// Shutdown does not wait for a lease that has run out or is in a transaction. After a
// rollback such a message is delivered again when its lease ends. AckAll(ctx, lease) is
// the form that a context bounds, and that returns the outcome of any lease.
func (l *Lease[T]) Ack() error { return l.lease.settle(settleAck, 0, "") }

// Nack gives the message back, due again after delay, with the text of cause
// for operators, of which 2000 bytes are kept; nil keeps the last one. If this was
// its last attempt (Config.MaxAttempts) it is set aside as dead. A negative delay,
// or one of more than a hundred years, is an error, and settles nothing. It returns
// as Ack does.
func (l *Lease[T]) Nack(delay time.Duration, cause error) error {
	if delay < 0 || delay > sqlbatch.MaxDelay {
		return fmt.Errorf("chanq: nack: delay is %v: must be from 0 to %v", delay, sqlbatch.MaxDelay)
	}
	return l.lease.nack(delay, errorText(cause))
}

// Release gives the message back as if it had not been claimed: due at its
// former time, and the attempt does not count. Consumers of this process find it with
// their next claim or look, those of others within a second or so. A reader that releases whatever it
// gets claims it again and again. It returns as Ack does.
func (l *Lease[T]) Release() error { return l.lease.settle(settleRelease, 0, "") }

// ReleaseAfter gives the message back as if it had not been claimed, but for later: due
// delay from now, by the database's clock, behind what is due before. So the attempt
// does not count, and the lapses before it count no more, as after a Nack: see Attempt.
// The message keeps its last error; to give one, return Snooze from a handler. It is for
// what is not the message's fault, a limit of somebody's that is reached, say. A negative
// delay, or one of more than a hundred years, is an error, and settles nothing. It
// returns as Ack does.
//
// No consumer is woken for it, since one that releases whatever it gets would never
// rest: an idle one finds the message at its next poll, which may be
// ConsumerConfig.PollMax (1 s) after it is due. After a Nack those in this process look
// at once, and learn when it is due.
func (l *Lease[T]) ReleaseAfter(delay time.Duration) error {
	if delay < 0 || delay > sqlbatch.MaxDelay {
		return fmt.Errorf("chanq: release: delay is %v: must be from 0 to %v", delay, sqlbatch.MaxDelay)
	}
	return l.lease.settle(settleSnooze, delay, "")
}

// DeadLetter sets the message aside in the dead table, with the text of cause.
// Queue.Redrive makes it ready again. It returns as Ack does.
func (l *Lease[T]) DeadLetter(cause error) error {
	return l.lease.settle(settleDead, 0, errorText(cause))
}

// Wait returns the outcome of the settle: nil only when it is in the database,
// ErrLeaseLost when the lease had ended before, or an *OpError, whose Unknown
// says that the outcome could not be learned. It waits until the lease is
// settled and the outcome known, or ctx ends. On SQLite a goroutine that holds a
// transaction must not call it: see Queue.
func (l *Lease[T]) Wait(ctx context.Context) error { return l.lease.wait(ctx) }

// Extend makes the lease last at least d from now, by the database's clock, in one
// round trip; d is at least 100 ms. It only lengthens: the later end holds. To make a
// lease shorter, settle it by Release or Nack. A consumer extends
// its leases by itself, for ConsumerConfig.MaxExtend; Extend is for more. While somebody has the message's row locked it is repeated, until
// ctx ends. It returns ErrLeaseLost if the lease is lost. After an *OpError that is
// Unknown, Deadline is what it was. A lease that had run out here may be settled again afterwards,
// but its Context stays ended, and the consumer neither extends it nor waits for
// it. On an ordered queue no lease outlives its consumer's membership, which is LeaseFor at
// most: there the consumer extends it, again and again, until d is over.
func (l *Lease[T]) Extend(ctx context.Context, d time.Duration) error {
	if d < minLease || d > sqlbatch.MaxDelay {
		return fmt.Errorf("chanq: extend: d is %v: must be from %v to %v", d, minLease, sqlbatch.MaxDelay)
	}
	return l.lease.extend(ctx, d)
}

// deadlineAfter is when a lease of d, asked for at start, is over here at the
// latest. Databases count in milliseconds and may round down: without the one
// taken off, this process could believe in its lease longer than they do.
func deadlineAfter(start, d time.Duration) time.Duration { return start + d - time.Millisecond }

// leaseState:
//
//	held ──settle──▶ settling ──▶ settled (outcome in err)
//	 │ ▲                ▲
//	 │ └─Extend─ expired┤  its time ran out here; the database may still know it
//	 │                  │
//	 ├──AckTx─▶ inTx ───┘  settle after a rollback
//	 └────────▶ lost       the database says so
type leaseState = uint32

const (
	leaseHeld leaseState = iota
	leaseExpired
	leaseInTx
	leaseSettling
	leaseSettled
	leaseLost
)

type settleOp uint8

const (
	settleAck settleOp = iota
	settleNack
	settleSnooze // given back uncounted, but for later, as by a nack
	settleRelease
	settleDead
)

// leaseOwner has leases: a consumer. A lease, its settler and its keeper
// call back nobody else.
type leaseOwner interface {
	// home is the queue of its leases.
	home() *queue
	// parent of contexts of leases.
	parent() context.Context

	// settle takes over a lease in state settling and calls finish on it, now or
	// later. An error means that it never will: ErrClosed, or the cause of the end of ctx, within which it
	// waits for room.
	settle(context.Context, *lease) error
	// extend asks the database, once, and notes the new deadline.
	extend(ctx context.Context, l *lease, d time.Duration) (held bool, err error)
	// hurry is told that somebody waits for the settle that was handed over.
	hurry()
	// awaits reports whether other messages wait for the settle that is handed over.
	awaits(*lease) bool
	// ended is called once, when the lease is no longer held: it is settled, in a
	// transaction, expired or lost.
	ended(l *lease)
	// moved is called after each change of the state of leases that others of their keys may wait for:
	// they are in a transaction, expired, lost or settled. It is called once for a group of settles. Unlike ended it is
	// called for each change of a lease.
	moved(leases ...*lease)
	// expire is called when the time of a lease whose context is in use ran out. A
	// lease that is held has expired then.
	expire(l *lease)

	// settled is called by the settler for each group that is in the database, with the slots of the messages that
	// were given back.
	settled(e SettledEvent, givenBack slotNames)
	// broken is told by the settler of a permanent error.
	broken(error)
}

// lease is the part of a Lease that knows nothing of T.
type lease struct {
	batch.Place // in the settler's writer

	owner     leaseOwner
	item      sqlbatch.Item
	due       int64 // Unix ms by the database: with the priority its place
	attempt   int   // as Lease.Attempt, which the reader might change
	lapses    int   // before this claim, in a row
	priority  Priority
	entry     *order.Message // of an ordered queue
	delivery  int64          // of an ordered queue: Lease.Fence; item has the stored fence
	suspect   bool           // see claim_careful.go
	heavy     int            // bytes of its body where they are heavyBody or more, else 0
	extension *extension     // nil before the first one; of the keeper's goroutine
	deadline  atomic.Int64   // of monotonic()
	until     atomic.Int64   // end of automatic extension
	state     atomic.Uint32
	isEnded   atomic.Bool
	noted     atomic.Bool // the history counts it as acked in a transaction

	// Written by settle before the state is settling, read by the settler.
	op    settleOp
	inTx  bool // it was acked in a transaction before: that it is gone is no loss
	quiet bool // text may have parts of the body: it is for the table only
	// uncounted: it is set aside by the claim that found it, which was no attempt.
	uncounted bool
	delay     time.Duration
	text      string

	// Of who stores the settle.
	unknown bool // a transaction of a pipe may have been applied
	locked  bool // its row was found locked

	err  error                         // outcome; written before the state is settled
	done atomic.Pointer[chan struct{}] // closed when settled or lost; made by the first Wait
	ctx  atomic.Pointer[cancellable]   // made by the first use of its context
}

func (l *lease) deadlineAt() time.Duration { return time.Duration(l.deadline.Load()) }

func (l *lease) settle(op settleOp, delay time.Duration, text string) error {
	return l.settleWithin(context.Background(), op, delay, text)
}

// settleWithin is settle. If ctx ends before there is room for the settle, the lease is what it was.
func (l *lease) settleWithin(ctx context.Context, op settleOp, delay time.Duration, text string) error {
	if l == nil {
		return errMadeByHand
	}
	for {
		switch s := l.state.Load(); s {
		case leaseHeld, leaseExpired, leaseInTx:
			if !l.state.CompareAndSwap(s, leaseSettling) {
				continue
			}
			l.op, l.delay, l.text, l.inTx = op, delay, text, s == leaseInTx
			switch err := l.owner.settle(ctx, l); err {
			case nil:
				return nil
			case ErrClosed:
				l.finish(err)
				return err
			default:
				l.state.Store(s)
				return err
			}
		case leaseLost:
			return ErrLeaseLost
		default:
			return ErrSettled
		}
	}
}

// beginSettling takes a lease for a settle of chanq's own: no one else may settle it
// then. The keeper may end it at the same time: then it has expired here, but the
// database may know it still.
func (l *lease) beginSettling() bool {
	for {
		s := l.state.Load()
		if s != leaseHeld && s != leaseExpired {
			return false
		}
		if l.state.CompareAndSwap(s, leaseSettling) {
			return true
		}
	}
}

// takeBack makes a release of a lease that no reader has.
func (l *lease) takeBack() bool {
	if !l.beginSettling() {
		return false
	}
	l.op = settleRelease
	return true
}

// nack sets aside after the last attempt.
func (l *lease) nack(delay time.Duration, text string) error {
	if l == nil {
		return errMadeByHand
	}
	return l.settle(l.nackOp(), delay, text)
}

// nackOp is what a failure makes of the message.
func (l *lease) nackOp() settleOp {
	if l.failures() >= l.owner.home().cfg.MaxAttempts {
		return settleDead
	}
	return settleNack
}

// failures is how many attempts have failed, if this one did. A handler that returns
// clears its message: the lapses before it were not its doing, and count no more.
func (l *lease) failures() int { return l.attempt - l.lapses }

// reason is why the message is set aside, as hooks may hear it.
func (l *lease) reason() string {
	if l.quiet {
		return "chanq: cannot decode: last_error of the message says why"
	}
	return discreet(l.text)
}

// lossEvent is what the LeaseLost hook hears.
func (l *lease) lossEvent(confirmed bool) LeaseLostEvent {
	return LeaseLostEvent{Queue: l.owner.home().label, ID: l.item.ID, Attempt: l.attempt, Confirmed: confirmed}
}

// finish records the outcome of a settle, and wakes the calls that wait for it.
func (l *lease) finish(err error) {
	if l.state.Load() == leaseSettled {
		return // by an owner that settles within the call
	}
	l.conclude(err)
	l.owner.moved(l)
}

// conclude is finish of one lease of a group. The owner's moved is to be called after the last one.
func (l *lease) conclude(err error) {
	l.err, l.text = err, "" // somebody may keep the lease, and its slab, for long
	l.state.Store(leaseSettled)
	l.wake()
	l.end()
	l.endContext()
}

// lose moves a lease that is not being settled to lost or expired.
func (l *lease) lose(to leaseState) bool {
	if !l.state.CompareAndSwap(leaseHeld, to) && !(to == leaseLost && l.state.CompareAndSwap(leaseExpired, to)) {
		return false
	}
	if to == leaseLost {
		l.wake()
	}
	l.cancel()
	l.end()
	l.owner.moved(l)
	return true
}

// hasEnded reports that the owner was told of the end.
func (l *lease) hasEnded() bool { return l.isEnded.Load() }

func (l *lease) end() {
	if l.isEnded.CompareAndSwap(false, true) {
		l.owner.ended(l)
	}
}

func (l *lease) wake() {
	if done := l.done.Load(); done != nil {
		close(*done)
	}
}

// gone reports that the lease ran out or was lost while it lay in a buffer.
func (l *lease) gone() bool {
	switch l.state.Load() {
	case leaseHeld:
		return base.Now() >= l.deadlineAt()
	case leaseExpired, leaseLost:
		return true
	}
	return false
}

func (l *lease) wait(ctx context.Context) error {
	if l == nil {
		return errMadeByHand
	}
	if l.done.Load() == nil {
		done := make(chan struct{})
		if l.done.CompareAndSwap(nil, &done) {
			// A settle that finished before it could see done is seen here.
			if s := l.state.Load(); s == leaseSettled || s == leaseLost {
				return l.outcome()
			}
		}
	}
	if s := l.state.Load(); s == leaseSettled || s == leaseLost {
		return l.outcome()
	} else if s == leaseInTx {
		return errors.New("chanq: wait: the message was acked in the caller's transaction; its commit is the outcome")
	}
	l.owner.hurry()
	select {
	case <-*l.done.Load():
		return l.outcome()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lease) outcome() error {
	if l.state.Load() == leaseLost {
		return ErrLeaseLost
	}
	return l.err
}

func (l *lease) extend(ctx context.Context, d time.Duration) error {
	if l == nil {
		return errMadeByHand
	}
	switch l.state.Load() {
	case leaseLost:
		return ErrLeaseLost
	case leaseSettling, leaseSettled, leaseInTx:
		return ErrSettled
	}
	held, err := l.owner.extend(ctx, l, d)
	if err != nil {
		return err
	}
	if !held {
		if l.lose(leaseLost) || l.state.Load() == leaseLost {
			return ErrLeaseLost
		}
		return ErrSettled // meanwhile, by another goroutine
	}
	l.state.CompareAndSwap(leaseExpired, leaseHeld)
	return nil
}
