package base

import (
	"sync"
	"sync/atomic"
	"time"
)

// zero is fifty years before the process started, since the clock of a test's bubble (testing/synctest) begins in 2000.
var zero = time.Now().Add(-50 * 365 * 24 * time.Hour)

var local clock

// Now returns the local time, in which deadlines of leases are kept. It never goes back. It is the time since a moment
// before the process started, by the wall clock or the monotonic one, whichever advanced further. The monotonic clock
// stops while a machine is suspended, and the database's does not: leases that ended in that time must have ended here.
func Now() time.Duration {
	now := time.Now()
	return local.read(now.Round(0).Sub(zero.Round(0)), now.Sub(zero))
}

// WallTime returns the time of day of a local time, by the current clocks.
func WallTime(at time.Duration) time.Time { return time.Now().Add(at - Now()) }

// clock adds each forward jump of the wall clock to a monotonic clock. Backward jumps, made when the wall clock is set,
// are not subtracted: a lease that ended does not begin again.
type clock struct {
	offset atomic.Int64 // wall time minus monotonic time, when it last changed
	jumped atomic.Int64 // sum of the jumps forward

	mu    sync.Mutex
	noted time.Duration // monotonic time of the last change
}

// Tolerance is how far the wall clock and the monotonic clock may differ before the difference counts as a jump: the
// two are not read at the same moment, and these differences must not add up.
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
		return // read before the change that is already noted
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
