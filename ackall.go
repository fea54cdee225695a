package chanq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq/internal/lease"
)

// Ack acks the messages of many leases and waits for the outcomes, at the cost of
// Delivery.Ack and Wait for each: the acks join the next groups of their consumers. The leases may
// be of several queues, and one that is given twice is acked once.
//
// A nil error means that all acks are in the database. A *BatchError has an entry for
// each lease, in order: nil, or an *OpError of ErrLeaseLost, ErrSettled, ErrClosed or of
// what else became of it. If ctx ends before an outcome is known its OpError is
// Unknown, and the consumer goes on with the ack. If ctx ends while the backlog of settles is full, a lease whose ack was not
// handed over stays held, and its OpError is not Unknown. On SQLite a goroutine that holds
// a transaction must not call it: see Queue.
func Ack[T any](ctx context.Context, leases ...*Lease[T]) error {
	all := make([]*lease.Lease, len(leases))
	for i, l := range leases {
		switch {
		case l == nil:
			return fmt.Errorf("chanq: ack: lease %d is nil", i)
		case l.lease == nil:
			return fmt.Errorf("chanq: ack: lease %d: %w", i, errMadeByHand)
		}
		all[i] = l.lease
	}
	return ack(ctx, all)
}

func ack(ctx context.Context, leases []*lease.Lease) error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Settle(ctx, lease.Ack, 0, "")
		if errs[i] == ErrSettled {
			if first := slices.Index(leases[:i], l); first >= 0 {
				errs[i] = errs[first] // its outcome is that of the first
			}
		}
	}
	failed := false
	for i, l := range leases {
		unknown := false
		if errs[i] == nil {
			errs[i] = deliveryError(l, l.Wait(ctx))
			unknown = errs[i] != nil && errs[i] == ctx.Err()
		}
		if errs[i] == nil {
			continue
		}
		failed = true
		if op := (*OpError)(nil); !errors.As(errs[i], &op) {
			errs[i] = &OpError{Op: "ack", Queue: homeOf(l).label, ID: l.Item.ID, Unknown: unknown, Err: errs[i]}
		}
	}
	if failed {
		return &BatchError{Op: "ack", Errs: errs}
	}
	return nil
}
