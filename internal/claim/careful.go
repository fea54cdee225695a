package claim

import (
	"errors"
	"math"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Careful claims of plain queues
//
// A message might kill its process while its body is read or decoded, in its handler, or while it is settled. The leases of all messages of
// that process then expire, and the database does not know which message was the cause. An unreadable message fails the claim of all
// messages that are claimed with it. In both cases a consumer marks one message by its ID, commits, and then reads the message. Any failure
// after that is caused by this message alone.
//
// # States of a message
//
//	free ──Claim──▶ leased ──settle──▶ gone, or free: lapses and crashes are 0, except after a release
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
// All consumers of a process, of all its queues, try one suspect at a time and claim other messages meanwhile. The next suspect may be
// tried when the lease of the first has ended. While a suspect is reserved, its consumer claims nothing, releases its buffer and waits
// until its handlers have returned and everything is settled. It claims nothing during the last trial. For its own consumer a trial ends
// when the database has stored the settle, when the row is gone, or when the lease expires. Every settle sets alone to 0, so that a later
// expiry does not count as one of a trial.
//
// A rescan finds the first message of each priority that no consumer leases, if it is a suspect. The suspect of the highest priority is
// tried first, before the next claim. After a dead-lettering there is another rescan before the next suspect. A claim takes expired
// suspects, because they are only dead-lettered.
//
// # Failures
//
//	the process dies in the statement of a claim    the claim is undone and nothing is counted. The claim reads no
//	                                                body above inlineMost bytes.
//	the process dies later                          each of its leases expires, as above
//	a claim fails, whatever its class               the next claim is for half as many messages (batch.Size). After a
//	                                                claim of one message the next claim leases a message without
//	                                                reading it.
//	a mark has an unknown outcome                   its row is read, and the mark repeated with the fence that was
//	                                                read: it counts nothing if the first mark was applied. After
//	                                                some tries claims go on between two tries, except before a last
//	                                                trial, where the consumer holds nothing else.
//	a mark fails otherwise                          the next rescan finds the suspect again
//	the contents of a leased message                its row is looked up. If the row is found twice and its contents
//	cannot be read                                  cannot be read, that is a failed attempt of this message. If the row is
//	                                                locked, or the database cancels the read, the message is released,
//	                                                with a delay if it is no suspect. If the database does not answer
//	                                                the query, the consumer waits for it.
//	Stop                                            reserved messages, and messages not read yet, are released
//
// Ordered queues handle suspects in package internal/order.

// trials runs the trials of suspects, which rescans find.
type trials struct {
	*intake
	rescans *rescans
	turn    *Neighbour

	lease *lease.Lease  // of the suspect on trial, or nil
	look  time.Duration // when its row may be looked up, after the lease has ended
	pause batch.Backoff // between such queries

	// doubtful is the suspect whose mark might have been applied: the consumer keeps the turn. It is nil if there is none.
	doubtful *table.Suspect
	again    time.Duration // when it is marked again
	growing  batch.Backoff // until then
}

// markTries is how often a mark of unknown outcome is repeated before claims go on.
const markTries = 3

// canBegin reports that a suspect can be tried.
func (t *trials) canBegin() bool {
	if t.doubtful != nil {
		return base.Now() >= t.again
	}
	return t.lease == nil && len(t.rescans.suspects) > 0
}

// wait returns the time until a doubtful mark is to be repeated, or a finished trial to be reviewed.
func (t *trials) wait() time.Duration {
	switch {
	case t.doubtful != nil:
		return max(0, t.again-base.Now())
	case t.lease != nil && t.lease.Ended():
		return max(time.Millisecond, min(t.look, t.lease.Period.Deadline())-base.Now())
	}
	return math.MaxInt64
}

// review ends a finished trial. It looks up a lease that was acked in a transaction, or whose settle has an unknown outcome.
func (t *trials) review() {
	switch {
	case t.lease == nil || !t.lease.Ended():
		return
	case isOver(t.lease):
	case base.Now() < t.look:
		return
	default:
		seen, err := t.table.Look(t.cfg.lookTimeout(), [][16]byte{t.lease.Item.ID})
		t.look = base.Now() + t.pause.Pause()
		if err != nil || t.lease.Row(seen) == lease.RowHeld {
			return
		}
	}
	t.lease, t.rescans.suspects = nil, nil
	t.turn.End()
	t.rescans.head.hurried = true // to find the next suspect
}

// isOver reports that a lease is known to have ended in the database, so that the end of this process does not count as a crash of its
// message. A settle also finds that out whose row has another fence, or is gone. A lease that was revoked counts as over as well: see
// EndWith for the one in its place.
func isOver(l *lease.Lease) bool {
	switch l.State() {
	case lease.Lost:
		return true
	case lease.Settled:
		err := l.Outcome()
		if err == nil || errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrSettled) || errors.Is(err, lease.ErrHidden) {
			return true
		}
	}
	return base.Now() >= l.Period.Deadline()
}

// next takes a suspect that this consumer may try now.
func (t *trials) next() (s table.Suspect, ok bool) {
	if !t.canBegin() {
		return table.Suspect{}, false
	}
	if t.doubtful != nil {
		return *t.doubtful, true
	}
	found := t.rescans.suspects
	if !t.turn.Begin() {
		t.rescans.suspects = nil // another consumer of the process tries a suspect, and the next rescan finds this one again
		return table.Suspect{}, false
	}
	s, t.rescans.suspects = found[0], found[1:]
	return s, true
}

