package claim

import (
	"context"
	"math"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
)

// Ordered reads the messages of an ordered queue. Package order decides which statement is next, Step runs it, and the
// Slots keep the result. This file has the pauses.
//
// Run runs statements one after another, in its own goroutine, until the consumer stops. The feed calls the Slots in
// another goroutine. At the end Finish runs the remaining statements until the slots are returned.
type Ordered struct {
	cfg        *Config
	pace       *Pace
	slots      *Slots
	table      OrderedTable
	loop       batch.Loop    // used by Run, and then by Finish
	restsUntil time.Duration // no statement about slots before this time, after a failed one

	// Used by Run.
	idle   batch.Backoff
	pollAt time.Duration // when to read next although nothing indicates new messages
}

// NewOrdered returns the Ordered of a consumer.
func NewOrdered(s *Slots, t OrderedTable) *Ordered {
	return &Ordered{
		cfg: s.cfg, pace: s.pace, slots: s, table: t, loop: s.cfg.loop(), idle: s.cfg.idle(),
	}
}

// Source returns the slots.
func (r *Ordered) Source() Source { return r.slots }

// Run runs until the consumer stops.
func (r *Ordered) Run() {
	for r.cfg.Stop.Err() == nil && !r.next() {
	}
	r.pace.unsubscribe()
}

// next runs the next statement, or pauses. It reports that the consumer has stopped.
func (r *Ordered) next() (stopped bool) {
	if _, hurried := r.cfg.Waiter.Heard(); hurried {
		r.slots.Hurry()
		r.pollAt = 0
	}
	b := r.budget()
	if b.Poll && r.slots.Counts().Slots > 0 {
		r.cfg.Subscription.Answer() // by the read that follows
	}
	quiet := !r.cfg.holds()
	did, failure := r.step(b)
	if did.Failed > 0 {
		r.pace.size.Failed(did.Failed)
	}
	switch {
	case failure != nil && table.IsPermanent(failure.Class):
		r.cfg.Holder.Broken("claim", failure.Err)
		return true
	case failure != nil:
		batch.Sleep(r.cfg.Stop, r.loop.Failed(r.cfg.Abandoned, failure))
	case did.Read:
		r.account(did, b)
		return quiet && did.Contents == 0 && r.stopIdle(did)
	case did.Looked && r.slots.Counts().Slots == 0: // there is nothing to read
		return quiet && r.stopIdle(did)
	case !did.Statement:
		r.pause(b)
	}
	return false
}

// step runs the next statement.
func (r *Ordered) step(b order.Budget) (did Did, failure *batch.Failure) {
	failure = r.loop.Try(r.cfg.Abandoned, func(context.Context) (err error) {
		if did, err = r.Step(b); err == nil && !did.Statement {
			return batch.ErrNotAsked
		}
		return err
	})
	if did.Looked {
		r.pace.looks.Add(1)
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
		Room: r.pace.room(r.slots.Waiting()), Items: min(traits.AckItems, traits.NackItems), Lapsed: r.pace.careful(),
		Fetch: r.pace.size.Of(fetch), Rows: r.pace.size.Of(traits.ClaimRows), Poll: base.Now() >= r.pollAt,
	}
}

// account records the result of a read, and when the next one follows.
func (r *Ordered) account(did Did, b order.Budget) {
	if did.Contents == 0 {
		r.pace.empty.Add(1)
		if r.cfg.Subscription.ClaimedNone() { // slots might be free
			r.slots.Hurry()
		}
		pause := r.idle.Poll()
		if r.cfg.Subscription.Live() {
			pause = r.cfg.PollEvery
		}
		r.pollAt = base.Now() + pause
		return
	}
	r.pace.claims.Add(1)
	r.pollAt = base.Now() + r.pace.after(&r.idle, did.Contents, did.Contents >= b.Room)
}

// due returns when a step might have something to do for the budget; the greatest Duration if the membership has ended.
func (r *Ordered) due(b order.Budget) time.Duration {
	s := r.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lasts() {
		return math.MaxInt64
	}
	now := base.Now()
	_, wait := s.reb.Due(now)
	return min(max(now+min(wait, math.MaxInt64-now), r.restsUntil), s.seq.Due(b, now))
}

// pause waits until a statement is due.
func (r *Ordered) pause(b order.Budget) {
	s, now := r.cfg.Subscription, base.Now()
	wait := min(r.due(b)-now, time.Minute)
	unslotted := r.slots.Counts().Slots == 0 // there is nothing to read
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
		r.pace.unsubscribe() // its readers are busy: other consumers may be woken
		wait = min(wait, 100*time.Millisecond)
	}
	timer := time.NewTimer(max(wait, time.Millisecond))
	defer timer.Stop()
	select {
	case <-r.cfg.Stop.Done():
	case <-r.cfg.Waiter.Woken():
		s.InProcess()
		r.pollAt = 0
	case _, open := <-s.Heard():
		if s.Received(open) {
			r.pollAt = 0
			if unslotted { // slots might be free
				r.slots.Hurry()
			}
		}
	case <-r.cfg.Cleared:
		r.pollAt = 0
	case <-r.pace.progress:
	case <-timer.C:
	}
}

// stopIdle stops the consumer if StopWhenIdle is set and a read, or a check of the slots, has found that nothing is
// due. Nothing was held before that statement.
func (r *Ordered) stopIdle(did Did) (stopped bool) {
	if r.cfg.Halt == nil {
		return false
	}
	// While the database might count a former membership as alive, its slots look like slots of another consumer.
	term := r.slots.term
	rests := r.slots.rests() && (term.noticed == 0 || base.Now() > term.noticed+r.cfg.LeaseFor)
	if did.Read && !did.Walked { // in a paused queue nothing is due
		rests = r.table.Paused() && !r.cfg.holds()
	}
	if rests {
		r.cfg.Halt()
	}
	return rests
}

// Finish returns the slots as their handlers end, until ctx ends.
func (r *Ordered) Finish(ctx context.Context) {
	r.slots.End()
	r.loop = r.cfg.loop()
	for !r.slots.Empty() && ctx.Err() == nil {
		did, failure := r.step(order.Budget{Items: min(r.cfg.Traits.AckItems, r.cfg.Traits.NackItems)})
		switch {
		case failure != nil && table.IsPermanent(failure.Class):
			return // the slots expire
		case failure != nil:
			batch.Sleep(ctx, r.loop.Failed(ctx, failure))
		case !did.Statement:
			wait := min(r.due(order.Budget{})-base.Now(), time.Second)
			select {
			case <-r.pace.progress:
			case <-ctx.Done():
			case <-time.After(max(wait, time.Millisecond)):
			}
		}
	}
}
