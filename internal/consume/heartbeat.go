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

// heartbeat maintains the consumer's row, and reads the policy of the queue.
type heartbeat struct {
	tasks
	known sqlbatch.Policy // as of the last heartbeat
}

// heardEvery is the maximum time between two heartbeats, whatever LeaseFor is. A consumer of a plain queue is listed
// for sqlbatch.HeardFor after one; one that owns slots as long as its membership lasts.
const heardEvery = sqlbatch.HeardFor * 2 / 5

// run sends heartbeats until ctx ends. Then it removes the consumer's row, unless the consumer was abandoned: messages
// might still be leased. The consumer's end waits for that last statement, and nothing else waits for run.
func (h *heartbeat) run(ctx context.Context) {
	chore := h.cfg.Task("consumers", "join")
	defer chore.End()
	former, _ := h.of.membership.Until()
	for ctx.Err() == nil {
		as, pause := h.cfg.Row, min(h.cfg.LeaseFor/3, heardEvery)
		if h.of.owner.slots == nil {
			as.For = sqlbatch.HeardFor
		}
		as.ID = h.of.membership.Next(h.cfg.NewID) // the slots and leases of a lost membership are not its own
		began := base.Now()
		_, err := h.do(ctx, h.cfg.patience(), h.cfg.Table.SQL.Join(as), nil)
		h.report(chore, "join", err)
		if h.of.owner.slots != nil {
			pause = h.keepSlots(began, pause, err)
		}
		if err == nil {
			joined := base.Now()
			if as.ID != former {
				// A late heartbeat might have prolonged it in the database
				_, err := h.do(ctx, h.cfg.patience(), h.cfg.Table.SQL.Leave(former), nil)
				h.mind("leave", err) // otherwise it expires there
				former = as.ID
			}
			h.mind("join", h.learnPolicy(ctx, h.cfg.patience()))
			pause -= base.Now() - joined // these do not delay the next heartbeat
		}
		batch.Sleep(ctx, pause)
	}
	if h.of.ending.abandoned.Err() == nil {
		// A failure does not matter: the row expires.
		id, _ := h.of.membership.Until()
		_, err := h.do(h.of.ending.abandoned, min(h.cfg.StatementTimeout, StoreFor), h.cfg.Table.SQL.Leave(id), nil)
		if err == nil && h.of.owner.slots != nil {
			h.cfg.Signals.Wake() // its slots are free, and the shares of other consumers are greater
		}
	}
}

// keepSlots applies a heartbeat of the owner of slots, which began at began. It returns the pause until the next one.
func (h *heartbeat) keepSlots(began, pause time.Duration, err error) time.Duration {
	if err != nil {
		return pause / 4
	}
	begins, lasts := h.of.membership.Joined(lease.After(began, h.cfg.LeaseFor))
	if begins {
		h.of.owner.slots.Hurry() // slots might be free
	}
	h.of.owner.extender.Wake() // leases may last longer now
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
func (h *heartbeat) learnPolicy(ctx context.Context, timeout time.Duration) error {
	var found table.Stored
	_, err := h.do(ctx, timeout, h.cfg.Table.SQL.Version(), found.Scan)
	if err != nil {
		return err
	}
	if found.Version == 0 {
		h.of.Broken("join", ErrNoQueue)
		return nil
	}
	h.cfg.Table.SetPolicy(found.Policy)
	if h.of.owner.slots != nil && found.Policy != h.known {
		h.of.owner.slots.PolicyChanged()
	}
	h.known = found.Policy
	return nil
}
