package chanq

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Lease.Extend, which sets the end of a lease, and may bring it nearer.

// setEnd sets the end of a lease to d from now. It is repeated while somebody has
// the row locked, until ctx ends, and fails at once in any other case. A try takes up
// to timeout, and a turn, if there are any to take. bound is beyond which the database
// does not go, as of now; nil: it does.
func (q *queue) setEnd(ctx context.Context, s *sessions, turn chan struct{}, l *lease, d, timeout time.Duration, bound func() time.Duration) (held bool, err error) {
	failed := func(err error) error {
		return &OpError{Op: "extend", Queue: q.name, Shard: q.shard, ID: l.item.ID, Err: err}
	}
	for !l.extending() { // two Extends of one lease at once: rare enough
		if retry.Sleep(ctx, time.Millisecond); ctx.Err() != nil {
			return false, failed(context.Cause(ctx))
		}
	}
	var end time.Duration
	defer func() { l.extended(end) }()
	var tries retry.Tries
	skip := false
	for {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return false, failed(context.Cause(ctx))
		}
		var stands standing
		end, stands, err = q.trySetEnd(ctx, s, l, d, timeout, bound, skip)
		<-turn
		class := q.classify(err)
		switch {
		case err != nil && class != sqlbatch.RolledBack:
			return false, q.fail("extend", err)
		case err == nil && (end != 0 || stands != standsOurs):
			return end != 0, nil
		}
		skip = true
		pause, _ := tries.Failed(retry.Failure{Class: sqlbatch.RolledBack, Began: time.Now()})
		if retry.Sleep(ctx, pause); ctx.Err() != nil {
			return false, failed(fmt.Errorf("%w: %w", errLocked, context.Cause(ctx)))
		}
	}
}

// setEnd is queue.setEnd beside the keeper's own extensions. It leaves one of the keeper's
// sessions to these, and wakes it where the end has come near.
func (k *keeper) setEnd(ctx context.Context, l *lease, d, timeout time.Duration) (held bool, err error) {
	held, err = k.queue.setEnd(ctx, k.sessions, k.turn, l, d, timeout, k.bound)
	if k.due(l, monotonic()) {
		notify(k.wake)
	}
	return held, err
}

// trySetEnd returns the end of the lease, or zero, and how its row stands to it.
func (q *queue) trySetEnd(ctx context.Context, s *sessions, l *lease, d, timeout time.Duration, bound func() time.Duration, skip bool) (end time.Duration, stands standing, err error) {
	sql := q.sql
	if skip {
		sql = sql.SkipLocked()
	}
	start, most := monotonic(), time.Duration(math.MaxInt64)
	if bound != nil {
		most = bound()
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	st := sql.EndAfter([]sqlbatch.Item{l.item}, d)
	if l.seq != 0 {
		st = sql.EndAfterRead(*l.member, []sqlbatch.ReadItem{l.readItem()}, d)
	}
	changed, _, err := s.Items(within, st, nil)
	if err != nil {
		if q.classify(err) == sqlbatch.Unknown || session.Fell(err) {
			l.doubt(start, d)
		}
		return 0, 0, err
	}
	if len(changed) == 1 {
		if bound != nil { // the keeper goes on where the membership ends sooner
			l.until.Store(max(l.until.Load(), int64(start+d)))
		}
		return min(l.reach(start, d), most), 0, nil
	}
	seen, err := q.look(ctx, s, timeout, []*lease{l})
	return 0, seen.of(l.item), err
}

// Ends of a lease, as this process believes in them. The keeper's extensions never
// move the database's end back; Extend may, and it may take effect after others that
// were sent later. So of two that are under way at once the one that may have made the
// end earlier decides.

// extending begins an Extend. There is one at a time: false says that another is
// under way. Call extended at its end.
func (l *lease) extending() bool {
	n := l.cuts.Load()
	return n%2 == 0 && l.cuts.CompareAndSwap(n, n+1)
}

// extended ends an Extend: the database moved the lease's end to end, or, with a zero
// end, left it as it is.
func (l *lease) extended(end time.Duration) {
	if end != 0 {
		l.deadline.Store(int64(end))
		l.until.Store(max(l.until.Load(), int64(end)))
	}
	l.cuts.Add(1)
	l.rewatch()
}

// prolong notes an extension of the keeper's, which was sent when cuts was as given. It
// counts for nothing beside an Extend.
func (l *lease) prolong(end time.Duration, cuts uint32) {
	for cuts%2 == 0 && l.cuts.Load() == cuts {
		was := l.deadline.Load()
		if l.deadline.CompareAndSwap(was, max(was, int64(end))) {
			return
		}
	}
}

// doubt notes an Extend to d, sent at start, whose outcome is unknown: it may yet take
// effect, at any time, and end the lease d after that. Until the Extend ends, this
// process's view changes by nothing else.
func (l *lease) doubt(start, d time.Duration) {
	if u := l.unsure.Load(); u == 0 || int64(d) < u {
		l.unsure.Store(int64(d))
	}
	l.deadline.Store(min(l.deadline.Load(), int64(deadlineAfter(start, d))))
}

// reach is the end of a lease that was extended by d at start: or sooner, should an
// Extend that is in doubt take effect after it.
func (l *lease) reach(start, d time.Duration) time.Duration {
	if u := l.unsure.Load(); u != 0 {
		d = min(d, time.Duration(u))
	}
	return deadlineAfter(start, d)
}
