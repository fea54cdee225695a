package base

import (
	"sync"
	"sync/atomic"
	"time"
)

// zero is fifty years before the process started, since the clock of a test's bubble (testing/synctest) begins in 2000.
var zero = time.Now().Add(-50 * 365 * 24 * time.Hour)

var local clock

// Now is the local time, by which the deadlines of leases are kept. It never goes back. It is the time since a moment
// before the process started, by the wall clock or the monotonic one, whichever went further: the monotonic clock stands
// still while a machine is suspended, and the database's does not, so a lease that ended meanwhile must not look alive here.
func Now() time.Duration {
	now := time.Now()
	return local.read(now.Round(0).Sub(zero.Round(0)), now.Sub(zero))
}

// WallTime is the time of day of a local time, by the clocks as they are now.
func WallTime(at time.Duration) time.Time { return time.Now().Add(at - Now()) }

// clock adds to a monotonic clock each jump that the wall clock makes forward beside it. A wall clock that goes back was set
// by somebody: that takes nothing away, so nothing that ended begins again.
type clock struct {
	offset atomic.Int64 // wall time less monotonic time, when it last changed
	jumped atomic.Int64 // sum of the jumps forward

	mu    sync.Mutex
	noted time.Duration // monotonic time of the last change
}

// Tolerance is how far the wall clock and the monotonic clock may differ before that counts as a jump: the two are not read
// at the same moment, and the differences must not add up.
const Tolerance = time.Millisecond

func (c *clock) read(wall, mono time.Duration) time.Duration {
	offset := wall - mono
	if d := offset - time.Duration(c.offset.Load()); d > Tolerance || d < -Tolerance {
		c.note(offset, mono)
	}
	return mono + time.Duration(c.jumped.Load())
}

func (c *clock) note(offset, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mono < c.noted {
		return // read before a change that is noted already
	}
	d := offset - time.Duration(c.offset.Load())
	switch {
	case d > Tolerance:
		c.jumped.Add(int64(d))
	case d >= -Tolerance:
		return
	}
	c.offset.Store(int64(offset))
	c.noted = mono
}
