package chanq

import (
	"sync"
	"sync/atomic"
	"time"
)

// Local time, by which deadlines of leases are kept: what passed since
// processStart, by the wall clock or the monotonic one, whichever went further.
// The monotonic clock stands still while a machine is suspended, and the
// database's does not: a lease that ended meanwhile must not look alive here.

// processStart is the zero of monotonic: fifty years before the process started, since the
// clock of a test's bubble (testing/synctest) begins in 2000.
var processStart = time.Now().Add(-50 * 365 * 24 * time.Hour)

var localClock clock

// monotonic is the local time. It never goes back.
func monotonic() time.Duration {
	now := time.Now()
	return localClock.read(now.Round(0).Sub(processStart.Round(0)), now.Sub(processStart))
}

// wallTime is the time of day that a local time is, as things stand.
func wallTime(at time.Duration) time.Time { return time.Now().Add(at - monotonic()) }

// clock adds to a monotonic clock each jump that the wall clock makes forward
// beside it. What the wall clock goes back takes nothing away: that is somebody
// setting it, and nothing that ended begins again.
type clock struct {
	apart  atomic.Int64 // wall time less monotonic time, when it last changed
	jumped atomic.Int64 // sum of the jumps forward

	mu    sync.Mutex
	noted time.Duration // monotonic time of the last change
}

// clockTolerance is how far wall and monotonic time drift apart before it counts
// as a jump: the two are not read at the same moment, and the difference must not
// add up. It is what deadlineAfter takes off.
const clockTolerance = time.Millisecond

func (c *clock) read(wall, mono time.Duration) time.Duration {
	apart := wall - mono
	if d := apart - time.Duration(c.apart.Load()); d > clockTolerance || d < -clockTolerance {
		c.note(apart, mono)
	}
	return mono + time.Duration(c.jumped.Load())
}

func (c *clock) note(apart, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mono < c.noted {
		return // read before a change that is noted already
	}
	d := apart - time.Duration(c.apart.Load())
	switch {
	case d > clockTolerance:
		c.jumped.Add(int64(d))
	case d >= -clockTolerance:
		return
	}
	c.apart.Store(int64(apart))
	c.noted = mono
}
