package claim

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Ordered reads the messages of an ordered queue, and has leases of those whose turn it is. Its Reader decides which slots to own,
// which statement is next, and when each message may be delivered. Here are the pace and the leases.
//
// Run runs one statement after another until the consumer stops, and is its goroutine. The feed calls Next in another one. At the
// end Vacate runs the statements that are left until the slots are returned.
type Ordered struct {
	cfg    *Config
	pace   *Pace
	table  orderedClaims
	paused func() bool
	here   *Membership
	reader *Reader
	loop   batch.Loop

	ready    chan struct{} // of capacity 1: messages may be delivered
	recalled chan struct{} // of capacity 1: slots are being returned
	changed  chan struct{} // of capacity 1: a statement may be due

	took atomic.Int64 // time of statements about messages since the last Delivered

	// Of Run, and then of Vacate.
	asked  uint64 // when the last step began, by the Idleness
	quiet  bool   // nothing was held then
	idle   batch.Backoff
	pollAt time.Duration // of the next read although nothing indicates new messages
	term   int64         // the number of the membership
	former time.Duration // until then the database might count the one before as alive
}

// orderedClaims has the statements of an Ordered: see table.Ordered.
type orderedClaims interface {
	OrderedTable
	Busy(bool)
}

// OrderedConfig is what an Ordered has besides a Config.
type OrderedConfig struct {
	Table      orderedClaims
	Membership *Membership
	// Paused reports that the queue is paused. It asks the database.
	Paused func() bool
}

// The bounds of what a Sequencer keeps.
const (
	unreadMost = 4 // messages that a key keeps in addition to its first one
	// BlockedMost is the number of keys whose first message is not deliverable at which reading stops.
	BlockedMost = 10_000
)

// NewOrdered returns the reads of a consumer.
func NewOrdered(pace *Pace, o OrderedConfig) *Ordered {
	cfg := &pace.cfg
	r := &Ordered{
		cfg: cfg, pace: pace, table: o.Table, paused: o.Paused, here: o.Membership, loop: cfg.loop(),
		ready: make(chan struct{}, 1), recalled: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		idle: batch.Backoff{Low: cfg.PollMin, High: cfg.PollEvery},
	}
	traits := cfg.Traits
	r.reader = NewReader(ReaderConfig{
		Order: order.Config{
			Unread: unreadMost, MostUnread: min(256, cfg.Prefetch/4), Blocked: BlockedMost, Bytes: cfg.PrefetchBytes,
			Rows: traits.ClaimRows, Behind: sqlbatch.MostWalked, OneWriter: traits.OneWriter, SampleIsFirst: traits.WatermarkFirst,
			Holds: cfg.Policy().Holds, MaxCrashes: cfg.MaxCrashes, Process: cfg.Trials,
		},
		Slots: cfg.Slots, Keys: cfg.keys, Table: o.Table, Inline: cfg.inline, Membership: o.Membership, Salt: table.NewSalt, Now: base.Now,
		RolledBack: func(err error) bool { return cfg.Classify(err) == sqlbatch.RolledBack },
		Ready:      func() { base.Signal(r.ready) },
		Woken:      func() { base.Signal(r.changed) },
		Recalled:   func() { base.Signal(r.recalled) },
		Freed:      cfg.Consumer.Freed,
	})
	return r
}

// PolicyChanged has the new policy of the queue respected.
func (r *Ordered) PolicyChanged() { r.reader.SetPolicy(r.cfg.Policy().Holds) }

// Run runs until the consumer stops.
func (r *Ordered) Run() {
	r.cfg.Consumer.Connect()
	for r.cfg.Stop.Err() == nil && !r.next() {
	}
	r.pace.unsubscribe()
}

// next runs the next statement, or pauses. It reports that the consumer has stopped.
func (r *Ordered) next() (stopped bool) {
	if _, hurried := r.cfg.Consumer.Heard(); hurried {
		r.reader.Hurry()
		r.pollAt = 0
	}
	b := r.budget()
	if b.Poll && r.reader.Counts().Slots > 0 {
		r.cfg.Subscription.Answer() // by the read that follows
	}
	did, failure := r.step(b)
	switch {
	case did.Failed:
		r.pace.size.Failed(did.Asked)
	case did.Contents > 0:
		r.pace.size.Worked(did.Asked, did.Took, r.cfg.patience())
	}
	switch {
	case failure != nil && table.IsPermanent(failure.Class):
		r.cfg.Consumer.Broken(failure.Err)
		return true
	case failure != nil:
		batch.Sleep(r.cfg.Stop, r.loop.Failed(r.cfg.Abandoned, failure))
	case did.Read:
		return r.account(did, b)
	case did.Looked && r.reader.Counts().Slots == 0: // it has nothing to read
		return r.stopIdle(did)
	case !did.Statement:
		r.pause(b)
	}
	return false
}

