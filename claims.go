package chanq

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// A consumer's claims: package claim makes them, package consume hands them to readers, and this is what they need of the consumer.

// newClaims makes the claims of a consumer, on a session of their own.
func (c *consumer) newClaims(s *sessions) {
	q, cfg := c.queue, c.cfg
	ears, unlisten := q.key.listen()
	c.unlisten, c.trial.ears = unlisten, ears
	var owned func() []int
	if q.ordered() {
		owned = func() []int { return c.order.Owned() }
	}
	subscription := notify.NewSubscription(q.debouncer.Notifier, q.debouncer.Queue, owned)
	own := claim.Config{
		Prefetch: cfg.Prefetch, PrefetchBytes: cfg.PrefetchBytes, MaxBody: q.cfg.MaxBody, MaxCrashes: q.cfg.MaxCrashes,
		LeaseFor: cfg.LeaseFor, MaxExtend: cfg.MaxExtend, PollMin: cfg.PollMin, PollMax: cfg.PollMax, StatementTimeout: cfg.StatementTimeout,
		Traits: q.dialect.Traits(), Classify: q.classify, Health: c.health, Stop: c.stop, Abandoned: c.abandoned,
		Home: &c.leases, Consumer: claiming{c, ears}, Trials: &c.trial, Subscription: &subscription, Woken: ears.woken, Cleared: c.cleared,
	}
	if c.idleness != nil {
		own.Idleness = idleMember{c.idleness, c}
	}
	c.pace = claim.NewPace(own)
	on := table.Claims{Part: s.Part, Context: c.abandoned}
	if !q.ordered() {
		c.claims = claim.NewPlain(c.pace, &table.Plain{Claims: on, Queue: q.table, Beside: c.notes.Part}, ears.gate, c.member.ID)
		return
	}
	c.here = claim.NewMembership(c.member.ID, base.Now)
	c.order = claim.NewOrdered(c.pace, claim.OrderedConfig{
		Slots: q.cfg.Slots, Keys: q.cfg.keysOf, DeadHolds: q.cfg.DeadKey == DeadKeyHolds, Membership: c.here,
		Table: &table.Ordered{Claims: on, SQL: q.sql, Within: min(cfg.StatementTimeout, cfg.LeaseFor)},
		Paused: func() bool {
			ctx, cancel := context.WithTimeout(c.abandoned, cfg.StatementTimeout)
			defer cancel()
			found, err := q.stored(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return s.RunPatient(ctx, st, scan) })
			return err == nil && found.paused != 0
		},
	})
	c.claims = c.order
}

// newFeed makes the feed of a consumer, whose leases have bodies of type T.
func newFeed[T any](c *consumer) *consume.Feed[*Lease[T]] {
	f := consume.NewFeed(consume.Config[*Lease[T]]{
		Source: c.claims, Room: c.cfg.Prefetch,
		Build:   func(b claim.Batch, into []*Lease[T]) []*Lease[T] { return build(c, b, into) },
		Under:   func(l *Lease[T]) *lease.Lease { return l.lease },
		Release: func(back []*lease.Lease) { c.settler.AddAll(back...) },
	})
	c.feed = f
	c.pace.Serve(f)
	return f
}

// claiming is a consumer as its claims call it.
type claiming struct {
	c    *consumer
	ears *listener
}

// Connect takes the connections, where they are few. What fails is met again by the claim.
func (k claiming) Connect() {
	c := k.c
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

func (k claiming) Heard() (places sqlbatch.Floors, hurried bool) { return k.ears.heard() }

func (k claiming) Track(leases []*lease.Lease) {
	k.c.held.Add(int64(len(leases)))
	k.c.idleness.delivers()
	k.c.extender.Track(leases)
}

func (k claiming) Lose(l *lease.Lease, to lease.State) { k.c.extender.Lose(l, to) }
func (k claiming) Settle(leases ...*lease.Lease)       { k.c.settler.AddAll(leases...) }
func (k claiming) Backlogged() bool                    { return k.c.settler.Backlogged() }

func (k claiming) Held() (leases, handlers int) {
	return int(k.c.held.Load()), int(k.c.working.Load())
}

func (k claiming) Delay(failures int) time.Duration { return nackDelay(k.c.backoff(failures)) }
func (k claiming) Claimed(rows []table.Claimed)     { k.c.queue.recorder.claimed(rows) }

func (k claiming) Delivered(messages, bytes int, took time.Duration) {
	call(k.c.queue.cfg.Hooks.Claimed, ClaimedEvent{Queue: k.c.queue.label, Messages: messages, Bytes: bytes, Took: took})
}

func (k claiming) Broken(err error) { k.c.broken(k.c.queue.fail("claim", err)) }

// PassOn wakes another consumer of a plain queue. On an ordered one each owner of a slot is notified.
func (k claiming) PassOn() {
	if !k.c.queue.ordered() {
		k.c.queue.debouncer.Notify(1, notify.Slots{}, false)
	}
}

func (k claiming) Freed() { k.c.queue.wake() }

// trial is the turn of a consumer among those of its process to try a suspect of the queue: see order.Process.
type trial struct {
	ears   *listener
	trying atomic.Bool // it is this consumer's turn
}

// Begin reports false if it is the turn of another one.
func (t *trial) Begin() bool {
	if !t.ears.beginTrial() {
		return false
	}
	t.trying.Store(true)
	return true
}

// End ends the turn, if it is this consumer's.
func (t *trial) End() {
	if t.trying.CompareAndSwap(true, false) {
		t.ears.endTrial()
	}
}
