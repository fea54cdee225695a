package chanq

import (
	"slices"
	"time"
)

// What closes a line besides what lies in it: a dead message that holds its key, and a
// transaction of the caller's that has acked the message, until it is known to have ended.

// hold closes a line until allow opens it again. What waits in it is kept: given back, it
// would be claimed again and again.
func (ls *lines) hold(l *keyLine) {
	if !l.held {
		ls.held++
	}
	l.held, l.since = true, ls.questions
	ls.giveBackSuspects(l)
}

// giveBackSuspects gives back the suspects of a line whose turn it is not. A consumer holds one
// suspect at a time; one that waits would keep from coming what it waits for, if that is a
// suspect, too, and the suspects of all other lines.
func (ls *lines) giveBackSuspects(l *keyLine) {
	for i, t := range l.spots {
		if t.state == spotWaits && t.lease.suspect && (i > 0 || l.held) {
			ls.handIn(t)
		}
	}
}

// release ends that.
func (ls *lines) release(l *keyLine) {
	if l.held {
		ls.held--
	}
	l.held = false
}

// allow is told which lines of a slot the dead hold, by what was asked after the slot's
// last claim: all others are free.
func (ls *lines) allow(number int, held map[lineKey]bool, now time.Duration) {
	s := ls.slot(number)
	if s == nil {
		return
	}
	s.asks = false
	for key := range held {
		l := s.lines[key]
		if l == nil {
			l = &keyLine{slot: s, key: key}
			s.lines[key] = l
		}
		ls.hold(l)
	}
	for key, l := range s.lines {
		if l.held && !held[key] && l.since < ls.questions {
			// What was redriven goes first: so all is read again, in its order.
			ls.release(l)
			s.mark, s.sweepAt, ls.wanted = 0, now, true
			for _, t := range l.spots {
				switch t.state {
				case spotWaits:
					ls.handIn(t)
				case spotKnown:
					t.at = min(t.at, now)
				}
			}
		}
		ls.advance(l)
	}
}

// asking returns the slots whose held lines are to be asked for: those that must be, or,
// with all, those that have any.
func (ls *lines) asking(all bool) (numbers []int) {
	ls.questions++
	for _, s := range ls.slots {
		asks := s.asks && !s.closing
		if all && !asks && !s.closing {
			for _, l := range s.lines {
				asks = asks || l.held
			}
		}
		if asks {
			numbers = append(numbers, s.number)
		}
	}
	return numbers
}

// looks returns the leases whose transactions are to be looked after now, and when the
// next ones are.
func (ls *lines) looks(now time.Duration) (due []*lease, next time.Duration) {
	next = now + time.Hour
	ls.inTx = slices.DeleteFunc(ls.inTx, func(t *spot) bool {
		t.watched = t.state == spotOut && t.lease.state.Load() == leaseInTx
		return !t.watched
	})
	for _, t := range ls.inTx {
		if t.lookAt > now {
			next = min(next, t.lookAt)
			continue
		}
		t.lookAt = now + firstLook<<t.looks
		t.looks = min(t.looks+1, lookPauses)
		next = min(next, t.lookAt)
		due = append(due, t.lease)
	}
	return due, next
}

// hurry has a lease that is in a transaction looked after now. It reports whether it is.
func (ls *lines) hurry(l *lease, now time.Duration) bool {
	t := l.spot
	if t == nil || t.state != spotOut || l.state.Load() != leaseInTx {
		return false
	}
	t.lookAt, t.looks = now, 0
	return true
}

// looked is told how the row of a lease in a transaction stands, by a look that began at
// began.
func (ls *lines) looked(l *lease, stands standing, began time.Duration) {
	t := l.spot
	if t == nil || t.lease != l || t.state != spotOut || l.state.Load() != leaseInTx {
		return
	}
	switch {
	case stands == standsGone:
		ls.over(t)
	case stands == standsMoved, began >= l.deadlineAt():
		ls.know(t, began, true)
	}
}
