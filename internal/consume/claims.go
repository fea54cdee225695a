package consume

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// A consumer's claims: package claim makes them, package consume hands them to readers, and this is what they need of the consumer.

// newClaims makes the claims, on a session of their own.
func (c *Consumer) newClaims() {
	cfg := &c.cfg
	q := cfg.Table
	var owned func() []int
	if q.Ordered {
		owned = func() []int { return c.order.Owned() }
	}
	subscription := notify.NewSubscription(cfg.Debouncer.Notifier, cfg.Debouncer.Queue, owned)
	own := claim.Config{
		Limits: cfg.Limits, Traits: q.Dialect.Traits(), Classify: q.Classify, Health: cfg.Health, Stop: c.stop, Abandoned: c.abandoned,
		Home: &c.home, Consumer: claiming{c}, Trials: c.trial, Subscription: &subscription, Woken: c.waiter.Woken(), Cleared: c.cleared,
	}
	if c.group != nil {
		own.Idleness = groupMember{c.group, c}
	}
	c.pace = claim.NewPace(own)
	on := table.Claims{Part: c.parts.claim, Context: c.abandoned, MaxLook: c.mostSpare()}
	if !q.Ordered {
		c.claims = claim.NewPlain(c.pace, &table.Plain{Claims: on, Queue: q, Notes: c.parts.note}, c.neighbours, cfg.Member.ID)
		return
	}
	c.here = claim.NewMembership(cfg.Member.ID, base.Now)
	c.order = claim.NewOrdered(c.pace, claim.OrderedConfig{
		Membership: c.here,
		Table:      &table.Ordered{Claims: on, SQL: q.SQL, Within: min(cfg.StatementTimeout, cfg.LeaseFor)},
		Paused: func() bool {
			ctx, cancel := context.WithTimeout(c.abandoned, c.spareTime())
			defer cancel()
			return cfg.Paused(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
				return c.parts.claim.RunPatient(ctx, st, scan)
			})
		},
	})
	c.claims = c.order
}

// claiming is a consumer as its claims call it.
type claiming struct{ c *Consumer }

// Connect takes the connections, where they are few. What fails is met again by the claim.
func (k claiming) Connect() {
	c := k.c
	ctx, cancel := context.WithTimeout(c.stop, c.cfg.StatementTimeout)
	defer cancel()
	began := time.Now()
	for _, p := range c.parts.all() {
		if err := p.Fill(ctx); err != nil {
			if c.stop.Err() == nil {
				c.cfg.Health.Failed(began, err)
			}
			return
		}
	}
}

func (k claiming) Heard() (places sqlbatch.Heads, hurried bool) { return k.c.waiter.Heard() }

func (k claiming) Track(leases []*lease.Lease) {
	k.c.held.Add(int64(len(leases)))
	k.c.group.delivers()
	k.c.extender.Track(leases)
}

func (k claiming) Lose(l *lease.Lease, to lease.State) { k.c.extender.Lose(l, to) }
func (k claiming) Settle(leases ...*lease.Lease)       { k.c.settler.AddAll(leases...) }
func (k claiming) Backlogged() bool                    { return k.c.settler.Backlogged() }

func (k claiming) Held() (leases, handlers int) {
	return int(k.c.held.Load()), int(k.c.working.Load())
}

func (k claiming) Claimed(rows []table.Claimed) { k.c.cfg.Observer.Claimed(rows) }
func (k claiming) Broken(err error)             { k.c.Broken("claim", err) }
func (k claiming) Freed()                       { k.c.wake() }

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
		k.c.cfg.Debouncer.Notify(1, notify.Slots{}, false)
	}
}
