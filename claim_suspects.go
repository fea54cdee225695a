package chanq

import (
	"context"
)

// Suspects of ordered queues
//
// A message whose process dies of it takes with it whatever that process held: the
// leases of all of them run out, and nobody can say which one was to blame. A
// lease that ran out without a settle is a lapse. A message that lapsed twice in a
// row is a suspect, and so is one that lapsed and has no attempt left. A
// consumer holds one suspect at a time, beside any number of other messages. So
// when a process dies again, of the suspects the one that was delivered has lapsed,
// and those that only lay beside it were never claimed, or given back before it was
// delivered: after a few deaths the one that kills is alone with its attempts, and
// the others have been handled.
//
// As long as there are no suspects this costs nothing. A claim that brings several
// gives back all but one, uncounted, and the consumer is wary from then on: claims
// leave suspects out while one is in hand, and ask for one message at a time
// otherwise, until that one is no suspect.

// suspectLapses is how many lapses in a row make a suspect.
const suspectLapses = 2

// isSuspect says so of a message that was claimed for the given time, after this
// many lapses in a row.
func isSuspect(attempts, lapses, maxAttempts int) bool {
	return lapses >= suspectLapses || lapses >= 1 && attempts > maxAttempts
}

// spent reports that nobody may see the message any more: its attempts are used
// up, and the last lease that ran out was one for which it was a suspect already,
// alone among those of its holder. So what only lay beside a message that killed
// its process gets an attempt of its own.
func (r *claimedRow) spent(maxAttempts int) bool {
	return r.attempts > maxAttempts && isSuspect(r.attempts-1, r.lapses-1, maxAttempts)
}

// caution is what the claimer of an ordered queue knows of suspects. Only the claimer uses it.
type caution struct {
	wary bool
	// hand is the suspect that was delivered last.
	hand *lease
	// least is from how many lapses on messages are left out while one is in hand.
	least int
}

// holding reports that a suspect is in the hands of a reader, or on its way.
func (c *caution) holding() bool { return c.hand != nil && !c.hand.hasEnded() }

// ask says what to ask for where there is room for n.
func (c *caution) ask(n int) (rows int, suspects bool, lapses int) {
	switch {
	case !c.wary:
		return n, true, 0
	case c.holding():
		return n, false, c.least
	default:
		return 1, true, 0
	}
}

// found takes note of what a claim brought, in order of delivery, and chooses the
// suspects that must go back: all but one, or all, if one is in hand.
func (c *caution) found(leases []*lease, askedForSuspects bool) (back []*lease) {
	suspects := false
	for _, l := range leases {
		if !l.suspect {
			continue
		}
		suspects = true
		if !c.wary {
			c.wary, c.least = true, suspectLapses
		}
		c.least = min(c.least, l.lapses)
		if c.holding() {
			back = append(back, l)
		} else {
			c.hand = l
		}
	}
	if askedForSuspects && !suspects {
		c.wary = false
	}
	return back
}

// setBack gives suspects back that nobody has seen, and returns when the database
// has them: before that, the one that is kept must not be delivered. It reports
// false when that takes too long.
func (c *shardConsumer[T]) setBack(suspects []*lease) bool {
	ctx, cancel := context.WithTimeout(c.abandoned, min(c.cfg.StatementTimeout, c.cfg.LeaseFor/6))
	defer cancel()
	c.settler.addAll(suspects...)
	for _, l := range suspects {
		_ = l.wait(ctx) // that it was lost is as good
	}
	return ctx.Err() == nil
}

// takeBack makes a release of a lease that no reader has.
func (l *lease) takeBack() bool {
	if !l.beginSettling() {
		return false
	}
	l.op = settleRelease
	return true
}
