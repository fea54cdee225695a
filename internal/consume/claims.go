package consume

import (
	"time"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
)

// Package claim makes the claims of a consumer, and package consume delivers them to readers. This file connects the
// two.

// newClaims makes the claims, on their own session.
func (c *Consumer) newClaims() {
	cfg, o, e := &c.cfg, c.owner, c.ending
	q := cfg.Table
	var owned func() []int
	if q.Ordered {
		owned = func() []int { return o.slots.Owned() }
	}
	subscription := notify.NewSubscription(&cfg.Signals.Debouncer, owned)
	own := claim.Config{
		Limits: cfg.Limits, Queue: q, Traits: q.Dialect.Traits(), Health: cfg.Health, Stop: c.load.stop,
		Abandoned: e.abandoned,
		Home:      &o.home, Neighbours: o.neighbours, Subscription: &subscription, Waiter: c.waiter,
		Holder: o,
	}
	if cfg.StopWhenIdle {
		own.Halt, own.Cleared = c.load.halt, c.load.drained
	}
	o.pace = claim.NewPace(own)
	on := table.Claims{Table: table.Table{Queue: q, Part: c.parts.claim}, Context: e.abandoned}
	if !q.Ordered {
		c.claims = claim.NewPlain(o.pace, &table.Plain{Claims: on, Notes: c.parts.note}, cfg.Row.ID)
		return
	}
	o.slots = claim.NewSlots(o.pace, c.membership)
	c.claims = claim.NewOrdered(o.slots, &table.Ordered{
		Claims: on, Within: cfg.UsefulTimeout(), LookWithin: cfg.LookTimeout(),
	})
}

// connect opens the connections before there are leases, if there are few. If it fails, the claim reports the same
// error.
func (c *Consumer) connect() {
	began := time.Now()
	if err := c.parts.settle.Connect(c.load.stop, c.cfg.StatementTimeout); err != nil && c.load.stop.Err() == nil {
		c.cfg.Health.Failed(began, err)
	}
}
