package consume

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
)

// A consumer's claims: package claim makes them, package consume hands them to readers, and this is what they need of the consumer.

// newClaims makes the claims, on a session of their own.
func (c *Consumer) newClaims() {
	cfg, o, e := &c.cfg, c.owner, c.ending
	q := cfg.Table
	var owned func() []int
	if q.Ordered {
		owned = func() []int { return o.order.Owned() }
	}
	debouncer := &cfg.Signals.Debouncer
	subscription := notify.NewSubscription(debouncer.Notifier, debouncer.Queue, owned)
	own := claim.Config{
		Limits: cfg.Limits, Traits: q.Dialect.Traits(), Classify: q.Classify, Health: cfg.Health, Stop: c.load.stop, Abandoned: e.abandoned,
		Home: &o.home, Holder: claiming{c}, Trials: o.trial, Subscription: &subscription, Waiter: c.waiter, Cleared: c.load.cleared, MaxLook: cfg.mostSpare(),
	}
	if cfg.Group != nil {
		own.Idleness = c.load
	}
	o.pace = claim.NewPace(own)
	on := table.Claims{Part: c.parts.claim, Context: e.abandoned, MaxLook: cfg.mostSpare()}
	if !q.Ordered {
		plain := claim.NewPlain(o.pace, &table.Plain{Claims: on, Queue: q, Notes: c.parts.note}, c.neighbours, cfg.Member.ID)
		c.claims, c.source = plain, plain.Source()
		return
	}
	c.member.here = claim.NewMembership(cfg.Member.ID, base.Now)
	o.order = claim.NewSlots(o.pace, c.member.here)
	c.source = o.order
	c.claims = claim.NewOrdered(o.order, &table.Ordered{Claims: on, SQL: q.SQL, Within: min(cfg.StatementTimeout, cfg.LeaseFor)}, func() bool {
		ctx, cancel := context.WithTimeout(e.abandoned, cfg.spareTime())
		defer cancel()
		var found table.Stored
		_, err := c.parts.claim.RunPatient(ctx, q.SQL.Version(), found.Scan)
		return err == nil && found.Paused
	})
}

// connect takes the connections before there are leases, where they are few. What fails is met again by the claim.
func (c *Consumer) connect() {
	ctx, cancel := context.WithTimeout(c.load.stop, c.cfg.StatementTimeout)
	defer cancel()
	began := time.Now()
	for _, p := range c.parts.all() {
		if err := p.Fill(ctx); err != nil {
			if c.load.stop.Err() == nil {
				c.cfg.Health.Failed(began, err)
			}
			return
		}
	}
}

// claiming is a consumer as its claims call it: see claim.Holder.
type claiming struct{ c *Consumer }

func (k claiming) Track(leases []*lease.Lease) {
	k.c.load.track(len(leases))
	k.c.owner.extender.Track(leases)
}

func (k claiming) Lose(l *lease.Lease, to lease.State) { k.c.owner.extender.Lose(l, to) }
func (k claiming) Settle(leases ...*lease.Lease)       { k.c.SettleAll(leases...) }
func (k claiming) Backlogged() bool                    { return k.c.owner.settler.Backlogged() }

func (k claiming) Held() (leases, handlers int) {
	return int(k.c.load.leases.Load()), int(k.c.load.handlers.Load())
}

func (k claiming) Claimed(rows []table.Claimed) { k.c.cfg.Observer.Claimed(rows) }
func (k claiming) Broken(err error)             { k.c.Broken("claim", err) }
func (k claiming) Freed()                       { k.c.cfg.Signals.Wake() }

func (k claiming) Doomed(l *lease.Lease, row *table.Claimed) { k.c.cfg.Doomed(l, row) }

func (k claiming) Delay(l *lease.Lease, row *table.Claimed, err error) time.Duration {
	return k.c.cfg.Delay(l, row, err)
}

func (k claiming) Delivered(messages, bytes int, took time.Duration) {
	k.c.cfg.Observer.Delivered(messages, bytes, took)
}

// PassOn wakes another consumer of a plain queue. On an ordered one each owner of a slot is notified.
func (k claiming) PassOn() {
	if !k.c.cfg.Table.Ordered {
		k.c.cfg.Signals.Debouncer.Notify(1, notify.Slots{}, false)
	}
}
