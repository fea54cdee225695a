package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Careful claims of plain queues
//
// A message can kill its process while its body is read or decoded, in its handler, or while it is settled. The leases of
// all messages of that process expire then, and the database does not know which message was the cause. A message that
// cannot be read fails the claim of all messages that are claimed with it. In both cases a consumer marks one message by
// its ID, commits, and reads the message afterwards. What happens from then on is the doing of that message alone.
//
// # States of a message
//
//	free ──Claim──▶ leased ──settle──▶ gone, or free: lapses and crashes are 0
//	  ▲               │
//	  └───────────────┴─ its lease expires: lapses + 1. With two in a row it is a suspect, which no claim takes.
//
//	suspect ──Mark OnlySuspect──▶ on trial ──settle──▶ as above
//	  ▲                             │
//	  ├─────────────────────────────┴─ its lease expires: lapses + 1, crashes + 1
//	  │
//	  ├── with MaxCrashes - 1 crashes or more ──Mark NotAlone──▶ reserved ──Mark OnlyMessage──▶ on its last trial
//	  └── its lease expires while it is reserved: lapses + 1 ───────┘                             │
//	                                    its lease expires: lapses + 1, crashes + 1, and it is dead ┘
//
// Consumers of one process try one suspect of a queue at a time, and claim other messages meanwhile. The next one may be tried
// when the lease of the first one has ended. While a suspect is reserved its consumer claims nothing, releases its buffer and waits
// until its handlers have returned and everything is settled. It claims nothing during the last trial. For its own consumer a trial is
// over when the database has the settle, when the row is gone, or when the time of the lease is over. Every settle sets
// alone to 0, so no later expiry counts as one of a trial.
//
// A survey finds the first message of each priority that no consumer leases, if it is a suspect. The suspect of the highest priority
// is tried first, before the next claim, and after a dead-lettering another survey comes before the next suspect. A claim takes
// suspects that have expired, since they are only dead-lettered.
//
// # Failures
//
//	the process dies in the statement of a claim    the claim is undone and nothing is counted. No body above
//	                                                inlineMost bytes is read there.
//	it dies later                                   each of its leases expires, as above
//	a claim fails, whatever its class               the next one asks for half as many messages (batch.Size). After a
//	                                                claim of one message the next one leases a message without
//	                                                reading it.
//	a mark has an unknown outcome                   a look for its row, and the mark again, by the fence that the look
//	                                                has found: it counts nothing if the first one was applied
//	a mark fails otherwise                          the next survey finds the suspect again
//	the contents of a leased message                a look for its row. If the look finds the row twice and its contents
//	cannot be read                                  cannot be read, that is a failed attempt of this message. If the row is
//	                                                locked, or the database cancels the read, the message is released,
//	                                                for later if it is no suspect. If the database does not answer
//	                                                the look, the consumer waits for it.
//	Stop                                            a reserved message, and one that is not read yet, is released
//
// Ordered queues handle suspects in package internal/order.

// careful is what the claimer knows of suspects, and of messages that cannot be read. Only the claimer uses it.
type careful struct {
	found []suspect // by the last survey: at most one of each priority

	trial *lease.Lease  // nil: there is none
	look  time.Duration // when its row may be looked for, after it has ended
	pause batch.Backoff // between looks after it

	// bare: the next claim is of one message, without its contents.
	bare bool
}

// suspect is a message that a survey has found.
type suspect struct {
	lane    int // the number of its priority
	item    sqlbatch.Item
	crashes int            // the lease that has expired included
	alone   sqlbatch.Alone // of that lease
}

const (
	// inlineLeast and inlineMost bound the size of bodies that a claim returns. Larger ones are read one by one.
	inlineLeast = 256 << 10
	inlineMost  = lease.HeavyBody
)

// inline is the size of the largest body that a claim of n messages returns.
func (c *consumer[T]) inline(n int) int {
	return min(max(c.cfg.PrefetchBytes/max(1, n), inlineLeast), inlineMost)
}

