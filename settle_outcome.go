package chanq

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/sqlbatch"
)

// What becomes of a settle that its statement did not return, or that has failed.

// finishMissing finishes a lease that its statement did not return.
func (s *settler) finishMissing(l *lease, f fate, tally *settleTally) {
	switch f {
	case fateApplied:
		tally.count(l.op)
		s.finishDone(l)
	case fateInTx:
		l.finish(ErrSettled)
	case fateLost:
		tally.event.Lost++
		s.queue.recorder.rolledBack(l)
		l.finish(ErrLeaseLost)
		call(s.queue.cfg.Hooks.LeaseLost, l.lossEvent(true))
	default:
		l.finish(&OpError{Op: l.op.String(), Queue: s.queue.name, Shard: s.queue.shard, ID: l.item.ID, Unknown: true, Err: errOutcomeHidden})
	}
}

// finishFailed finishes the leases of a piece that cannot be stored, or is given up.
func (s *settler) finishFailed(p *settlePiece, f *retry.Failure) {
	abandoned := s.abandoned.Err() != nil
	for _, l := range p.leases {
		cause := f.Err
		if abandoned && l.locked > 0 {
			cause = errLocked
		}
		l.finish(&OpError{Op: p.op.String(), Queue: s.queue.name, Shard: s.queue.shard, ID: l.item.ID, Unknown: l.unknown, Err: cause})
	}
	switch {
	case abandoned:
	case isPermanent(f.Class):
		s.owner.broken(s.queue.fail(p.op.String(), f.Err))
	default: // the database refuses what these rows would become: their leases run out
		for _, l := range p.leases {
			call(s.queue.cfg.Hooks.LeaseLost, l.lossEvent(false))
		}
	}
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

// fate decides about a settle by how its row stands.
//
// While the lease runs no one else can claim the message: that it moved on was our
// doing, if a try may have been applied (or an operator's, who cancelled it). Later
// it may have been another holder's.
func (l *lease) fate(s standing) fate {
	ours := monotonic() < l.deadlineAt()
	removes := l.op == settleAck || l.op == settleDead
	switch {
	case s == standsOurs:
		return fateLocked
	case l.unknown && ours && removes == (s == standsGone):
		return fateApplied
	case l.inTx && s == standsGone:
		return fateInTx
	case !l.unknown, l.op == settleAck && s == standsMoved:
		return fateLost
	}
	return fateHidden
}

// foundLocked notes that the row was locked once more, and returns the pause before the
// next try.
func (l *lease) foundLocked() time.Duration {
	pause := lockPause << l.locked
	l.locked = min(l.locked+1, lockPauses)
	return pause
}