// step runs the next statement.
func (r *Ordered) step(b order.Budget) (did Did, failure *batch.Failure) {
	if r.cfg.Idleness != nil {
		r.asked, r.quiet = r.cfg.Idleness.Begin()
	}
	failure = r.loop.Try(r.cfg.Abandoned, func(context.Context) (err error) {
		if did, err = r.reader.Step(b); err == nil && !did.Statement {
			return batch.ErrNotAsked
		}
		return err
	})
	r.took.Add(int64(did.Took))
	if did.Looked {
		r.pace.count(Counts{Looks: 1})
	}
	return did, failure
}

// budget bounds the next task.
func (r *Ordered) budget() order.Budget {
	traits, fetch := r.cfg.Traits, 1
	if r.pace.meanBytes > 0 {
		fetch = min(traits.FindIDs, max(1, r.cfg.PrefetchBytes/r.pace.meanBytes))
	}
	return order.Budget{
		Room: r.pace.room(r.Waiting()), Items: min(traits.AckItems, traits.NackItems), Fetch: r.pace.size.Of(fetch), Rows: r.pace.size.Of(traits.ClaimRows),
		Poll: base.Now() >= r.pollAt,
	}
}

// account notes what a read has brought, and when the next one follows. It reports that the consumer has stopped.
func (r *Ordered) account(did Did, b order.Budget) (stopped bool) {
	r.table.Busy(did.Contents > 0)
	if did.Contents == 0 {
		r.pace.count(Counts{Empty: 1})
		if r.cfg.Subscription.ClaimedNone() { // slots may be free
			r.reader.Hurry()
		}
		pause := r.idle.Poll()
		if r.cfg.Subscription.Live() {
			pause = r.cfg.PollEvery
		}
		r.pollAt = base.Now() + pause
		return r.stopIdle(did)
	}
	r.pace.count(Counts{Claims: 1})
	r.pace.brought(did.Contents, did.Bytes)
	r.pollAt = base.Now() + r.pace.after(&r.idle, did.Contents, did.Contents >= b.Room)
	return false
}

// pause waits until a statement is due.
func (r *Ordered) pause(b order.Budget) {
	s, now := r.cfg.Subscription, base.Now()
	r.reader.Calm(s.Live())
	wait := min(r.reader.Due(b)-now, time.Minute)
	unslotted := r.reader.Counts().Slots == 0 // there is nothing to read
	if b.Room > 0 {
		if !unslotted {
			wait = min(wait, r.pollAt-now)
		}
		if s.Follow() || r.pace.subscribe(wait) {
			r.pollAt = 0
			return
		}
		wait = min(wait, s.MutedFor())
	} else {
		r.pace.unsubscribe() // its readers are busy: others may wake
		wait = min(wait, 100*time.Millisecond)
	}
	timer := time.NewTimer(max(wait, time.Millisecond))
	defer timer.Stop()
	select {
	case <-r.cfg.Stop.Done():
	case <-r.cfg.Woken:
		s.InProcess()
		r.pollAt = 0
	case _, open := <-s.Heard():
		if s.Received(open) {
			r.pollAt = 0
			if unslotted { // slots may be free
				r.reader.Hurry()
			}
		}
	case <-r.cfg.Cleared:
		r.pollAt = 0
	case <-r.pace.progress:
	case <-r.changed:
	case <-timer.C:
	}
}

// stopIdle ends the consumer if StopWhenIdle is set and a read, or a look at the slots, has found that nothing is due.
func (r *Ordered) stopIdle(did Did) (stopped bool) {
	if r.cfg.Idleness == nil || !r.quiet {
		return false
	}
	if term, _, _ := r.here.Current(); term.Number != r.term {
		r.term, r.former = term.Number, base.Now()+r.cfg.LeaseFor
	}
	rests := r.reader.Rests() && base.Now() > r.former // before, slots of the former membership look like those of another consumer
	if did.Read && !did.Walked {                       // of a paused queue nothing is due
		leases, handlers := r.cfg.Consumer.Held()
		rests = r.paused() && leases+handlers <= 0
	}
	if !rests {
		r.cfg.Idleness.NotIdle()
		return false
	}
	return r.cfg.Idleness.IsIdle(r.asked)
}

