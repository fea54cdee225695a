package chanq

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The claimer: one goroutine that keeps the buffer of a consumer filled.
//
// A claim asks for the free room of the buffer, when at least half of what it may hold
// is free, and never for more than readers took in the last second, or 16
// (claim_pace.go): a slow replica does not hoard. A full batch means that more may
// be there, so the next claim follows at once. A short one is no proof of an empty queue, since rows that
// others have locked are skipped: it is followed by a pause of PollMin, or a quarter of
// it where the claim was worth its statement, an empty one by doubling pauses up to
// PollMax, in which the due time of the next message is read (no lock, no write) instead
// of claiming. A producer of the same process ends a pause.
//
// A claim begins where those before it ended, and not at the beginning, where all lies
// that was claimed before (floor.go). Once a second, where that is cheap, the claimer looks
// from there (survey.go).
//
// Large claims of one process follow each other (claim_turn.go).
//
// A claim that fails is followed by a smaller one. Messages that may kill their process, and those that cannot be read,
// are marked before they are read (claim_careful.go).

// worthwhile is how many messages make a short claim worth its statement: from
// here on the rows cost more than the round trip.
const worthwhile = 64

// claimAll claims until Stop. supervise then releases the buffer and closes the channel.
func (c *consumer[T]) claimAll() {
	idle := batch.Backoff{Low: c.cfg.PollMin, High: c.cfg.PollMax}
	loop := batch.Loop{Health: c.health, Classify: c.queue.classify}
	c.connect()
	for {
		n := c.waitForRoom()
		if n == 0 {
			return
		}
		asked, got := 0, 0
		c.reviewTrial()
		failure := c.survey(&loop)
		if failure == nil {
			if s, ok := c.nextSuspect(); ok {
				if failure = c.trySuspect(&loop, s); failure == nil {
					continue
				}
			}
		}
		if failure == nil {
			c.subscription.Answer()
			asked, got, failure = c.claim(&loop, n)
		}
		if failure == nil && got == 0 && c.idleness != nil {
			var stopped bool
			if stopped, failure = c.stopIdle(&loop); stopped {
				return
			}
			asked = 0 // a failure is not that of the claim
		}
		if failure != nil && c.idleness != nil {
			c.idleness.notIdle(c)
		}
		switch {
		case failure != nil && c.stop.Err() != nil && asked == 0: // Stop ended the survey
		case failure != nil:
			if table.IsPermanent(failure.Class) {
				c.broken(c.queue.fail("claim", failure.Err))
				return
			}
			pause := loop.Failed(c.abandoned, failure)
			if asked > 0 {
				c.surveys.claimFailed(time.Since(failure.Began))
				c.claimFailed(asked)
			}
			batch.Sleep(c.stop, pause)
		case got == 0 && c.idleness != nil:
			c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
			c.pause(idle.Poll(), nil)
		case got > 0:
			pause := c.pauseAfter(&idle, got, got == asked)
			if pause > 0 && !c.pause(pause, nil) && c.subscription.Quiet() && c.idleness == nil {
				c.waitForMessage(&idle, false) // at most a look in place of the claim
			}
		default:
			c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
			if c.subscription.Vain() { // the message may lie below the floor
				c.surveys.floor.hurried = true
			}
			c.waitForMessage(&idle, true)
		}
	}
}

// connect takes the connections before there is anything to hand to readers,
// where they are few. What fails is met again by the claim.
func (c *consumer[T]) connect() {
	ctx, cancel := context.WithTimeout(c.stop, c.cfg.StatementTimeout)
	defer cancel()
	began := time.Now()
	for _, s := range c.parts {
		if err := s.Fill(ctx); err != nil {
			if c.stop.Err() == nil {
				c.health.Failed(began, err)
			}
			return
		}
	}
}

func (c *consumer[T]) count(f func(*ConsumerStats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// claim leases up to n messages, and delivers
// them. It returns for how many it asked and how many it got: those that it had to
// give back are none. It is not cancelled by Stop: its rows would be leased to
// nobody. They are anyway when Shutdown has given up.
func (c *consumer[T]) claim(loop *batch.Loop, n int) (asked, got int, failure *batch.Failure) {
	done, err := c.ears.turns.await(c.stop, n)
	if err != nil { // Stop
		return 0, 0, &batch.Failure{Err: err}
	}
	start := base.Now()
	p := c.claimParams(n)
	rows := claimedRows{rows: c.flow.takeRows(p.Rows), inline: p.Inline}
	failure = loop.Try(c.abandoned, func(context.Context) error { return c.runClaim(c.queue.sql.Claim(p), rows.scan) })
	done()
	if failure != nil {
		return p.Rows, 0, failure
	}
	claimed, took := len(rows.rows), base.Now()-start
	c.surveys.claimWorked()
	c.surveys.floor.claimed(rows.rows, took, start+took)
	c.flow.atWork = claimed > 0
	c.careful.bare = false
	if claimed == 0 {
		c.flow.giveRows(rows.rows)
		return p.Rows, 0, nil
	}
	c.size.Worked(p.Rows, took, c.claimPatience())
	c.flow.lastClaim, c.flow.meanBytes = claimed, max(1, rows.bytes/claimed)
	c.count(func(s *ConsumerStats) { s.Claims++; s.Claimed += int64(claimed) })
	b := claimedBatch{
		rows: rows.rows, deadline: lease.After(start, c.cfg.LeaseFor), until: start + c.cfg.MaxExtend,
		event: ClaimedEvent{Queue: c.queue.label, Messages: claimed, Bytes: rows.bytes, Took: took},
	}
	if c.awaitDelivered(); !b.mayComeBeside() {
		got = c.deliver(loop, b)
		c.flow.giveRows(b.rows)
		return p.Rows, got, nil
	}
	c.deliverBeside(b)
	return p.Rows, claimed, nil
}

// claimParams are those of a claim where there is room for n messages.
func (c *consumer[T]) claimParams(n int) sqlbatch.ClaimParams {
	p := sqlbatch.ClaimParams{
		Rows: n, Lease: c.cfg.LeaseFor, Member: c.member.ID, Salt: newSalt(),
		Floors: c.surveys.floor.ask(base.Now()), Inline: c.inline(n),
	}
	if c.careful.bare {
		p.Rows, p.Inline = 1, -1
	}
	return p
}

// claimPatience is for how long a claim may take: what comes later than the end of
// its leases is of no use.
func (c *consumer[T]) claimPatience() time.Duration {
	return min(c.cfg.StatementTimeout, c.cfg.LeaseFor)
}

// runClaim runs the statement of a claim. Its error is a *lateError if the answer
// did not arrive in time.
func (c *consumer[T]) runClaim(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	return c.runWithin(c.claimPatience(), st, scan)
}

// runWithin is runClaim with another time for the answer.
func (c *consumer[T]) runWithin(d time.Duration, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(c.abandoned, d)
	defer cancel()
	run := c.sessions.RunPatient
	if c.flow.atWork { // a session of its own is worth it
		run = c.sessions.Run
	}
	err := run(ctx, st, scan)
	if _, notRun := err.(*session.NotRunError); err != nil && !notRun && ctx.Err() != nil && c.abandoned.Err() == nil {
		return &lateError{err, d}
	}
	return err
}
