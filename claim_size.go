package chanq

import (
	"fmt"
	"math"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// allowance bounds claims after one that failed because of what it asked for: its
// answer did not arrive in time, or a value in it cannot be read. The next one asks
// for half as much, down to one message, and claims that arrive in half of the time
// let the bound grow again. A single message that cannot be read costs an attempt,
// like one that fails. Only the claimer uses it.
type allowance struct {
	most   int // messages of the next claim; 0 is no bound
	looked bool
	// blind: a message could not be read. Whoever meets it again goes straight down to
	// one.
	blind bool
}

func (a *allowance) bound() int {
	if a.most == 0 {
		return math.MaxInt
	}
	return a.most
}

// arrived notes a claim that found something.
func (a *allowance) arrived(took, patience time.Duration) {
	a.looked = false
	if a.most > 0 && took < patience/2 {
		if a.most *= 2; a.most >= noAllowance {
			a.most, a.blind = 0, false
		}
	}
}

// noAllowance is the bound that counts as none.
const noAllowance = 1 << 12

// halve notes a claim of n messages, more than one, that failed.
func (a *allowance) halve(n int) {
	if a.most = n / 2; a.blind {
		a.most = 1
	}
}

// lateError is the failure of a claim whose answer did not arrive in time.
type lateError struct{ err error }

func (e *lateError) Error() string { return e.err.Error() }
func (e *lateError) Unwrap() error { return e.err }

// shrink makes the next claim smaller, if the size of this one, of n messages, may be
// why it failed. A claim of one that fails twice, while the database answers a look
// in between, has met a message that cannot be read.
func (c *shardConsumer[T]) shrink(n int, f *batch.Failure) {
	_, late := f.Err.(*lateError)
	a := &c.allowance
	switch {
	case !late && f.Class != sqlbatch.BadRow:
		a.looked = false
	case n > 1:
		a.halve(n)
	case !a.looked:
		a.most = 1
		var err error
		if c.order != nil {
			err = c.order.answers()
		} else {
			_, _, err = c.nextDue()
		}
		a.looked = err == nil
	default:
		a.looked = false
		c.claimBlind(late, f.Err)
	}
}

// claimBlind claims one message without its contents, and counts that as a failed
// attempt: due again after the Backoff, or dead. What fails here is tried again.
func (c *shardConsumer[T]) claimBlind(late bool, cause error) {
	if c.order != nil {
		c.order.claimBlind(late, cause)
		return
	}
	start := monotonic()
	p := c.claimParams(1)
	p.Blind = true
	var rows claimedRows
	if err := c.runClaim(c.queue.sql.Claim(p), rows.scan); err != nil || len(rows.rows) == 0 {
		return
	}
	l := c.unread(&rows.rows[0], deadlineAfter(start, c.cfg.LeaseFor), late, cause)
	c.held.Add(1)
	c.idleness.delivers()
	c.keeper.hold([]*lease{l})
	c.settler.addAll(l)
}

// unread is the lease of a message that was claimed without its contents, to be nacked or
// set aside.
func (c *shardConsumer[T]) unread(row *claimedRow, deadline time.Duration, late bool, cause error) *lease {
	c.allowance.blind = true
	c.count(func(s *ConsumerStats) { s.Claims++; s.Claimed++ })
	l := &lease{owner: c, item: row.item, due: row.due, priority: row.priority, attempt: row.attempts, lapses: row.lapses}
	l.deadline.Store(int64(deadline))
	l.until.Store(int64(deadline + c.cfg.MaxExtend))
	switch {
	case row.expired:
		l.setAside(ReasonExpired)
	case late:
		l.text = fmt.Sprintf("chanq: could not be read within %v", c.claimPatience())
	default:
		l.text, l.quiet = fmt.Sprintf("%s%v", reasonRead, cause), true
	}
	if !row.expired {
		l.op = l.nackOp()
	}
	if l.op == settleNack {
		l.delay = nackDelay(c.backoff(l.failures()))
	}
	l.state.Store(leaseSettling)
	return l
}
