package claim

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// PlainTable has the statements of a Plain: see table.Plain.
type PlainTable interface {
	Claim(within time.Duration, c sqlbatch.ClaimParams, into *table.ClaimedRows) error
	Contents(within time.Duration, into *table.Claimed) (found bool, err error)
	Look(within time.Duration, ids [][16]byte) (table.Seen, error)
	NextDue(within time.Duration, from sqlbatch.Heads) (due time.Duration, err error)
	DueOrLocked(within time.Duration) (due bool, err error)
	Rescan(ctx context.Context, slow bool) (r table.Rescan, took time.Duration, err error)
	Rescue(within time.Duration, r sqlbatch.RescueParams) (places []table.Lost, err error)
}

// Plain claims the messages of a plain queue. Run keeps the buffer of a consumer filled, in its own goroutine.
//
// A claim begins where the last one ended, not at the beginning, where the rows claimed before are (head.go). Once a
// second, if that is cheap, a rescan reads from the beginning (rescan.go). After an empty claim there are doubling
// pauses up to PollEvery; between them the due time of the next message is read (no lock, no write) instead of claiming
// (wait.go). pace.go decides how many messages a claim asks for. Large claims of one process run one after another
// (gate.go).
//
// # Failures
//
//	the process dies in the statement of a claim    the claim is undone and nothing is counted. The claim reads no
//	                                                body above inlineMost bytes.
//	the process dies later                          each of its leases expires, and is counted by a rescue
//	a claim fails, whatever its class               the next claim is for half as many messages (batch.Size). After a
//	                                                claim of one message the next claim leases a message without
//	                                                reading it.
//	the contents of a leased message                its row is looked up. If the row is found twice and its contents
//	cannot be read                                  cannot be read, that is a failed attempt of this message. If the row is
//	                                                locked, or the database cancels the read, the message is released,
//	                                                with a delay. If the database does not answer the query, the consumer
//	                                                waits for it.
//	Stop                                            messages that were not read yet are released
type Plain struct {
	*intake
	rescans         *rescans
	withoutContents bool // the next claim is for one message, which it does not read
	hasty           bool // a claim exceeded its timeout: the claims that look for the cause get an eighth of the time
}

// NewPlain returns the claims of the consumer with this ID.
func NewPlain(pace *Pace, t PlainTable, consumer [16]byte) *Plain {
	in := &intake{cfg: &pace.cfg, pace: pace, table: t, consumer: consumer, loop: pace.cfg.loop(), buffer: newBuffer()}
	return &Plain{intake: in, rescans: newRescans(in)}
}

// Source returns the buffer of leases.
func (p *Plain) Source() Source { return p.buffer }

// Run claims until the consumer stops.
func (p *Plain) Run() {
	if failure := p.loop.Try(p.cfg.Stop, p.rescans.first); failure != nil && p.cfg.Stop.Err() == nil {
		batch.Sleep(p.cfg.Stop, p.loop.Failed(p.cfg.Abandoned, failure)) // a claim shows whether the database answers
	}
	idle := p.cfg.idle()
	for n := p.waitForRoom(); n > 0 && !p.next(n, &idle); n = p.waitForRoom() {
	}
	p.pace.unsubscribe()
}

// next makes the next claim, for up to n messages, after the statements that are due before it. It reports that the
// consumer has stopped.
func (p *Plain) next(n int, idle *batch.Backoff) (stopped bool) {
	asked, got := 0, 0
	failure := p.rescans.makeDue()
	if failure == nil {
		p.cfg.Subscription.Answer()
		asked, got, failure = p.claim(n)
	}
	if failure == nil && got == 0 && p.cfg.Halt != nil {
		if stopped, failure = p.stopIdle(); stopped {
			return true
		}
		asked = 0 // a failure is not one of the claim
	}
	switch {
	case failure != nil && p.cfg.Stop.Err() != nil && asked == 0: // Stop ended the wait for the gate
	case failure != nil:
		if table.IsPermanent(failure.Class) {
			p.cfg.Holder.Broken("claim", failure.Err)
			return true
		}
		pause := p.loop.Failed(p.cfg.Abandoned, failure)
		if asked > 0 {
			p.rescans.claimFailed(time.Since(failure.Began))
			p.pace.size.Failed(asked)
			// The message may be the cause: it is to be known by its ID before it is read
			p.withoutContents = asked == 1
			// After a timeout of a claim for one message the next claim has the whole time: the database might be slow.
			p.hasty = asked > 1 && errors.Is(failure.Err, table.ErrLate)
		}
		batch.Sleep(p.cfg.Stop, pause)
	case got == 0 && p.cfg.Halt != nil:
		p.pause(idle.Poll(), nil)
	case got > 0:
		pause := p.pace.after(idle, got, got == asked)
		switch {
		case pause == 0 || p.pause(pause, nil) || p.cfg.Halt != nil:
		case p.cfg.Subscription.Quiet():
			p.waitForMessage(idle, false) // at most a poll in place of the claim
		default: // polling finds the next message as soon
			p.pace.unsubscribe()
		}
	default:
		if p.cfg.Subscription.ClaimedNone() { // the message might be before the head
			p.rescans.head.hurry()
		}
		p.waitForMessage(idle, true)
	}
	return false
}