// claimFailed notes that a claim of n messages has failed. The message that it would lease first may be the cause: of one
// message the next claim is bare, so that the message has a name before it is read.
func (c *consumer[T]) claimFailed(n int) {
	c.size.Failed(n)
	c.careful.bare = n == 1
}

// suspectsWait reports that a suspect can be tried.
func (c *consumer[T]) suspectsWait() bool {
	return c.careful.trial == nil && len(c.careful.found) > 0
}

// reviewTrial ends a trial that is over. A lease that was acked in a transaction, or whose settle has an unknown outcome, is
// looked for.
func (c *consumer[T]) reviewTrial() {
	t := &c.careful
	switch {
	case t.trial == nil || !t.trial.Ended():
		return
	case isOver(t.trial):
	case base.Now() < t.look:
		return
	default:
		seen, err := c.queue.on(c.sessions).Look(c.abandoned, c.claimPatience(), lease.IDs([]*lease.Lease{t.trial}))
		t.look = base.Now() + t.pause.Pause()
		if err != nil || t.trial.Row(seen) == lease.RowHeld {
			return
		}
	}
	t.trial, t.found = nil, nil
	c.endTrial()
	c.surveys.floor.hurried = true // for the next one
}

// isOver reports that a lease is known to have ended in the database, so that a death of this process is no crash of its message.
func isOver(l *lease.Lease) bool {
	switch l.State() {
	case lease.Lost:
		return true
	case lease.Settled:
		if err := l.Outcome(); err == nil || errors.Is(err, ErrLeaseLost) {
			return true
		}
	}
	return base.Now() >= l.Deadline()
}

// beginTrial reports false if another consumer of the process tries a suspect of the queue.
func (c *consumer[T]) beginTrial() bool {
	if !c.ears.beginTrial() {
		return false
	}
	c.trying.Store(true)
	return true
}

// endTrial lets the other consumers of the process try a suspect, if this one does.
func (c *consumer[T]) endTrial() {
	if c.trying.CompareAndSwap(true, false) {
		c.ears.endTrial()
	}
}

// nextSuspect takes a suspect that this consumer may try now.
func (c *consumer[T]) nextSuspect() (s suspect, ok bool) {
	t := &c.careful
	if !c.suspectsWait() {
		return suspect{}, false
	}
	if !c.beginTrial() {
		t.found = nil // another consumer of the process tries one, and the next survey is soon enough
		return suspect{}, false
	}
	s, t.found = t.found[0], t.found[1:]
	return s, true
}

// trySuspect marks a suspect, commits, and only then reads it.
func (c *consumer[T]) trySuspect(loop *batch.Loop, s suspect) *batch.Failure {
	defer func() {
		if c.careful.trial == nil {
			c.endTrial()
		}
	}()
	most := c.queue.cfg.MaxCrashes
	last := s.crashes >= most-1
	dead := s.alone == sqlbatch.OnlyMessage && s.crashes >= most
	alone, d := sqlbatch.OnlySuspect, c.cfg.LeaseFor
	switch {
	case dead: // it stays so if it cannot be dead-lettered before its lease ends, which may take long for a large body
		alone, d = sqlbatch.OnlyMessage, max(d, c.cfg.StatementTimeout)
	case last:
		alone = sqlbatch.NotAlone
	}
	b, failure := c.mark(loop, s.item, d, alone, false)
	if failure != nil || len(b.rows) == 0 {
		return failure
	}
	row := &b.rows[0]
	if dead || row.expired {
		reason := ReasonExpired
		if !row.expired {
			reason = crashed(row, s.crashes)
		}
		reserved := c.reserve(&b)
		reserved.SetAside(reason)
		c.setAside([]*lease.Lease{reserved})
		c.surveys.atOnce() // before the next suspect, which may be one of a lower priority
		return nil
	}
	if last {
		reserved := c.reserve(&b)
		if !c.empty(reserved) {
			if reserved.Take(lease.Release) {
				c.settler.AddAll(reserved)
			}
			return nil
		}
		item := reserved.Item
		reserved.Lose(lease.Lost) // the mark has another fence
		if b, failure = c.mark(loop, item, d, sqlbatch.OnlyMessage, true); failure != nil || len(b.rows) == 0 {
			return failure
		}
	}
	c.count(func(s *ConsumerStats) { s.Claims++; s.Claimed++ })
	b.trial = true
	c.deliver(loop, b)
	if last {
		c.awaitTrial()
	}
	return nil
}

