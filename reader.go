package chanq

import (
	"context"
	"database/sql"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The claimer of an ordered queue. It owns slots and reads their messages; package claim decides which ones, and when each of
// them may be delivered. Here are the pace, the leases and the channel.
//
// The consumer's goroutines for it: claimAll, which runs one statement after another until Stop; run, which makes leases of
// messages whose turn it is and moves them to the channel; and at the end vacate, which runs the statements that are left until
// the slots are returned.
type reader[T any] struct {
	c      *consumer[T]
	reader *claim.Reader

	ready   chan struct{} // of capacity 1: messages may be delivered
	recall  chan struct{} // of capacity 1: slots are being returned
	changed chan struct{} // of capacity 1: a statement may be due

	sent   atomic.Int64 // leases on the channel, so far
	took   atomic.Int64 // time of statements about messages since the last Claimed event
	inHand atomic.Int64 // of run

	// Of claimAll, and then of vacate.
	asked  uint64 // when the last step began, by the IdleGroup
	quiet  bool   // nothing was held then
	idle   batch.Backoff
	pollAt time.Duration // of the next read although nothing indicates new messages
	term   int64         // the number of the membership
	former time.Duration // until then the database might count the one before as alive
}

// The bounds of what a Sequencer keeps.
const (
	unreadMost  = 4      // messages that a key keeps in addition to its first one
	blockedMost = 10_000 // keys whose first message is not deliverable, at which reading stops
)

func newReader[T any](c *consumer[T]) *reader[T] {
	r := &reader[T]{
		c: c, ready: make(chan struct{}, 1), recall: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		idle: batch.Backoff{Low: c.cfg.PollMin, High: c.cfg.PollMax},
	}
	q, traits := c.queue, c.queue.dialect.Traits()
	r.reader = claim.New(claim.Config{
		Order: order.Config{
			Unread: unreadMost, MostUnread: min(256, c.cfg.Prefetch/4), Blocked: blockedMost, Bytes: c.cfg.PrefetchBytes,
			Rows: traits.ClaimRows, Behind: sqlbatch.MostWalked, OneWriter: traits.OneWriter, SampleIsFirst: traits.WatermarkFirst,
			Holds: q.cfg.DeadKey == DeadKeyHolds, MaxCrashes: q.cfg.MaxCrashes, Process: trialTurn[T]{c},
		},
		Slots: q.cfg.Slots, Keys: q.cfg.keysOf, Table: table.Ordered{SQL: q.sql, Run: c.runClaim}, Inline: c.inline, Membership: c.here, Salt: newSalt, Now: base.Now,
		RolledBack: func(err error) bool { return q.classify(err) == sqlbatch.RolledBack },
		Ready:      func() { base.Signal(r.ready) },
		Woken:      func() { base.Signal(r.changed) },
		Recalled:   func() { base.Signal(r.recall) },
		Freed:      q.wake,
	})
	return r
}

// claimAll runs until Stop. supervise then takes back what is on the channel, and closes it.
func (r *reader[T]) claimAll() {
	c := r.c
	loop := batch.Loop{Health: c.health, Classify: c.queue.classify}
	c.connect()
	for c.stop.Err() == nil {
		if _, hurried := c.ears.heard(); hurried {
			r.reader.Hurry()
			r.pollAt = 0
		}
		b := r.budget()
		if b.Poll && r.reader.Counts().Slots > 0 {
			c.subscription.Answer() // by the read that follows
		}
		did, failure := r.step(&loop, b)
		switch {
		case did.Failed:
			c.size.Failed(did.Asked)
		case did.Contents > 0:
			c.size.Worked(did.Asked, did.Took, c.claimPatience())
		}
		switch {
		case failure != nil && table.IsPermanent(failure.Class):
			c.broken(c.queue.fail("claim", failure.Err))
			return
		case failure != nil:
			batch.Sleep(c.stop, loop.Failed(c.abandoned, failure))
		case did.Read:
			if r.account(did, b) {
				return
			}
		case did.Looked && r.reader.Counts().Slots == 0: // it has nothing to read
			if r.stopIdle(did) {
				return
			}
		case !did.Statement:
			r.pause(b)
		}
	}
}

// step runs the next statement.
func (r *reader[T]) step(loop *batch.Loop, b order.Budget) (did claim.Did, failure *batch.Failure) {
	if r.c.idleness != nil {
		r.asked, r.quiet = r.c.idleness.begin()
	}
	failure = loop.Try(r.c.abandoned, func(context.Context) (err error) {
		if did, err = r.reader.Step(b); err == nil && !did.Statement {
			return batch.ErrNotAsked
		}
		return err
	})
	r.took.Add(int64(did.Took))
	if did.Looked {
		r.c.count(func(s *ConsumerStats) { s.Looks++ })
	}
	return did, failure
}

// budget bounds the next task.
func (r *reader[T]) budget() order.Budget {
	c, traits := r.c, r.c.queue.dialect.Traits()
	fetch := traits.FindIDs
	if c.flow.meanBytes > 0 {
		fetch = min(fetch, max(1, c.cfg.PrefetchBytes/c.flow.meanBytes))
	} else {
		fetch = 1
	}
	return order.Budget{
		Room: r.room(), Items: min(traits.AckItems, traits.NackItems), Fetch: c.size.Of(fetch), Rows: c.size.Of(traits.ClaimRows),
		Poll: base.Now() >= r.pollAt,
	}
}

// room returns for how many messages there is room.
func (r *reader[T]) room() int {
	c := r.c
	counts := r.reader.Counts() // first: what comes to the channel now counts twice, not never
	ready := counts.Ready + int(r.inHand.Load())
	c.flow.delivered = r.sent.Load()
	return c.room(ready)
}

// account notes what a read has brought, and when the next one follows. It reports that the consumer has stopped.
func (r *reader[T]) account(did claim.Did, b order.Budget) (stopped bool) {
	c := r.c
	c.flow.atWork = did.Contents > 0
	if did.Contents == 0 {
		c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
		if c.subscription.Vain() { // slots may be free
			r.reader.Hurry()
		}
		pause := r.idle.Poll()
		if c.subscription.Live() {
			pause = c.cfg.PollMax
		}
		r.pollAt = base.Now() + pause
		return r.stopIdle(did)
	}
	c.flow.lastClaim, c.flow.meanBytes = did.Contents, max(1, did.Bytes/did.Contents)
	c.count(func(s *ConsumerStats) { s.Claims++ })
	pause := c.pauseAfter(&r.idle, did.Contents, did.Contents >= b.Room)
	r.pollAt = base.Now() + pause
	return false
}

// pause waits until a statement is due.
func (r *reader[T]) pause(b order.Budget) {
	c, now := r.c, base.Now()
	r.reader.Calm(c.subscription.Live())
	wait := min(r.reader.Due(b)-now, time.Minute)
	bare := r.reader.Counts().Slots == 0 // there is nothing to read
	if b.Room > 0 {
		if !bare {
			wait = min(wait, r.pollAt-now)
		}
		if c.subscription.Follow() || c.subscribe(wait) {
			r.pollAt = 0
			return
		}
		wait = min(wait, c.subscription.Deaf())
	} else {
		c.unsubscribe() // its readers are busy: others may wake
		wait = min(wait, 100*time.Millisecond)
	}
	timer := time.NewTimer(max(wait, time.Millisecond))
	defer timer.Stop()
	select {
	case <-c.stop.Done():
	case <-c.ears.woken:
		c.subscription.InProcess()
		r.pollAt = 0
	case _, open := <-c.subscription.Heard():
		if c.subscription.Received(open) {
			r.pollAt = 0
			if bare { // slots may be free
				r.reader.Hurry()
			}
		}
	case <-c.cleared:
		r.pollAt = 0
	case <-c.progress:
	case <-r.changed:
	case <-timer.C:
	}
}

// run moves messages whose turn it is to the channel, as leases, until Stop, and then gives back what it has in hand.
func (r *reader[T]) run() {
	var hand []*Lease[T]
	for r.c.stop.Err() == nil {
		r.inHand.Store(int64(len(hand)))
		if len(hand) == 0 {
			if hand = r.next(hand); len(hand) == 0 {
				select {
				case <-r.ready:
				case <-r.recall:
					hand = r.recalled(hand)
				case <-r.c.stop.Done():
				}
				continue
			}
		}
		select {
		case r.c.out <- hand[0]:
			r.sent.Add(1)
			hand = hand[1:]
		case <-r.recall:
			hand = r.recalled(hand)
		case <-r.c.stop.Done():
		}
	}
	r.giveBack(partsOf(hand))
	r.inHand.Store(0)
}

// handful is how many messages are made leases of at a time.
const handful = 256

// next makes leases of messages whose turn it is.
func (r *reader[T]) next(hand []*Lease[T]) []*Lease[T] {
	c := r.c
	list, ends := r.reader.Deliver(min(handful, c.cfg.Prefetch))
	if len(list) == 0 {
		return hand
	}
	rows, size := make([]claimedRow, len(list)), 0
	for i := range list {
		rows[i] = rowOf(&list[i])
		size += len(rows[i].Body)
	}
	leases := buildLeases[T](c.queue, rows, &c.leases, ends, base.Now()+c.cfg.MaxExtend)
	for i, l := range leases {
		l.Fence, l.lease.Delivery, l.lease.Message = list[i].Fence, list[i].Fence, list[i].Message
		if rows[i].Unread != nil {
			c.blame(l.lease, rows[i].Unread)
		}
	}
	leases, aside := c.keep(leases)
	r.sent.Add(int64(aside)) // they count as taken
	c.count(func(s *ConsumerStats) { s.Claimed += int64(len(list)) })
	r.inHand.Store(int64(len(leases)))
	call(c.queue.cfg.Hooks.Claimed, ClaimedEvent{Queue: c.queue.label, Messages: len(list), Bytes: size, Took: time.Duration(r.took.Swap(0))})
	return append(hand, leases...)
}

// rowOf is a message that is delivered, or dead-lettered in its place, as a row of a claim.
func rowOf(d *order.Delivery) claimedRow {
	row := claimedRow{item: sqlbatch.Item{ID: d.ID, Fence: d.Message.Fence}, expired: d.Expired}
	if d.Crashed {
		row.crashes = d.Crashes()
	}
	if in, ok := d.Contents.(*table.Row); ok {
		row.Row = *in
	}
	return row
}

// recalled takes back what is on the channel, and in hand, of slots that are being returned, and returns the rest. Of a key there
// is one lease at most, so no order is lost.
func (r *reader[T]) recalled(hand []*Lease[T]) []*Lease[T] {
	mine := len(hand)
	hand = takeAll(r.c.out, hand)
	r.sent.Add(int64(mine - len(hand)))
	return slices.DeleteFunc(hand, func(l *Lease[T]) bool {
		leaving := r.reader.Leaving(l.lease.Message)
		if leaving {
			r.giveBack([]*lease.Lease{l.lease})
		}
		return leaving
	})
}

// giveBack has leases released that no handler has.
func (r *reader[T]) giveBack(leases []*lease.Lease) {
	var back []*lease.Lease
	for _, l := range leases {
		if l.Take(lease.Release) {
			back = append(back, l)
		}
	}
	if len(back) > 0 {
		r.c.settler.AddAll(back...)
	}
}

// moved takes what became of leases: see lease.Owner.
func (r *reader[T]) moved(leases []*lease.Lease) {
	list := make([]claim.Settled, 0, len(leases))
	for _, l := range leases {
		if e, ended := ending(l); ended && l.Message != nil {
			list = append(list, claim.Settled{Message: l.Message, Fence: l.Delivery, Settle: e})
		}
	}
	r.reader.Settled(list)
}

// ending returns what became of a lease, if it is over or in a transaction.
func ending(l *lease.Lease) (e order.Settle, ended bool) {
	switch l.State() {
	case lease.InTx:
		return order.Settle{Outcome: order.InTx, Until: l.Deadline()}, true
	case lease.Expired, lease.Lost:
		return order.Settle{}, true
	case lease.Settled:
		switch err := l.Outcome(); {
		case err == ErrSettled, err == nil && l.Op == lease.Ack:
			return order.Settle{Outcome: order.Acked}, true
		case err != nil:
			return order.Settle{}, true
		case l.Op == lease.Dead:
			return order.Settle{Outcome: order.Dead}, true
		}
		return order.Settle{Outcome: order.Given, Wait: l.Delay}, true
	}
	return order.Settle{}, false
}

func (r *reader[T]) awaits(l *lease.Lease) bool {
	return l.Message != nil && r.reader.Awaited(l.Message)
}

// returned notes that the handler of a lease that is in a transaction has returned.
func (r *reader[T]) returned(l *lease.Lease) { r.reader.Ended(l.Message, l.Delivery) }

// hurry has the slots looked at now.
func (r *reader[T]) hurry() {
	r.reader.Hurry()
	base.Signal(r.changed)
}

// stats fills in what is of ordered queues.
func (r *reader[T]) stats(s *ConsumerStats) {
	counts := r.reader.Counts()
	s.Buffered += counts.Ready + int(r.inHand.Load())
	s.Waiting, s.Slots, s.BlockedKeys = counts.Unread, counts.Slots, counts.Blocked
}

// vacate returns the slots, as their handlers end, until ctx ends.
func (r *reader[T]) vacate(ctx context.Context) {
	r.reader.End()
	loop := batch.Loop{Health: r.c.health, Classify: r.c.queue.classify}
	for !r.reader.Empty() && ctx.Err() == nil {
		did, failure := r.step(&loop, order.Budget{Items: 1})
		switch {
		case failure != nil:
			batch.Sleep(ctx, loop.Failed(ctx, failure))
		case !did.Statement:
			wait := min(r.reader.Due(order.Budget{})-base.Now(), time.Second)
			select {
			case <-r.changed:
			case <-ctx.Done():
			case <-time.After(max(wait, time.Millisecond)):
			}
		}
	}
}

// stopIdle ends the consumer if StopWhenIdle is set and a read, or a look at the slots, has found that nothing is due.
func (r *reader[T]) stopIdle(did claim.Did) (stopped bool) {
	c := r.c
	if c.idleness == nil || !r.quiet {
		return false
	}
	if term, _, _ := c.here.Current(); term.Number != r.term {
		r.term, r.former = term.Number, base.Now()+c.cfg.LeaseFor
	}
	rests := r.reader.Rests() && base.Now() > r.former // before, slots of the former membership look like those of another consumer
	if did.Read && !did.Walked {                       // of a paused queue nothing is due
		ctx, cancel := context.WithTimeout(c.abandoned, c.cfg.StatementTimeout)
		defer cancel()
		found, err := c.queue.stored(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
			return c.sessions.RunPatient(ctx, st, scan)
		})
		rests = err == nil && found.paused != 0 && c.holds() <= 0
	}
	if !rests {
		c.idleness.notIdle(c)
		return false
	}
	return c.idleness.isIdle(c, r.asked)
}

// trialTurn has the consumers of a process try one suspect of a queue at a time: see order.Process.
type trialTurn[T any] struct{ c *consumer[T] }

func (t trialTurn[T]) Begin() bool { return t.c.beginTrial() }
func (t trialTurn[T]) End()        { t.c.endTrial() }
