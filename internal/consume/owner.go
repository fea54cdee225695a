package consume

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
)

// A consumer's settles and extensions: package settle stores them, and this is what the consumer makes of their outcomes.

func (c *Consumer) newSettler() *settle.Settler {
	cfg := &c.cfg
	return settle.New(settle.Config{
		Owner: c, Table: table.Table{Queue: cfg.Table, Part: c.parts.settle}, Traits: cfg.Table.Dialect.Traits(), Classify: cfg.Table.Classify,
		Health: cfg.Health, IsLast: cfg.Table.IsLast, Timeout: cfg.TryTimeout, LookTimeout: min(cfg.TryTimeout, c.spareTime()), Linger: cfg.Linger, Room: cfg.Backlog,
		Awaited: func(l *lease.Lease) bool { return c.order != nil && c.order.Awaited(l) }, Isolated: cfg.Isolated.Set,
		Known: cfg.Observer.Known, Stored: c.stored, Broken: c.Broken,
	}, c.abandoned)
}

func (c *Consumer) newExtender() *settle.Extender {
	cfg := &c.cfg
	return settle.NewExtender(settle.ExtenderConfig{
		Table: table.Table{Queue: cfg.Table, Part: c.parts.extend}, Traits: cfg.Table.Dialect.Traits(), Classify: cfg.Table.Classify,
		Health: cfg.Health, LeaseFor: cfg.LeaseFor, MaxExtend: cfg.MaxExtend, Taken: func() int64 { return c.feed.Taken() },
		Timeout: cfg.StatementTimeout, Member: c.memberUntil,
		Lost: cfg.Observer.Lost, Broken: c.Broken,
	})
}

// stored counts a group of settles, reports what was lost, and notes where messages are again.
func (c *Consumer) stored(began time.Time, t settle.Tally, leases []*lease.Lease) {
	if t != (settle.Tally{}) {
		c.cfg.Observer.Settled(t, time.Since(began))
	}
	var released []*lease.Lease
	var slots notify.Slots
	for _, l := range leases {
		if err := l.Outcome(); err != nil {
			failed, ok := err.(*lease.FailedError)
			if refused := ok && failed.Refused; refused || err == lease.ErrLost {
				if report := c.cfg.Observer.Lost(l, !refused); report != nil {
					report()
				}
			}
			continue
		}
		if l.Op == lease.Ack || l.Op == lease.Dead {
			continue
		}
		if l.Op == lease.Release {
			released = append(released, l)
		}
		if l.Message != nil {
			slots.Add(l.Message.Slot)
		}
	}
	if len(released) > 0 {
		c.cfg.Key.Lower(claim.PlacesOf(released))
	}
	c.mu.Lock()
	c.settled.Add(t)
	c.mu.Unlock()
	c.pace.Progress()
	// What was given back is another consumer's chance, whose pause ends here. Not
	// after a Release by a reader who goes on reading: one that releases whatever it
	// gets would claim it again and again, without a pause.
	if t.Nacked > 0 || t.Released > 0 && c.stop.Err() != nil {
		c.cfg.Key.Signal()
		c.cfg.Debouncer.Notify(t.Nacked+t.Released, slots, false)
	}
}

// wake has all idle consumers of the queue look at once.
func (c *Consumer) wake() {
	c.cfg.Key.Wake()
	c.cfg.Debouncer.Notify(0, notify.AnySlot, false)
}

// mind ends the consumer if err is a panic of the driver. It is for statements that are repeated whatever their outcome.
func (c *Consumer) mind(op string, err error) {
	if session.Panicked(err) {
		c.Broken(op, err)
	}
}

// The consumer as the owner of its leases.

// Expedite has settles stored soon: a caller waits for one.
func (c *Consumer) Expedite() { c.settler.Expedite() }

// Settle hands a lease to the settler.
func (c *Consumer) Settle(ctx context.Context, l *lease.Lease) error {
	c.pace.Take()
	return c.settler.Add(ctx, l)
}

// Extend asks the database, unless the consumer has ended, which does not wait for a lease that has expired: nothing would keep it.
func (c *Consumer) Extend(ctx context.Context, l *lease.Lease, d time.Duration) (held bool, err error) {
	if isClosed(c.extender.Ended()) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StatementTimeout)
	defer cancel()
	return c.extender.Extend(ctx, l, d, c.cfg.TryTimeout)
}

// Expire does what the extender does when it looks, which it need not have done yet, or never will: after a Shutdown that gave up.
func (c *Consumer) Expire(l *lease.Lease) { c.extender.Lose(l, lease.Expired) }

// Changed notes which leases are no longer held, and what others of their keys may do.
func (c *Consumer) Changed(leases ...*lease.Lease) {
	for _, l := range leases {
		if l.End() {
			c.leaseEnded(l)
		}
		if l.State() == lease.InTx {
			c.witness.add(l)
		}
	}
	if c.order != nil {
		c.order.Changed(leases)
	}
}

func (c *Consumer) leaseEnded(l *lease.Lease) {
	if l.State() != lease.Settled {
		c.pace.Take()
	}
	if l.Suspect {
		c.trial.End()
		base.Signal(c.cleared)
	}
	c.letGo()
}

// Take notes that a reader has taken a lease: a settle of it is under way.
func (c *Consumer) Take() { c.pace.Take() }

// SettleAll takes leases in state Settling. It does not wait.
func (c *Consumer) SettleAll(leases ...*lease.Lease) { c.settler.AddAll(leases...) }

// Finished takes settles that were stored elsewhere, with their outcomes.
func (c *Consumer) Finished(began time.Time, outcomes []batch.Outcome[*lease.Lease]) {
	c.settler.Done(began, outcomes)
}

// Flush waits until every settle that was handed over before has its outcome.
func (c *Consumer) Flush(ctx context.Context) error { return c.settler.Flush(ctx) }

// Returned notes that the handler of a lease that is in a transaction has returned.
func (c *Consumer) Returned(l *lease.Lease) {
	if c.order != nil {
		c.order.Returned(l)
	}
}