// try marks a suspect, commits, and only then reads it.
func (t *trials) try(s table.Suspect) *batch.Failure {
	defer func() {
		if t.lease == nil && t.doubtful == nil {
			t.turn.End()
		}
	}()
	most := t.cfg.MaxCrashes
	last := s.Crashes >= most-1
	dead := s.Alone == sqlbatch.OnlyMessage && s.Crashes >= most
	alone, d := sqlbatch.OnlySuspect, t.cfg.LeaseFor
	switch {
	case dead: // it stays dead if it cannot be dead-lettered before its lease ends, which might take long for a large body
		alone, d = sqlbatch.OnlyMessage, max(d, t.cfg.StatementTimeout)
	case last:
		alone = sqlbatch.NotAlone
	}
	c, unknown, failure := t.mark(s.Item, d, alone, t.doubtful != nil)
	t.doubt(s, unknown)
	if failure != nil || len(c.Leases) == 0 {
		return failure
	}
	l, row := c.Leases[0], &c.Rows[0]
	if dead || row.Expired {
		cause, reason := sqlbatch.CauseExpired, base.ReasonExpired
		if !row.Expired {
			cause, reason = sqlbatch.CauseKilled, crashed(row, s.Crashes)
		}
		t.cfg.Holder.Track([]*lease.Lease{l})
		t.cfg.deadLetter(l, row, cause, reason)
		t.cfg.Holder.Settle(l)
		t.rescans.atOnce() // before the next suspect, which may be one of a lower priority
		return nil
	}
	if last { // the message of the first mark is not delivered
		t.cfg.Holder.Track([]*lease.Lease{l})
		if !t.waitUntilEmpty(l) {
			if l.Take(lease.Release) {
				t.cfg.Holder.Settle(l)
			}
			return nil
		}
		l.Lose(lease.Lost) // the second mark has another fence
		if c, _, failure = t.mark(l.Item, d, sqlbatch.OnlyMessage, true); failure != nil || len(c.Leases) == 0 {
			return failure
		}
	}
	t.lease, t.look, t.pause = c.Leases[0], 0, batch.Backoff{Low: 10 * time.Millisecond, High: time.Second}
	t.lease.Suspect = true
	t.turn.EndWith(t.lease)
	t.deliver(c)
	if last {
		t.waitForEnd()
	}
	return nil
}

// doubt keeps or drops a suspect whose mark might have been applied and is to be repeated. The pauses end before the lease of that mark
// does, because another process would treat it as expired.
func (t *trials) doubt(s table.Suspect, unknown bool) {
	if !unknown {
		t.doubtful = nil
		return
	}
	if t.doubtful == nil {
		most := min(batch.HighPause, t.cfg.LeaseFor/3)
		t.growing = batch.Backoff{Low: min(batch.ShortPause, most), High: most}
	}
	t.doubtful, t.again = &s, base.Now()+t.growing.Pause()
}

// waitUntilEmpty waits until the consumer holds only a reserved lease, and no handler runs. It returns false after Stop, and when that
// lease has ended. It waits at most LeaseFor for a handler whose lease has ended, because a hanging handler never returns.
func (t *trials) waitUntilEmpty(reserved *lease.Lease) bool {
	t.cfg.Holder.Settle(lease.TakeAll(t.buffer.recall(), lease.Release)...)
	defer t.buffer.keep()
	pause := batch.Backoff{Low: time.Millisecond, High: 100 * time.Millisecond}
	held := base.Now() // when other leases were last held
	for t.cfg.Stop.Err() == nil && !reserved.Ended() {
		now := base.Now()
		if leases, _ := t.cfg.Holder.Held(); leases > 1 {
			held = now
		} else if t.cfg.quiet(now - held) {
			return true
		}
		batch.Sleep(t.cfg.Stop, pause.Pause())
	}
	return false
}

// waitForEnd waits until the trial has ended, or for Stop.
func (t *trials) waitForEnd() {
	for t.review(); t.cfg.Stop.Err() == nil && t.lease != nil; t.review() {
		select {
		case <-t.cfg.Stop.Done():
		case <-t.cfg.Cleared:
		case <-time.After(min(t.cfg.LeaseFor/3, 100*time.Millisecond)):
		}
	}
}

// mark marks a message, and leases it. There is no lease if the message is gone, or another consumer has it. An unknown outcome is
// resolved, because an expired lease of a trial that never began would count. unknown reports that this is still to be done. again means
// that the consumer might have marked the message before.
func (t *trials) mark(item sqlbatch.Item, d time.Duration, alone sqlbatch.Alone, again bool) (c claimed, unknown bool, failure *batch.Failure) {
	known := t.doubtful == nil
	reserved, most := again && known, markTries
	if !known {
		most = 1
	}
	for tries := 1; ; tries++ {
		rows := table.ClaimedRows{Inline: -1}
		start := base.Now()
		failure = t.run(func() (err error) {
			if !known {
				if item.Fence, known, err = t.table.Fence(t.cfg.lookTimeout(), item.ID); err != nil || !known {
					return err
				}
			}
			err = t.table.Mark(t.cfg.claimTime(), sqlbatch.MarkParams{
				Item: item, Lease: d, Consumer: t.consumer, Salt: table.NewSalt(), Alone: alone, Again: again,
			}, &rows)
			if err != nil && !table.DidNotRun(err) && t.cfg.Classify(err) == sqlbatch.Unknown {
				known, again = false, true
			}
			return err
		})
		switch {
		case failure == nil:
			return t.leased(&rows, start, base.Now()-start, d), false, nil
		case table.IsPermanent(failure.Class), t.cfg.Abandoned.Err() != nil, !again, t.cfg.Stop.Err() != nil && alone != sqlbatch.OnlyMessage:
			return claimed{}, false, failure
		case tries >= most && !reserved:
			return claimed{}, true, failure
		}
		batch.Sleep(t.cfg.Abandoned, t.loop.Failed(t.cfg.Abandoned, failure))
	}
}