// Vacate returns the slots, as their handlers end, until ctx ends.
func (r *Ordered) Vacate(ctx context.Context) {
	r.reader.End()
	r.loop = r.cfg.loop()
	for !r.reader.Empty() && ctx.Err() == nil {
		did, failure := r.step(order.Budget{Items: 1})
		switch {
		case failure != nil:
			batch.Sleep(ctx, r.loop.Failed(ctx, failure))
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

// Next makes leases of messages whose turn it is. Those that no reader may get are settled.
func (r *Ordered) Next(n int) Batch {
	if n == 0 {
		return Batch{}
	}
	b, any := r.deliver(n)
	for len(b.Leases) == 0 && any { // no reader may get those; others may be ready behind them
		b, any = r.deliver(n)
	}
	return b
}

// deliver is Next for messages of which there may be none that a reader may get. any is false if there is no message.
func (r *Ordered) deliver(n int) (b Batch, any bool) {
	list, ends := r.reader.Deliver(min(n, r.cfg.Prefetch))
	if len(list) == 0 {
		return Batch{}, false
	}
	rows, size := make([]table.Claimed, len(list)), 0
	for i := range list {
		rows[i] = rowOf(&list[i])
		size += len(rows[i].Body)
	}
	leases := r.cfg.leases(rows, ends, base.Now()+r.cfg.MaxExtend)
	all := slices.Clone(leases)
	var aside []*lease.Lease
	kept := 0
	for i, l := range leases {
		l.Delivery, l.Message = list[i].Fence, list[i].Message
		switch d := &list[i]; {
		case d.Expired:
			r.cfg.deadLetter(l, &rows[i], sqlbatch.CauseExpired, base.ReasonExpired)
		case rows[i].Unread != nil:
			l.Take(lease.Nack)
			r.cfg.blame(l, &rows[i], rows[i].Unread)
		case d.Crashed && d.Crashes() > 0:
			r.cfg.deadLetter(l, &rows[i], sqlbatch.CauseKilled, crashed(&rows[i], d.Crashes()))
		}
		if l.State() == lease.Settling {
			aside = append(aside, l)
			continue
		}
		leases[kept], rows[kept] = l, rows[i]
		kept++
	}
	r.cfg.Consumer.Track(all) // from here on each of them may end
	r.pace.drop(len(aside))
	if len(aside) > 0 {
		r.cfg.Consumer.Settle(aside...)
	}
	r.pace.count(Counts{Claimed: int64(len(list))})
	r.cfg.Consumer.Delivered(len(list), size, time.Duration(r.took.Swap(0)))
	return Batch{leases[:kept], rows[:kept]}, true
}

// rowOf is a message that is delivered, or dead-lettered in its place, as a row of a claim.
func rowOf(d *order.Delivery) table.Claimed {
	row := table.Claimed{Item: sqlbatch.Item{ID: d.ID, Fence: d.Message.Fence}, Expired: d.Expired}
	if in, ok := d.Contents.(*table.Row); ok {
		row.Row = *in
	}
	return row
}

func (r *Ordered) Waiting() int              { return r.reader.Counts().Ready }
func (r *Ordered) Ready() <-chan struct{}    { return r.ready }
func (r *Ordered) Recalled() <-chan struct{} { return r.recalled }

// Recall reports a lease of a slot that is being returned. Of a key there is one lease at most, so no order is lost.
func (r *Ordered) Recall(l *lease.Lease) bool { return r.reader.Leaving(l.Message) }

// Close does nothing: Run leaves no goroutine.
func (r *Ordered) Close() {}

// Rest returns none: what was read is not leased.
func (r *Ordered) Rest() []*lease.Lease { return nil }

// Changed takes what became of leases: see lease.Owner.
func (r *Ordered) Changed(leases []*lease.Lease) {
	list := make([]Settled, 0, len(leases))
	for _, l := range leases {
		if e, ended := ending(l); ended && l.Message != nil {
			list = append(list, Settled{Message: l.Message, Fence: l.Delivery, Settle: e})
		}
	}
	r.reader.Settled(list)
}

// ending returns what became of a lease, if it is over or in a transaction.
func ending(l *lease.Lease) (e order.Settle, ended bool) {
	switch l.State() {
	case lease.InTx:
		return order.Settle{Outcome: order.InTx, Until: l.Period.Deadline()}, true
	case lease.Expired, lease.Lost:
		return order.Settle{}, true
	case lease.Settled:
		switch err := l.Outcome(); {
		case err == lease.ErrSettled, err == nil && l.Op == lease.Ack:
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

// Awaited reports whether other messages wait for the end of a lease.
func (r *Ordered) Awaited(l *lease.Lease) bool {
	return l.Message != nil && r.reader.Awaited(l.Message)
}

// Returned notes that the handler of a lease that is in a transaction has returned.
func (r *Ordered) Returned(l *lease.Lease) { r.reader.Ended(l.Message, l.Delivery) }

// Hurry has the slots looked at now.
func (r *Ordered) Hurry() {
	r.reader.Hurry()
	base.Signal(r.changed)
}

// Owned returns the slots that are read, in ascending order. It is not nil.
func (r *Ordered) Owned() []int { return r.reader.Owned() }

// Read returns what is in memory.
func (r *Ordered) Read() order.Counts { return r.reader.Counts() }
