package chanq

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/chanq/chanq/internal/lease"
)

// ReleaseAll stops, as Stop does, and gives back everything that this consumer holds:
// what lies in the buffer, and also what readers and handlers have and have not settled,
// uncounted, for other consumers to have at once. It is for a program that must end and
// whose handlers may not be done in time. Their leases are lost to them before the
// database hears of it: contexts end with ErrLeaseLost, and settles return it. What was
// acked in a transaction is the transaction's.
//
// It waits until the database has all that, and every settle that was handed in before,
// or ctx ends; one or two round trips. What is not given back by then is delivered again
// when its lease ends, and the error says how much it is. Call Shutdown afterwards: it
// waits for handlers that do not heed their contexts. On SQLite a goroutine that holds a
// transaction must not call it: see Queue.
func (c *Consumer[T]) ReleaseAll(ctx context.Context) error {
	c.Stop()
	return c.core.queue.failed("release all of", c.core.releaseAll(ctx))
}

// releaseAll gives back what readers have. The consumer has stopped.
func (c *consumer) releaseAll(ctx context.Context) error {
	select {
	case <-c.returned: // the buffer is given back, and no claim is under way
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.gaveUp.Load() {
		return ErrClosed
	}
	var back []*lease.Lease
	for _, l := range c.extender.Held() {
		if release := c.revoke(l); release != nil {
			back = append(back, release)
		}
	}
	if len(back) > 0 {
		c.extender.Track(slices.Clone(back)) // it drops from what it holds
		c.settler.AddAll(back...)
	}
	err := c.settler.Flush(ctx)
	if err == nil {
		err = c.failure() // and so for what lay in the buffer
	}
	left := 0
	for _, l := range back {
		switch {
		case l.State() == lease.Settling:
			left++
		case l.Outcome() != nil && l.Outcome() != ErrLeaseLost: // what was lost is given back as well
			left++
			err = cmp.Or(err, deliveryError(l, l.Outcome()))
		}
	}
	if err != nil {
		return fmt.Errorf("%d of %d leases are not known to be given back: %w", left, len(back), err)
	}
	return nil
}

// revoke takes a lease away from its reader, who has lost it from now on, and returns one
// in its place that is to be released, or nil if the lease is not held any more.
func (c *consumer) revoke(l *lease.Lease) *lease.Lease {
	c.held.Add(1) // of the new one: the consumer must not end between the two
	if !l.Lose(lease.Lost) {
		c.letGo()
		return nil
	}
	return l.Replace()
}
