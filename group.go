package chanq

import (
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// pacer decides when a group of sends or settles is due.
type pacer struct {
	full   int
	linger time.Duration
	last   int // size of the group before
}

// due reports whether a group of n whose oldest member came at since is due,
// and otherwise how long to wait at most.
//
// A group for which somebody waits is due when it is full, when its oldest member
// waited for linger, or when it has half the size of the group before: where
// members come one by one nothing waits, and where many come at once a group
// waits to be worth its statement.
func (p *pacer) due(n int, since time.Time) (bool, time.Duration) {
	if n >= p.last/2 {
		return true, 0
	}
	return p.ripe(n, since)
}

// ripe is due for a group that nobody waits for: it lingers to the end.
func (p *pacer) ripe(n int, since time.Time) (bool, time.Duration) {
	wait := p.linger - time.Since(since)
	return n >= p.full || wait <= 0, wait
}

// backoff is the pause before a repetition: doubling from low to high, the
// whole of it jittered so that processes that failed together do not return
// together.
type backoff struct {
	low, high, next time.Duration
	since           time.Time // when the first try that failed began
}

func (b *backoff) pause() time.Duration {
	if b.next < b.low {
		b.next = b.low
	}
	d := b.next
	b.next = min(2*b.next, b.high)
	return d/2 + rand.N(d/2+1)
}

// poll is a pause between looks at an idle queue: jittered on the way to high,
// which spreads the pollers, and then high itself, since each look costs the
// database something.
func (b *backoff) poll() time.Duration {
	if b.next >= b.high {
		return b.high
	}
	return b.pause()
}

func (b *backoff) reset() { b.next, b.since = 0, time.Time{} }

// The pauses between repetitions of a statement that failed.
const (
	retryLow   = 5 * time.Millisecond   // after a deadlock or the like
	refusedLow = 100 * time.Millisecond // after a refusal or a broken connection
	retryHigh  = 5 * time.Second
)

// retries are the pauses of one statement.
func retries() backoff { return backoff{low: retryLow, high: retryHigh} }

// stuckFor is for how long a statement may be undone by the database, again and
// again, before that is an outage like another: a lock that its holder never
// gives up looks like one that passes.
const stuckFor = 5 * time.Second

// outage notes that a try begun at began has failed, and reports whether the
// Availability hook is to hear of it.
func (b *backoff) outage(c sqlbatch.Class, began time.Time) bool {
	if b.since.IsZero() {
		b.since = began
	}
	switch c {
	case sqlbatch.RolledBack, sqlbatch.Duplicate:
		return time.Since(b.since) >= stuckFor
	}
	return true
}

// after is the pause after a failure of this class.
func (b *backoff) after(c sqlbatch.Class) time.Duration {
	if c != sqlbatch.RolledBack {
		b.next = max(b.next, refusedLow)
	}
	return b.pause()
}
