package chanq

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// Lease.Extend. Like the keeper's extensions it keeps the later of two ends, so that
// several may be under way at once, and one that was left behind does no harm.

// extend has a lease last at least d from now. It is repeated while somebody has the
// row locked, until ctx ends, and fails at once in any other case. A try takes up to
// timeout, and a turn, if there are any to take. bound is beyond which the database
// does not go, as of now; nil: it does.
func (q *queue) extend(ctx context.Context, s *sessions, turn chan struct{}, l *lease, d, timeout time.Duration, bound func() time.Duration) (held bool, err error) {
	failed := func(err error) error {
		return &OpError{Op: "extend", Queue: q.label, ID: l.item.ID, Err: err}
	}
	pause := batch.Backoff{Low: batch.LowPause, High: batch.HighPause}
	skip := false
	for {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return false, failed(context.Cause(ctx))
		}
		var stands standing
		held, stands, err = q.tryExtend(ctx, s, l, d, timeout, bound, skip)
		<-turn
		class := q.classify(err)
		switch {
		case err != nil && class != sqlbatch.RolledBack:
			return false, q.fail("extend", err)
		case err == nil && (held || stands != standsOurs):
			return held, nil
		}
		skip = true
		if batch.Sleep(ctx, pause.Pause()); ctx.Err() != nil {
			return false, failed(fmt.Errorf("%w: %w", errLocked, context.Cause(ctx)))
		}
	}
}

// extendOne is queue.extend beside the keeper's own extensions. It leaves one of the
// keeper's sessions to these, and wakes it where the end has come near.
func (k *keeper) extendOne(ctx context.Context, l *lease, d, timeout time.Duration) (held bool, err error) {
	held, err = k.queue.extend(ctx, k.sessions, k.turn, l, d, timeout, k.bound)
	if k.due(l, monotonic()) {
		notify(k.wake)
	}
	return held, err
}

// tryExtend reports that the database knows the lease, or how its row stands to it.
func (q *queue) tryExtend(ctx context.Context, s *sessions, l *lease, d, timeout time.Duration, bound func() time.Duration, skip bool) (held bool, stands standing, err error) {
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
	changed, _, err := s.Items(within, sql.Extend([16]byte{}, []sqlbatch.Item{l.item}, d), nil)
	if err != nil {
		return false, 0, err
	}
	if len(changed) == 1 {
		l.prolong(min(deadlineAfter(start, d), most))
		// The keeper goes on where the membership ends sooner.
		raise(&l.until, start+d)
		return true, 0, nil
	}
	seen, err := q.look(ctx, s, timeout, []*lease{l})
	return false, seen.of(l.item), err
}

// prolong notes that the database has the lease until end at least.
func (l *lease) prolong(end time.Duration) { raise(&l.deadline, end) }

// raise sets t to at, unless it is later.
func raise(t *atomic.Int64, at time.Duration) {
	for was := t.Load(); was < int64(at) && !t.CompareAndSwap(was, int64(at)); was = t.Load() {
	}
}
