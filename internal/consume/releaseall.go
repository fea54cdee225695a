package consume

import (
	"context"
	"fmt"
	"slices"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
)

// ReleaseAll stops, and gives back what readers have, too. It waits until the database has that, or ctx ends.
func (c *Consumer) ReleaseAll(ctx context.Context) error {
	c.Stop()
	select {
	case <-c.returned: // the buffer is given back, and no claim is under way
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.gaveUp.Load() {
		return batch.ErrClosed
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
	u := &UnreleasedError{Of: len(back), Err: err}
	if err == nil { // and so for what lay in the buffer
		_, u.Err = c.Failure()
		u.Failure = u.Err != nil
	}
	for _, l := range back {
		switch {
		case l.State() == lease.Settling:
			u.Left++
		case l.Outcome() != nil && l.Outcome() != lease.ErrLost: // what was lost is given back as well
			if u.Left++; u.Err == nil {
				u.Err, u.Lease = l.Outcome(), l
			}
		}
	}
	if u.Err != nil {
		return u
	}
	return nil
}

// UnreleasedError says that leases are not known to be given back.
type UnreleasedError struct {
	Left, Of int          // leases
	Lease    *lease.Lease // whose outcome Err is; nil if it is of none
	Failure  bool         // Err is the Failure of the consumer
	Err      error
}

func (e *UnreleasedError) Error() string {
	return fmt.Sprintf("%d of %d leases are not known to be given back: %v", e.Left, e.Of, e.Err)
}
func (e *UnreleasedError) Unwrap() error { return e.Err }

// revoke takes a lease away from its reader, who has lost it from now on, and returns one
// in its place that is to be released, or nil if the lease is not held any more.
func (c *Consumer) revoke(l *lease.Lease) *lease.Lease {
	c.held.Add(1) // of the new one: the consumer must not end between the two
	if !l.Lose(lease.Lost) {
		c.letGo()
		return nil
	}
	return l.Replace()
}
