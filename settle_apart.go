package chanq

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/retry"
)

// Settles that take longer than a try may.
//
// A dead-letter moves the body, as an ack does with Config.Retain, and one of hundreds of
// megabytes takes longer than the time of a try, which is short so that what hangs is repeated
// within the lease. It would be repeated for ever, and all that waits behind it with it. So a
// settle that ran out of time, alone in its statement, goes apart: it leaves the groups, and has
// statements of its own, one such settle at a time, on a session beside those of the groups. A
// database with one writer has no such session: there the others go on between two tries.
//
// Before each try its lease is made to last for it, and for as long after it: nothing can
// extend a lease whose row a settle has locked. Where the database has done that within its time
// it is well, and it is the settle that takes long: so the try has twice the time of the one
// before. Where it has not, a connection hangs or the database is away, and more time
// would not help. But where one session writes, that is none that hangs: there the row is written whole by
// the extension, too, and whether or not that was in time the try has more.

const (
	// apartMost is the most time of one try apart, where that of all tries is not longer.
	apartMost = 2 * time.Minute
	// apartPause is the pause before a try apart.
	apartPause = retry.RefusedPause
)

// runApart stores what is apart, until the backlog is closed and each settle has an outcome.
func (s *settler) runApart() { (&storer{settler: s, groups: s.aside, apart: true}).run() }

// putApart puts the only lease of a piece apart, which ran out of its time. That of a try apart
// says nothing of the database: claims and extensions tell whether that is away.
func (w *storer) putApart(p *settlePiece, f *retry.Failure, tally *settleTally) {
	pause := apartPause
	if !w.apart {
		pause = p.loop.Failed(w.abandoned, f)
	}
	tally.kept++
	w.groups.Apart(p.leases[0], pause)
}

// timeOf is how long a try to settle a lease may take.
func (w *storer) timeOf(l *lease) time.Duration {
	if !w.apart {
		return w.timeout
	}
	return apartTime(w.timeout, l.doublings)
}

// apartTime is the time of a try apart, where others have that much, after so many doublings.
func apartTime(timeout time.Duration, doublings uint8) time.Duration {
	return max(timeout, min(timeout<<doublings, apartMost))
}

// gainTime has the lease of a settle that is apart last for its next try, and gives that twice
// the time of the one before. What fails here is met again by the try.
func (w *storer) gainTime(l *lease) {
	ctx, cancel := context.WithTimeout(w.abandoned, w.timeout)
	defer cancel()
	next := l.doublings
	if apartTime(w.timeout, next) < apartMost {
		next++
	}
	held, err := w.owner.extend(ctx, l, 2*apartTime(w.timeout, next))
	if held && err == nil || err != nil && w.queue.dialect.Traits().OneWriter {
		l.doublings = next
	}
}