// crashed says why a message is dead.
func crashed(row *claimedRow, crashes int) string {
	return fmt.Sprintf("chanq: %d attempts, and %d leases that ran out without a settle: %d while its consumer handled no other suspect, the last one while it handled no other message. Its handlers die, hang, or lose their leases",
		row.Attempts-1, row.Lapses, crashes)
}

// reserve makes a lease of a marked message that is not read yet.
func (c *consumer[T]) reserve(b *claimedBatch) *lease.Lease {
	l := c.unreadLease(&b.rows[0], b.deadline, b.until)
	c.hold([]*lease.Lease{l})
	return l
}

// unreadLease makes a lease of a message whose contents are not read. No reader gets it.
func (c *consumer[T]) unreadLease(row *claimedRow, deadline, until time.Duration) *lease.Lease {
	l := &lease.Lease{Home: &c.leases, Item: row.item, Due: row.Due, Priority: row.Priority, Attempt: row.Attempts, Lapses: row.Lapses}
	l.Begin(deadline, until)
	return l
}

// empty waits until the consumer holds nothing but a lease that is reserved, and no handler runs. It reports false after Stop, and
// when that lease has ended. It waits LeaseFor at most for a handler whose lease has ended: one that hangs never returns.
func (c *consumer[T]) empty(reserved *lease.Lease) bool {
	c.awaitDelivered()
	c.releaseBuffer()
	pause := batch.Backoff{Low: time.Millisecond, High: 100 * time.Millisecond}
	held := base.Now() // when others were held last
	for c.stop.Err() == nil && !reserved.Ended() {
		switch now := base.Now(); {
		case c.held.Load() > 1:
			held = now
		case c.working.Load() == 0, now-held > c.cfg.LeaseFor:
			return true
		}
		batch.Sleep(c.stop, pause.Pause())
	}
	return false
}

// awaitTrial waits until the last trial is over, or for Stop.
func (c *consumer[T]) awaitTrial() {
	timer := time.NewTicker(min(c.cfg.LeaseFor/3, 100*time.Millisecond))
	defer timer.Stop()
	for c.reviewTrial(); c.stop.Err() == nil && c.careful.trial != nil; c.reviewTrial() {
		select {
		case <-c.stop.Done():
		case <-c.cleared:
		case <-timer.C:
		}
	}
}

// mark marks a message, and leases it. Its rows are none if the message is gone, or another consumer has it. An unknown outcome is found
// out, because an expired lease of a trial that never began would count.
func (c *consumer[T]) mark(loop *batch.Loop, item sqlbatch.Item, d time.Duration, alone sqlbatch.Alone, again bool) (b claimedBatch, failure *batch.Failure) {
	for known := true; ; {
		rows := claimedRows{inline: -1}
		start := base.Now()
		failure = loop.Try(c.abandoned, func(context.Context) (err error) {
			if !known {
				if item.Fence, known, err = c.fenceOf(item.ID); err != nil || !known {
					return err
				}
			}
			err = c.runClaim(c.queue.sql.Mark(sqlbatch.MarkParams{
				Item: item, Lease: d, Member: c.member.ID, Salt: newSalt(), Alone: alone, Again: again,
			}), rows.scan)
			if _, notRun := err.(*session.NotRunError); err != nil && !notRun && c.queue.classify(err) == sqlbatch.Unknown {
				known, again = false, true
			}
			return err
		})
		switch {
		case failure == nil:
			now := base.Now()
			return claimedBatch{
				rows: rows.rows, deadline: lease.After(start, d), until: start + c.cfg.MaxExtend,
				event: ClaimedEvent{Queue: c.queue.label, Messages: len(rows.rows), Bytes: rows.bytes, Took: now - start},
			}, nil
		case table.IsPermanent(failure.Class), c.abandoned.Err() != nil, !again, c.stop.Err() != nil && alone != sqlbatch.OnlyMessage:
			return claimedBatch{}, failure
		}
		batch.Sleep(c.abandoned, loop.Failed(c.abandoned, failure))
	}
}

