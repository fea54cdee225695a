package chanq

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
)

// A consumer's settles and extensions: package settle stores them, and this is what the consumer makes of their outcomes.

func (c *consumer) newSettler(s *sessions) *settle.Settler {
	q, cfg := c.queue, c.cfg
	return settle.New(settle.Config{
		Owner: c, Table: q.on(s), Traits: q.dialect.Traits(), Classify: q.classify, Health: c.health, MaxAttempts: q.cfg.MaxAttempts,
		Timeout: cfg.tryTimeout(), Linger: cfg.linger(), Room: max(settleFactor*cfg.Prefetch, minBacklog),
		Awaited: func(l *lease.Lease) bool { return c.order != nil && c.order.Awaited(l) }, Isolated: c.isolated.Set,
		Known: c.settleKnown, Stored: c.settlesStored,
		Broken: func(op string, err error) { c.broken(q.fail(op, err)) },
	}, c.abandoned)
}

func (c *consumer) newExtender(s *sessions) *settle.Extender {
	q := c.queue
	return settle.NewExtender(settle.ExtenderConfig{
		Table: q.on(s), Traits: q.dialect.Traits(), Classify: q.classify, Health: c.health,
		LeaseFor: c.cfg.LeaseFor, Timeout: c.cfg.StatementTimeout, Member: c.memberUntil,
		Lost: func(l *lease.Lease, confirmed bool) func() {
			if q.cfg.Hooks.LeaseLost == nil {
				return nil
			}
			e := q.lossEvent(l, confirmed)
			return func() { call(q.cfg.Hooks.LeaseLost, e) }
		},
		Broken: func(op string, err error) { c.broken(q.fail(op, err)) },
	})
}

// lossEvent is what the LeaseLost hook gets.
func (q *queue) lossEvent(l *lease.Lease, confirmed bool) LeaseLostEvent {
	return LeaseLostEvent{Queue: q.label, ID: l.Item.ID, Attempt: l.Attempt, Confirmed: confirmed}
}

// settleKnown takes the outcome of a settle before anybody else.
func (c *consumer) settleKnown(l *lease.Lease, err error) {
	q := c.queue
	switch err {
	case nil:
		q.recorder.rolledBack(l)
		if l.Op == lease.Dead {
			call(q.cfg.Hooks.Dead, DeadEvent{Queue: q.label, ID: l.Item.ID, Attempt: l.Attempt, Reason: reasonOf(l)})
		}
	case ErrLeaseLost:
		q.recorder.rolledBack(l)
	}
}

// reasonOf is why a message is dead-lettered, as hooks get it.
func reasonOf(l *lease.Lease) string {
	if l.Quiet {
		return "chanq: cannot decode: last_error of the message says why"
	}
	return discreet(l.Text)
}

// settlesStored counts a group of settles, reports what was lost, and says where messages are again.
func (c *consumer) settlesStored(began time.Time, t settle.Tally, leases []*lease.Lease) {
	q := c.queue
	e := SettledEvent{Queue: q.label, Acked: t.Acked, Nacked: t.Nacked, Released: t.Released, Dead: t.Dead, Lost: t.Lost, Took: time.Since(began)}
	if t != (settle.Tally{}) {
		q.recorder.settled(e)
		call(q.cfg.Hooks.Settled, e)
	}
	var released []*lease.Lease
	var slots notify.Slots
	for _, l := range leases {
		if err := l.Outcome(); err != nil {
			failed, ok := err.(*lease.FailedError)
			if refused := ok && failed.Refused; refused || err == ErrLeaseLost {
				call(q.cfg.Hooks.LeaseLost, q.lossEvent(l, !refused))
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
		q.gaveBack(claim.PlacesOf(released))
	}
	c.count(func(s *ConsumerStats) {
		s.Acked += int64(t.Acked)
		s.Nacked += int64(t.Nacked)
		s.Released += int64(t.Released)
		s.Dead += int64(t.Dead)
		s.Lost += int64(t.Lost)
	})
	c.pace.Progress()
	// What was given back is another consumer's chance, whose pause ends here. Not
	// after a Release by a reader who goes on reading: one that releases whatever it
	// gets would claim it again and again, without a pause.
	if t.Nacked > 0 || t.Released > 0 && c.stop.Err() != nil {
		q.notify(t.Nacked+t.Released, slots, false)
	}
}

func (c *consumer) count(f func(*ConsumerStats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// mind ends the consumer if err is a panic of the driver. It is for statements that are repeated whatever their outcome.
func (c *consumer) mind(op string, err error) {
	if session.Panicked(err) {
		c.broken(c.queue.fail(op, err))
	}
}

// The consumer as the owner of its leases.

func (c *consumer) home() *queue { return c.queue }

// Flush expedites settles: somebody waits for one.
func (c *consumer) Flush() { c.settler.Expedite() }

// Settle hands a lease to the settler.
func (c *consumer) Settle(ctx context.Context, l *lease.Lease) error {
	c.pace.Take()
	return c.settler.Add(ctx, l)
}

// Extend asks the database.
func (c *consumer) Extend(ctx context.Context, l *lease.Lease, d time.Duration) (bool, error) {
	select {
	case <-c.finished: // it does not wait for a lease that has run out or is in a transaction
		return false, batch.ErrClosed
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StatementTimeout)
	defer cancel()
	return c.extender.Extend(ctx, l, d, c.cfg.tryTimeout())
}

// Expire does what the extender does when it looks, which it need not have done yet, or never will: after a Shutdown that gave up.
func (c *consumer) Expire(l *lease.Lease) { c.extender.Lose(l, lease.Expired) }

// Changed notes which leases are no longer held, and what others of their keys may do.
func (c *consumer) Changed(leases ...*lease.Lease) {
	for _, l := range leases {
		if l.End() {
			c.leaseEnded(l)
		}
	}
	if c.order != nil {
		c.order.Changed(leases)
	}
}

func (c *consumer) leaseEnded(l *lease.Lease) {
	if l.State() != lease.Settled {
		c.pace.Take()
	}
	if l.Suspect {
		c.trial.End()
		base.Signal(c.cleared)
	}
	c.letGo()
}
