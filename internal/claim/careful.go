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
// A rescan finds the first message of each priority that no consumer leases, if it is a suspect. The suspect of the highest priority
// is tried first, before the next claim, and after a dead-lettering another rescan comes before the next suspect. A claim takes
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
//	a mark fails otherwise                          the next rescan finds the suspect again
//	the contents of a leased message                a look for its row. If the look finds the row twice and its contents
//	cannot be read                                  cannot be read, that is a failed attempt of this message. If the row is
//	                                                locked, or the database cancels the read, the message is released,
//	                                                for later if it is no suspect. If the database does not answer
//	                                                the look, the consumer waits for it.
//	Stop                                            a reserved message, and one that is not read yet, is released
//
// Ordered queues handle suspects in package internal/order.

// careful is what is known of suspects.
type careful struct {
	found []table.Suspect // by the last rescan: at most one of each priority

	trial *lease.Lease  // nil: there is none
	look  time.Duration // when its row may be looked for, after it has ended
	pause batch.Backoff // between looks after it
}

// suspectsWait reports that a suspect can be tried.
func (p *Plain) suspectsWait() bool {
	return p.careful.trial == nil && len(p.careful.found) > 0
}

// reviewTrial ends a trial that is over. A lease that was acked in a transaction, or whose settle has an unknown outcome, is
// looked for.
func (p *Plain) reviewTrial() {
	t := &p.careful
	switch {
	case t.trial == nil || !t.trial.Ended():
		return
	case isOver(t.trial):
	case base.Now() < t.look:
		return
	default:
		seen, err := p.table.Look(p.cfg.patience(), lease.IDs([]*lease.Lease{t.trial}))
		t.look = base.Now() + t.pause.Pause()
		if err != nil || t.trial.Row(seen) == lease.RowHeld {
			return
		}
	}
	t.trial, t.found = nil, nil
	p.cfg.Trials.End()
	p.head.hurried = true // for the next one
}

// isOver reports that a lease is known to have ended in the database, so that a death of this process is no crash of its message.
func isOver(l *lease.Lease) bool {
	switch l.State() {
	case lease.Lost:
		return true
	case lease.Settled:
		if err := l.Outcome(); err == nil || errors.Is(err, lease.ErrLost) {
			return true
		}
	}
	return base.Now() >= l.Period.Deadline()
}

// nextSuspect takes a suspect that this consumer may try now.
func (p *Plain) nextSuspect() (s table.Suspect, ok bool) {
	t := &p.careful
	if !p.suspectsWait() {
		return table.Suspect{}, false
	}
	if !p.cfg.Trials.Begin() {
		t.found = nil // another consumer of the process tries one, and the next rescan is soon enough
		return table.Suspect{}, false
	}
	s, t.found = t.found[0], t.found[1:]
	return s, true
}

// beginTrial notes that a lease is the trial of a suspect.
func (p *Plain) beginTrial(l *lease.Lease) {
	l.Suspect = true
	p.careful.trial, p.careful.look = l, 0
	p.careful.pause = batch.Backoff{Low: 10 * time.Millisecond, High: time.Second}
}

// trySuspect marks a suspect, commits, and only then reads it.
func (p *Plain) trySuspect(s table.Suspect) *batch.Failure {
	defer func() {
		if p.careful.trial == nil {
			p.cfg.Trials.End()
		}
	}()
	most := p.cfg.MaxCrashes
	last := s.Crashes >= most-1
	dead := s.Alone == sqlbatch.OnlyMessage && s.Crashes >= most
	alone, d := sqlbatch.OnlySuspect, p.cfg.LeaseFor
	switch {
	case dead: // it stays so if it cannot be dead-lettered before its lease ends, which may take long for a large body
		alone, d = sqlbatch.OnlyMessage, max(d, p.cfg.StatementTimeout)
	case last:
		alone = sqlbatch.NotAlone
	}
	b, failure := p.mark(s.Item, d, alone, false)
	if failure != nil || len(b.rows) == 0 {
		return failure
	}
	row := &b.rows[0]
	if dead || row.Expired {
		cause, reason := sqlbatch.CauseExpired, base.ReasonExpired
		if !row.Expired {
			cause, reason = sqlbatch.CauseKilled, crashed(row, s.Crashes)
		}
		reserved := p.reserve(&b)
		p.cfg.deadLetter(reserved, row, cause, reason)
		p.cfg.Consumer.Settle(reserved)
		p.rescanAtOnce() // before the next suspect, which may be one of a lower priority
		return nil
	}
	if last {
		reserved := p.reserve(&b)
		if !p.empty(reserved) {
			if reserved.Take(lease.Release) {
				p.cfg.Consumer.Settle(reserved)
			}
			return nil
		}
		item := reserved.Item
		reserved.Lose(lease.Lost) // the mark has another fence
		if b, failure = p.mark(item, d, sqlbatch.OnlyMessage, true); failure != nil || len(b.rows) == 0 {
			return failure
		}
	}
	p.pace.count(Counts{Claims: 1, Claimed: 1})
	b.trial = true
	p.deliver(b)
	if last {
		p.awaitTrial()
	}
	return nil
}