// fenceOf looks for a message. known is false if it is gone.
func (c *consumer[T]) fenceOf(id [16]byte) (fence int64, known bool, err error) {
	ctx, cancel := context.WithTimeout(c.abandoned, c.claimPatience())
	defer cancel()
	items, _, err := c.sessions.Items(ctx, c.queue.sql.Look([][16]byte{id}), nil)
	if err != nil || len(items) == 0 {
		return 0, false, err
	}
	return items[0].Fence, true, nil
}

// readContents reads the contents of a leased message into its row. Otherwise it has the lease released, lost, or settled
// as a failed attempt, and reports false.
func (c *consumer[T]) readContents(loop *batch.Loop, l *lease.Lease, row *claimedRow) bool {
	failed, locked := 0, false
	for {
		found := false
		failure := loop.Try(c.abandoned, func(context.Context) error {
			return c.runWithin(c.cfg.StatementTimeout, c.queue.sql.Contents(l.Item), func(rows *sql.Rows) error {
				found = true
				return row.scanContents(rows)
			})
		})
		if failure == nil && found {
			return true
		}
		if failure != nil && table.IsPermanent(failure.Class) {
			c.broken(c.queue.fail("claim", failure.Err))
		}
		seen, err := c.queue.on(c.sessions).Look(c.abandoned, c.claimPatience(), [][16]byte{l.Item.ID})
		_, _, hidden := seen.Of(l.Item.ID)
		locked = locked || failure == nil || failure.Class == sqlbatch.RolledBack || hidden
		switch {
		case l.Ended():
			return false
		case c.stop.Err() != nil:
			l.Take(lease.Release)
			return false
		case err != nil: // the database does not answer
			failed = 0
		case l.Row(seen) != lease.RowHeld:
			c.extender.Lose(l, lease.Lost)
			return false
		default:
			failed++
		}
		switch {
		case failed < 2:
		case !l.Take(lease.Release):
			return false
		case locked:
			if !l.Suspect { // which is claimed as others are
				l.Op, l.Delay = lease.Snooze, nackDelay(c.backoff(l.Failures()))
			}
			return false
		default:
			c.blame(l, failure.Err)
			return false
		}
		pause := batch.ShortPause
		if failure != nil {
			pause = loop.Failed(c.abandoned, failure)
		}
		batch.Sleep(c.stop, pause)
	}
}

// blame makes a failed attempt of a settling lease whose message cannot be read.
func (c *consumer[T]) blame(l *lease.Lease, cause error) {
	if late, ok := cause.(*lateError); ok {
		l.Text = fmt.Sprintf("chanq: could not be read within %v", late.within)
	} else {
		l.Text, l.Quiet = fmt.Sprintf("%s%v", reasonRead, cause), true
	}
	l.Op, l.Delay = lease.Nack, nackDelay(c.backoff(l.Failures()))
}

// lateError is the failure of a statement whose answer did not arrive in time.
type lateError struct {
	err    error
	within time.Duration
}

func (e *lateError) Error() string { return e.err.Error() }
func (e *lateError) Unwrap() error { return e.err }