// within is the timeout of the next claim.
func (p *Plain) within() time.Duration {
	if p.hasty {
		return p.cfg.claimTime() / 8
	}
	return p.cfg.claimTime()
}

// claim leases up to n messages, and delivers them. It returns how many it asked for and how many it got, without those
// that it had to release. Stop does not cancel it, because the consumer would not know which messages it has leased.
func (p *Plain) claim(n int) (asked, got int, failure *batch.Failure) {
	done, err := enter(p.cfg.Stop, p.cfg.Neighbours.gate, n)
	if err != nil { // Stop
		return 0, 0, &batch.Failure{Err: err}
	}
	start := base.Now()
	c := p.claimParams(n)
	rows := table.ClaimedRows{Rows: p.buffer.take(), Inline: c.Inline}
	if rows.Rows == nil {
		rows.Rows = make([]table.Claimed, 0, c.Rows)
	}
	failure = p.run(func() error { return p.table.Claim(p.within(), c, &rows) })
	done()
	if failure != nil {
		return c.Rows, 0, failure
	}
	got, took := len(rows.Rows), base.Now()-start
	p.rescans.failed = false
	p.rescans.head.claimed(rows.Rows, start)
	p.withoutContents, p.hasty = false, false
	if got == 0 {
		p.rescans.careful = false
		p.pace.empty.Add(1)
		p.buffer.reuse(rows.Rows)
		return c.Rows, 0, nil
	}
	bytes := 0
	for i := range rows.Rows {
		bytes += rows.Rows[i].Size
	}
	p.pace.size.Worked(c.Rows, took, p.cfg.claimTime())
	p.pace.brought(got, bytes)
	rows.Sort(compareRows)
	// The leases begin at the start of the statement
	leases := p.cfg.leases(rows.Rows, lease.After(start, p.cfg.LeaseFor), start+p.cfg.MaxExtend)
	got = p.deliver(Batch{leases, rows.Rows}, bytes, took)
	p.rescans.careful = p.pace.endedThen >= 0 // the next message has probably been in the same process
	return c.Rows, got, nil
}

// claimParams returns the parameters of a claim for up to n messages.
func (p *Plain) claimParams(n int) sqlbatch.ClaimParams {
	c := sqlbatch.ClaimParams{
		Rows: n, Lease: p.cfg.LeaseFor, Consumer: p.consumer, Salt: table.NewSalt(),
		Heads: p.rescans.head.ask(base.Now()), Inline: p.cfg.inline(n), PastReaders: p.rescans.failed,
	}
	switch {
	case p.withoutContents:
		c.Rows, c.Inline = 1, -1
	case p.rescans.careful:
		c.Rows = min(n, p.pace.careful())
	}
	return c
}

// stopIdle is called after an empty claim. It reports that the consumer has stopped.
func (p *Plain) stopIdle() (stopped bool, failure *batch.Failure) {
	if p.cfg.holds() {
		return false, nil
	}
	var due bool
	failure = p.run(func() (err error) {
		due, err = p.table.DueOrLocked(p.cfg.SpareTimeout())
		return err
	})
	if failure != nil {
		return false, failure
	}
	p.pace.looks.Add(1)
	if due {
		p.rescans.head.hurry() // it might be before the head
		return false, nil
	}
	p.cfg.Halt()
	return true, nil
}

// Finish joins the rescan that Stop has cancelled.
func (p *Plain) Finish(context.Context) { p.rescans.running.Wait() }