// reserve makes a lease of a marked message that is not read yet. No reader gets it.
func (p *Plain) reserve(b *claimed) *lease.Lease {
	row := &b.rows[0]
	l := &lease.Lease{Home: p.cfg.Home, Item: row.Item, Due: row.Due, Priority: row.Priority, Attempt: row.Attempts, Lapses: row.Lapses}
	l.Period.Begin(b.deadline, b.until)
	p.cfg.Consumer.Track([]*lease.Lease{l})
	return l
}

// empty waits until the consumer holds nothing but a lease that is reserved, and no handler runs. It reports false after Stop, and
// when that lease has ended. It waits LeaseFor at most for a handler whose lease has ended: one that hangs never returns.
func (p *Plain) empty(reserved *lease.Lease) bool {
	p.cfg.Consumer.Settle(lease.TakeAll(p.recall(), lease.Release)...)
	defer p.keep()
	pause := batch.Backoff{Low: time.Millisecond, High: 100 * time.Millisecond}
	held := base.Now() // when others were held last
	for p.cfg.Stop.Err() == nil && !reserved.Ended() {
		leases, handlers := p.cfg.Consumer.Held()
		switch now := base.Now(); {
		case leases > 1:
			held = now
		case handlers == 0, now-held > p.cfg.LeaseFor:
			return true
		}
		batch.Sleep(p.cfg.Stop, pause.Pause())
	}
	return false
}

// awaitTrial waits until the last trial is over, or for Stop.
func (p *Plain) awaitTrial() {
	timer := time.NewTicker(min(p.cfg.LeaseFor/3, 100*time.Millisecond))
	defer timer.Stop()
	for p.reviewTrial(); p.cfg.Stop.Err() == nil && p.careful.trial != nil; p.reviewTrial() {
		select {
		case <-p.cfg.Stop.Done():
		case <-p.cfg.Cleared:
		case <-timer.C:
		}
	}
}

// mark marks a message, and leases it. Its rows are none if the message is gone, or another consumer has it. An unknown outcome is found
// out, because an expired lease of a trial that never began would count.
func (p *Plain) mark(item sqlbatch.Item, d time.Duration, alone sqlbatch.Alone, again bool) (b claimed, failure *batch.Failure) {
	for known := true; ; {
		rows := table.ClaimedRows{Inline: -1}
		start := base.Now()
		failure = p.loop.Try(p.cfg.Abandoned, func(context.Context) (err error) {
			if !known {
				if item.Fence, known, err = p.table.Fence(p.cfg.patience(), item.ID); err != nil || !known {
					return err
				}
			}
			err = p.table.Mark(p.cfg.patience(), sqlbatch.MarkParams{
				Item: item, Lease: d, Member: p.member, Salt: table.NewSalt(), Alone: alone, Again: again,
			}, &rows)
			if err != nil && !table.DidNotRun(err) && p.cfg.Classify(err) == sqlbatch.Unknown {
				known, again = false, true
			}
			return err
		})
		switch {
		case failure == nil:
			return claimed{
				rows: rows.Rows, bytes: rows.Bytes, took: base.Now() - start, deadline: lease.After(start, d), until: start + p.cfg.MaxExtend,
			}, nil
		case table.IsPermanent(failure.Class), p.cfg.Abandoned.Err() != nil, !again, p.cfg.Stop.Err() != nil && alone != sqlbatch.OnlyMessage:
			return claimed{}, failure
		}
		batch.Sleep(p.cfg.Abandoned, p.loop.Failed(p.cfg.Abandoned, failure))
	}
}

// readContents reads the contents of a leased message into its row. If that fails, the lease is lost, or in state Settling: it is to
// be released, or settled as a failed attempt.
func (p *Plain) readContents(l *lease.Lease, row *table.Claimed) {
	failed, locked := 0, false
	for {
		found := false
		failure := p.loop.Try(p.cfg.Abandoned, func(context.Context) (err error) {
			found, err = p.table.Contents(p.cfg.StatementTimeout, row)
			return err
		})
		if failure == nil && found {
			return
		}
		if failure != nil && table.IsPermanent(failure.Class) {
			p.cfg.Consumer.Broken(failure.Err)
		}
		seen, err := p.table.Look(p.cfg.patience(), [][16]byte{l.Item.ID})
		_, _, hidden := seen.Of(l.Item.ID)
		locked = locked || failure == nil || failure.Class == sqlbatch.RolledBack || hidden
		switch {
		case l.Ended():
			return
		case p.cfg.Stop.Err() != nil:
			l.Take(lease.Release)
			return
		case err != nil: // the database does not answer
			failed = 0
		case l.Row(seen) != lease.RowHeld:
			p.cfg.Consumer.Lose(l, lease.Lost)
			return
		default:
			failed++
		}
		switch {
		case failed < 2:
		case !l.Take(lease.Release):
			return
		case locked:
			if !l.Suspect { // which is claimed as others are
				cause := errLocked
				if failure != nil {
					cause = failure.Err
				}
				l.Op, l.Delay = lease.Snooze, p.cfg.Consumer.Delay(l, row, cause)
			}
			return
		default:
			p.cfg.blame(l, row, failure.Err)
			return
		}
		pause := batch.ShortPause
		if failure != nil {
			pause = p.loop.Failed(p.cfg.Abandoned, failure)
		}
		batch.Sleep(p.cfg.Stop, pause)
	}
}
