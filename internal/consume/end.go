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
	// StoreFor is how long settles and releases have then to be stored.
	StoreFor = 5 * time.Second
	// abandonFor is how long statements have to return after they were cancelled.
	abandonFor = 100 * time.Millisecond
)

// Left is what had not ended when End returned. Zero: everything has ended, and every settle was stored or refused.
type Left struct {
	Leases   int // that their readers had not settled: they were released, or expire in the database
	Settles  int // that are not known to be stored
	Handlers int // calls that have not returned
	// Stuck says that goroutines have not ended: they are in a hook, a codec or the driver.
	Stuck bool
}

// End stops, and waits until every lease is settled or lost, every settle stored and every goroutine and handler ended. When bound
// ends before, the contexts of leases end; Grace later the leases that are still held are released; StoreFor later what is not
// stored is given up. It may be called by several goroutines: the bound that ends first counts for all, and all return what was left. A
// call that comes after the release waits within its own bound for what is left.
func (c *Consumer) End(bound context.Context) Left {
	c.Stop()
	late, interrupted := c.revoked.Load(), c.interrupted
	if late {
		interrupted = nil
	}
	select {
	case <-c.idle:
	case <-bound.Done():
	case <-interrupted:
	}
	if isClosed(c.idle) && (late || !c.Interrupted()) {
		return Left{}
	}
	if late {
		left := c.left(nil)
		left.Stuck = !isClosed(c.finished)
		return left
	}
	if c.interrupting.CompareAndSwap(false, true) {
		close(c.interrupted)
		c.remains = c.giveUp()
		close(c.ended)
	}
	<-c.ended
	return c.remains
}

// giveUp is the end after the time to drain.
func (c *Consumer) giveUp() Left {
	c.home.EndContexts(lease.ErrStopped)
	if within(Grace, c.idle) {
		return Left{}
	}
	c.revoke()
	if within(StoreFor, c.finished) {
		return c.left(c.back)
	}
	left := c.left(c.back)
	c.abandon()
	c.settler.Close()
	left.Stuck = !within(abandonFor, c.finished)
	left.Handlers = int(c.working.Load())
	return left
}

// left returns what has not ended. back are the leases that were taken from readers.
func (c *Consumer) left(back []*lease.Lease) Left {
	unstored := int(c.held.Load())
	for _, l := range back {
		if l.State() == lease.Settling {
			unstored--
		}
	}
	return Left{Leases: len(back), Settles: max(0, unstored), Handlers: int(c.working.Load())}
}

// Interrupted reports that the time to drain is over: the contexts of leases have ended.
func (c *Consumer) Interrupted() bool { return isClosed(c.interrupted) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
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

// revoke releases the leases that readers hold, who have lost them from now on. What a claim brings that is under way is released by
// the feed.
func (c *Consumer) revoke() {
	for _, l := range c.extender.Held() {
		if release := l.Revoke(); release != nil {
			c.back = append(c.back, release)
		}
	}
	if len(c.back) > 0 {
		c.extender.Track(slices.Clone(c.back)) // it drops from what it holds
		c.settler.AddAll(c.back...)
	}
	c.revoked.Store(true)
	base.Signal(c.drained)
}
