package consume

import (
	"context"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
)

// The end of a consumer. The package comment has its states.

const (
	// Grace is for how long handlers may go on after the end of their contexts.
	Grace = time.Second
	// StoreFor is for how long what was settled and released by then is tried to be stored.
	StoreFor = 5 * time.Second
)

// Left is what had not ended when End returned. Zero: everything has ended, and every settle was stored or refused.
type Left struct {
	Leases   int // that their readers had not settled: they were released, or expire in the database
	Settles  int // that are not known to be stored
	Handlers int // that have not returned
	// Stuck says that goroutines have not ended: they are in a hook, a codec or the driver.
	Stuck bool
}

// End stops, and waits until every lease is settled or lost, every settle stored and every goroutine and handler ended. When bound
// ends before, the contexts of leases end; Grace later the leases that are still held are released; StoreFor later what is not
// stored is given up. It may be called by several goroutines: the bound that ends first counts for all.
func (c *Consumer) End(bound context.Context) Left {
	c.Stop()
	select {
	case <-c.idle:
		return Left{}
	case <-bound.Done():
	case <-c.interrupted:
	}
	select {
	case <-c.idle: // both at once
		return Left{}
	default:
	}
	c.interrupt.Do(func() {
		close(c.interrupted)
		c.home.EndContexts(lease.ErrStopped)
	})
	if within(Grace, c.idle) {
		return Left{}
	}
	revoked := c.revoke()
	left := Left{Leases: len(revoked)}
	if !within(StoreFor, c.finished) {
		left.Stuck = true
		left.Settles = c.settler.Stats().Open
		for _, l := range revoked {
			if l.State() == lease.Settling {
				left.Settles--
				left.Leases--
			}
		}
		left.Leases += max(0, int(c.held.Load())-left.Settles) // which are held until they have an outcome
		c.abandon()
		c.settler.Close()
	}
	left.Handlers = int(c.working.Load())
	return left
}

// Interrupted reports that the time to drain is over: the contexts of leases have ended.
func (c *Consumer) Interrupted() bool {
	select {
	case <-c.interrupted:
		return true
	default:
		return false
	}
}

// within reports whether a channel is closed within d.
func within(d time.Duration, closed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// awaited is how many leases and handlers the end waits for.
func (c *Consumer) awaited() int64 {
	n := c.held.Load()
	if !c.revoked.Load() {
		n += c.working.Load()
	}
	return n
}

// revoke releases the leases that readers hold, who have lost them from now on, and returns those in their place. What a claim brings
// that is under way is released by the feed.
func (c *Consumer) revoke() (back []*lease.Lease) {
	for _, l := range c.extender.Held() {
		if release := l.Revoke(); release != nil {
			back = append(back, release)
		}
	}
	if len(back) > 0 {
		c.extender.Track(slices.Clone(back)) // it drops from what it holds
		c.settler.AddAll(back...)
	}
	c.revoked.Store(true)
	base.Signal(c.drained)
	return back
}
