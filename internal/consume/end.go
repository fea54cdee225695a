package consume

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
)

const (
	// Grace is how long handlers may continue after the end of their contexts.
	Grace = time.Second
	// StoreFor is the time to store settles and releases after that, and to remove the row of a consumer that ends.
	StoreFor = 5 * time.Second
	// abandonFor is the time that statements have to return after they were cancelled.
	abandonFor = 100 * time.Millisecond
)

// ending is the progress of the end of a consumer. The package comment has its states.
type ending struct {
	of *Consumer

	// abandoned ends when unstored settles are dropped, or when nothing is left.
	abandoned context.Context
	abandon   context.CancelFunc
	// A call of End gives up, since the time to drain has passed. No sync.Once: calls that wait for its mutex stop the
	// time of a bubble
	interrupting atomic.Bool
	interrupted  chan struct{} // closed by that call when it begins
	gaveUp       chan struct{} // closed by that call when it has given up
	remains      Left          // to be read when gaveUp is closed
	revoked      atomic.Bool   // the leases of readers are released; the end does not wait for handlers any more
	finished     chan struct{} // every goroutine has ended, except for what follows
	allGone      chan struct{} // every handler has ended as well
}

func newEnding(c *Consumer) *ending {
	e := &ending{of: c, interrupted: make(chan struct{}), gaveUp: make(chan struct{}),
		finished: make(chan struct{}), allGone: make(chan struct{})}
	e.abandoned, e.abandon = context.WithCancel(context.Background())
	return e
}

// Left is what had not ended when End returned. The zero value means that everything has ended, and every settle was
// stored or refused.
type Left struct {
	Leases   int // not settled by their readers: they were released, or expire in the database
	Settles  int // not known to be stored. A call after the release counts the releases here, not as Leases
	Handlers int // calls that have not returned
	// Stuck reports that goroutines have not ended: they are in a hook, a codec or the driver.
	Stuck bool
}

// End stops the consumer. It waits until every lease is settled or lost, every settle stored, and every goroutine and
// handler ended. If bound ends first, the contexts of leases end; Grace later the leases that are still held are
// released; StoreFor later unstored settles are dropped. Several goroutines may call it: the first bound that ends
// counts for all, and all return what was left. A call after the release waits within its own bound.
func (c *Consumer) End(bound context.Context) Left {
	c.Stop()
	return c.ending.await(bound)
}

// Interrupted reports that the time to drain has passed: the contexts of leases have ended.
func (c *Consumer) Interrupted() bool { return isClosed(c.ending.interrupted) }

// await implements End.
func (e *ending) await(bound context.Context) Left {
	late, interrupted := e.revoked.Load(), e.interrupted
	if late {
		interrupted = nil
	}
	select {
	case <-e.allGone:
	case <-bound.Done():
	case <-interrupted:
	}
	if isClosed(e.allGone) && (late || !isClosed(e.interrupted)) {
		return Left{}
	}
	if late {
		left := e.left(nil)
		left.Stuck = !isClosed(e.finished)
		return left
	}
	if e.interrupting.CompareAndSwap(false, true) {
		close(e.interrupted)
		e.remains = e.giveUp()
		close(e.gaveUp)
	}
	<-e.gaveUp
	return e.remains
}

// giveUp ends the consumer after the time to drain.
func (e *ending) giveUp() Left {
	e.of.owner.home.EndContexts(lease.ErrStopped)
	if within(Grace, e.allGone) {
		return Left{}
	}
	back := e.revoke()
	if within(StoreFor, e.finished) {
		return e.left(back)
	}
	left := e.left(back)
	e.abandon()
	e.of.owner.settler.Close()
	left.Stuck = !within(abandonFor, e.finished)
	left.Handlers = int(e.of.load.handlers.Load())
	return left
}

// left returns what has not ended. back are the releases of the leases that readers held.
func (e *ending) left(back []*lease.Lease) Left {
	unstored := int(e.of.load.leases.Load())
	for _, l := range back {
		if l.State() == lease.Settling {
			unstored--
		}
	}
	return Left{Leases: len(back), Settles: max(0, unstored), Handlers: int(e.of.load.handlers.Load())}
}

// drain waits until every lease and every handler whose lease was not revoked has ended, or everything is abandoned. A
// lease that AckTx has acked is awaited as well: its transaction might be rolled back.
func (e *ending) drain() {
	pause := batch.Backoff{Low: 10 * time.Millisecond, High: lookLeast}
	for e.abandoned.Err() == nil {
		var again <-chan time.Time
		if e.awaited() <= 0 {
			if !e.of.owner.openAcks.look() || e.revoked.Load() {
				return
			}
			again = time.After(pause.Pause())
		}
		select {
		case <-e.of.load.drained:
		case <-e.abandoned.Done():
		case <-again:
		}
	}
}

// awaited returns how many leases and handlers the end waits for.
func (e *ending) awaited() int {
	if e.revoked.Load() {
		return int(e.of.load.leases.Load())
	}
	return e.of.load.holds()
}

// revoke releases the leases that readers hold; they are lost for the readers from now on. It returns their releases.
// The feed releases the messages of a running claim.
func (e *ending) revoke() (back []*lease.Lease) {
	for _, l := range e.of.owner.extender.Held(anyLease) {
		if release := l.Revoke(); release != nil {
			back = append(back, release)
		}
	}
	if len(back) > 0 {
		e.of.owner.extender.Track(slices.Clone(back)) // Track removes leases from its slice
		e.of.owner.settler.AddAll(back...)
	}
	e.revoked.Store(true)
	base.Signal(e.of.load.drained)
	return back
}

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
