package consume

import (
	"context"
	"math"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// leaveTimeout is how long a consumer that ends tries to remove its row.
const leaveTimeout = 5 * time.Second

// attend sends the heartbeats until ctx ends, and then removes the consumer's row, unless the consumer was abandoned: messages might still
// be leased. Only the end of the consumer waits for it, for that last statement. It uses sessions of the kind Note, so that no claim
// waits for one.
func (c *Consumer) attend(ctx context.Context) {
	chore := c.cfg.Task("members", "join")
	defer chore.End()
	known := sqlbatch.Policy{}
	for ctx.Err() == nil {
		timeout, pause := settle.Patience(c.cfg.LeaseFor, c.cfg.StatementTimeout), c.cfg.LeaseFor/3
		began := base.Now()
		as := c.cfg.Member
		if c.here != nil { // the slots and leases of a lost membership are not its own
			as.ID = c.here.Next(c.cfg.NewID)
		}
		err := c.asMember(ctx, timeout, c.cfg.Table.SQL.Join(as))
		c.report(chore, "join", err)
		if err != nil && c.cfg.Table.Ordered {
			pause /= 4
		}
		if err == nil && c.order != nil {
			if c.here.Joined(lease.After(began, c.cfg.LeaseFor)) {
				c.order.Hurry() // slots may be taken
				if c.cfg.Debouncer.Notifier != nil {
					c.wake() // the shares of others are smaller
				}
			}
			c.extender.Wake() // leases may last longer now
		}
		if err == nil {
			read := base.Now()
			c.mind("join", c.learnPolicy(ctx, timeout, &known))
			pause -= base.Now() - read // the next heartbeat is no later
		}
		batch.Sleep(ctx, pause)
	}
	if c.abandoned.Err() == nil {
		// A failure does not matter: the row expires.
		id, _ := c.memberUntil()
		err := c.asMember(c.abandoned, min(c.cfg.StatementTimeout, leaveTimeout), c.cfg.Table.SQL.Leave(id))
		if err == nil && c.cfg.Table.Ordered {
			c.wake() // its slots are free, and the shares of others are greater
		}
	}
}

// mostSpare is the most that a statement takes that no message waits for. Where all statements share one connection, leases cannot be
// extended meanwhile.
func (c *Consumer) mostSpare() time.Duration {
	if c.cfg.Table.Dialect.Traits().OneWriter {
		return settle.Patience(c.cfg.LeaseFor, c.cfg.StatementTimeout)
	}
	return time.Hour
}

// spareTime is how long a statement may take that no message waits for.
func (c *Consumer) spareTime() time.Duration { return min(c.cfg.StatementTimeout, c.mostSpare()) }

// learnPolicy reads the policy of the queue, which operators may change. What fails is tried again with the next heartbeat.
func (c *Consumer) learnPolicy(ctx context.Context, timeout time.Duration, known *sqlbatch.Policy) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var found table.Stored
	err := c.parts.note.RunPatient(ctx, c.cfg.Table.SQL.Version(), found.Scan)
	if err != nil || found.Version == 0 {
		return err
	}
	c.cfg.Table.SetPolicy(found.Policy)
	if c.order != nil && found.Policy != *known {
		c.order.PolicyChanged()
	}
	*known = found.Policy
	return nil
}

// memberUntil is as whom the database knows the consumer now, and when its leases end at the latest.
func (c *Consumer) memberUntil() (id [16]byte, ends time.Duration) {
	if c.here == nil {
		return c.cfg.Member.ID, math.MaxInt64
	}
	term, ends, _ := c.here.Current()
	return term.ID, ends
}

func (c *Consumer) asMember(ctx context.Context, timeout time.Duration, st sqlbatch.Statement) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.parts.note.RunPatient(ctx, st, nil)
}

// report reports the result of a task, and ends the consumer if the driver panicked in it.
func (c *Consumer) report(t *base.Task, op string, err error) {
	t.Report(err)
	c.mind(op, err)
}
