package consume

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// heardEvery is the maximum time between two heartbeats, whatever LeaseFor is. A consumer of a plain queue is listed
// for sqlbatch.HeardFor after one; one that owns slots as long as its membership lasts.
const heardEvery = sqlbatch.HeardFor * 2 / 5

// heartbeats maintains the consumer's row, and reads the policy of the queue, until ctx ends. Then it removes the row,
// unless the consumer was abandoned: messages might still be leased. The consumer's end waits for that last statement,
// and nothing else waits for heartbeats.
func (t tasks) heartbeats(ctx context.Context) {
	chore := t.Task("consumers", "join")
	defer chore.End()
	former, _ := t.of.membership.Until()
	for ctx.Err() == nil {
		as, pause := t.Row, min(t.LeaseFor/3, heardEvery)
		if t.of.owner.slots == nil {
			as.For = sqlbatch.HeardFor
		}
		as.ID = t.of.membership.Next(t.NewID) // the slots and leases of a lost membership are not its own
		began := base.Now()
		_, err := t.do(ctx, t.RenewTimeout(), t.Table.SQL.Join(as), nil)
		t.report(chore, "join", err)
		if t.of.owner.slots != nil {
			pause = t.keepSlots(began, pause, err)
		}
		if err == nil {
			joined := base.Now()
			if as.ID != former {
				// A late heartbeat might have prolonged it in the database
				_, err := t.do(ctx, t.RenewTimeout(), t.Table.SQL.Leave(former), nil)
				t.mind("leave", err) // otherwise it expires there
				former = as.ID
			}
			t.mind("join", t.learnPolicy(ctx))
			pause -= base.Now() - joined // these do not delay the next heartbeat
		}
		batch.Sleep(ctx, pause)
	}
	if t.of.ending.abandoned.Err() == nil {
		// A failure does not matter: the row expires.
		id, _ := t.of.membership.Until()
		_, err := t.do(t.of.ending.abandoned, min(t.StatementTimeout, StoreFor), t.Table.SQL.Leave(id), nil)
		if err == nil && t.of.owner.slots != nil {
			t.Signals.Wake() // its slots are free, and the shares of other consumers are greater
		}
	}
}

// keepSlots applies a heartbeat of the owner of slots, which began at began. It returns the pause until the next one.
func (t tasks) keepSlots(began, pause time.Duration, err error) time.Duration {
	if err != nil {
		return pause / 4
	}
	begins, lasts := t.of.membership.Joined(lease.After(began, t.LeaseFor))
	if begins {
		t.of.owner.slots.Hurry() // slots might be free
	}
	t.of.owner.extender.Wake() // leases may last longer now
	if !lasts {
		return 0
	}
	return pause
}

// ErrNoQueue is the failure of a consumer whose queue was dropped.
var ErrNoQueue = errors.New("the database has no such queue")

// learnPolicy reads the policy of the queue, which operators can change. A failed read is repeated with the next
// heartbeat. If the queue does not exist, the consumer ends: without slots it runs no other statement that would detect
// that.
func (t tasks) learnPolicy(ctx context.Context) error {
	var found table.Stored
	_, err := t.do(ctx, t.RenewTimeout(), t.Table.SQL.Version(), found.Scan)
	if err != nil {
		return err
	}
	if found.Version == 0 {
		t.of.Broken("join", ErrNoQueue)
		return nil
	}
	t.Table.SetPolicy(found.Policy)
	if t.of.owner.slots != nil {
		t.of.owner.slots.PolicyChanged()
	}
	return nil
}
