package chanq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// What becomes of a settle that its statement did not return, or that has failed.

// absent looks for settles that their statement did not return. It leaves out those whose rows are locked.
func (s *settler) absent(ctx context.Context, leases []*lease) (outcomes []batch.Outcome[*lease], err error) {
	seen, err := s.queue.look(ctx, s.sessions, s.timeout, leases)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		switch f := l.fate(seen.of(l.item)); f {
		case fateLocked:
			l.locked = true
		default:
			outcomes = append(outcomes, batch.Outcome[*lease]{Item: l, Err: f.err(), Unknown: f == fateHidden})
		}
	}
	return outcomes, nil
}

// settleTally counts what became of a group.
type settleTally struct{ event SettledEvent }

// count counts a settle that is in the database.
func (t *settleTally) count(op settleOp) {
	*[...]*int{&t.event.Acked, &t.event.Nacked, &t.event.Released, &t.event.Released, &t.event.Dead}[op]++
}

// done finishes leases.
func (s *settler) done(began time.Time, outcomes []batch.Outcome[*lease]) {
	tally := settleTally{event: SettledEvent{Queue: s.queue.label}}
	leases := make([]*lease, len(outcomes))
	var released []*lease
	var slots slotNames
	for i, o := range outcomes {
		s.finish(o, &tally)
		leases[i] = o.Item
		if o.Err == nil && o.Item.op == settleRelease {
			released = append(released, o.Item)
		}
		if m := o.Item.entry; m != nil && o.Err == nil && o.Item.op != settleAck && o.Item.op != settleDead {
			slots.add(m.Slot)
		}
	}
	s.owner.moved(leases...)
	tally.event.Took = time.Since(began)
	s.queue.recorder.settled(tally.event)
	call(s.queue.cfg.Hooks.Settled, tally.event)
	if tally.event.Released > 0 {
		s.queue.gaveBack(placesOf(released))
	}
	s.owner.settled(tally.event, slots)
}

// finish finishes a lease, without the call of leaseOwner.moved.
func (s *settler) finish(o batch.Outcome[*lease], tally *settleTally) {
	l := o.Item
	switch o.Err {
	case nil:
		tally.count(l.op)
		s.finishDone(l)
	case ErrSettled:
		l.conclude(ErrSettled)
	case ErrLeaseLost:
		tally.event.Lost++
		s.queue.recorder.rolledBack(l)
		l.conclude(ErrLeaseLost)
		call(s.queue.cfg.Hooks.LeaseLost, l.lossEvent(true))
	case errOutcomeHidden:
		l.conclude(s.failure(o))
	default:
		s.finishFailed(o)
	}
}

func (s *settler) finishDone(l *lease) {
	s.queue.recorder.rolledBack(l)
	if l.op == settleDead {
		call(s.queue.cfg.Hooks.Dead, DeadEvent{Queue: s.queue.label, ID: l.item.ID, Attempt: l.attempt, Reason: l.reason()})
	}
	l.conclude(nil)
}

// finishFailed finishes a lease whose settle cannot be stored, or is given up.
func (s *settler) finishFailed(o batch.Outcome[*lease]) {
	abandoned := s.abandoned.Err() != nil
	if abandoned && o.Item.locked {
		o.Err = errLocked
	}
	o.Item.conclude(s.failure(o))
	switch {
	case abandoned:
	case isPermanent(s.queue.classify(o.Err)):
		s.owner.broken(s.queue.fail(o.Item.op.String(), o.Err))
	default: // the database refuses what the row would become: the lease runs out
		call(s.queue.cfg.Hooks.LeaseLost, o.Item.lossEvent(false))
	}
}

// failure is the error of a settle that is not known to be stored.
func (s *settler) failure(o batch.Outcome[*lease]) error {
	return &OpError{Op: o.Item.op.String(), Queue: s.queue.label, ID: o.Item.item.ID, Unknown: o.Unknown || o.Item.unknown, Err: o.Err}
}

func (op settleOp) String() string {
	return [...]string{"ack", "nack", "release", "release", "dead-letter"}[op]
}

func compareItems(a, b sqlbatch.Item) int {
	return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Fence, b.Fence))
}

// errOutcomeHidden: a first try may have been applied, and what happened since
// hides whether it was.
var errOutcomeHidden = errors.New("the connection broke during the first try, and the message has moved on since")

// errLocked: the row was locked for as long as the operation might wait.
var errLocked = errors.New("another transaction has locked the message's row")

// fate is what became of a settle that its statement did not return.
type fate uint8

const (
	fateLocked  fate = iota // it can be stored later
	fateApplied             // by an earlier try
	fateInTx                // the caller's commit acked the message
	fateLost
	fateHidden // see errOutcomeHidden
)

// err is the outcome that a fate is, unless it is fateLocked.
func (f fate) err() error {
	return [...]error{fateApplied: nil, fateInTx: ErrSettled, fateLost: ErrLeaseLost, fateHidden: errOutcomeHidden}[f]
}

// fate decides about a settle by how its row stands.
//
// While the lease runs no one else can claim the message: that it moved on was our
// doing, if a try may have been applied (or an operator's, who cancelled it). Later
// it may have been another holder's.
func (l *lease) fate(s standing) fate {
	unknown := l.unknown || l.Unknown
	ours := base.Now() < l.deadlineAt()
	removes := l.op == settleAck || l.op == settleDead
	switch {
	case s == standsOurs:
		return fateLocked
	case unknown && ours && removes == (s == standsGone):
		return fateApplied
	case l.inTx && s == standsGone:
		return fateInTx
	case !unknown, l.op == settleAck && s == standsMoved:
		return fateLost
	}
	return fateHidden
}
