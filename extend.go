package chanq

import (
	"context"
	"fmt"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Lease.Extend, which sets the end of a lease, and may bring it nearer.

// extendOne sets the end of a lease to d from now. It is repeated while somebody has
// the row locked, until ctx ends, and fails at once in any other case. A try takes up
// to timeout, and a turn, if there are any to take.
func (q *queue) extendOne(ctx context.Context, s *sessions, turn chan struct{}, l *lease, d, timeout time.Duration) (held bool, err error) {
	failed := func(err error) error {
		return &OpError{Op: "extend", Queue: q.name, ID: l.item.ID, Err: err}
	}
	for !l.extending() { // two Extends of one lease at once: rare enough
		if sleep(ctx, time.Millisecond); ctx.Err() != nil {
			return false, failed(context.Cause(ctx))
		}
	}
	var end time.Duration
	defer func() { l.extended(end) }()
	pause, skip := retries(), false
	for {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return false, failed(context.Cause(ctx))
		}
		var stands standing
		end, stands, err = q.tryExtend(ctx, s, l, d, timeout, skip)
		<-turn
		class := classify(q.dialect, err)
		switch {
		case err != nil && class != sqlbatch.RolledBack:
			return false, q.fail("extend", err)
		case err == nil && (end != 0 || stands != standsOurs):
			return end != 0, nil
		}
		skip = true
		if sleep(ctx, pause.after(sqlbatch.RolledBack)); ctx.Err() != nil {
			return false, failed(fmt.Errorf("%w: %w", errLocked, context.Cause(ctx)))
		}
	}
}

// tryExtend returns the end of the lease, or zero, and how its row stands to it.
func (q *queue) tryExtend(ctx context.Context, s *sessions, l *lease, d, timeout time.Duration, skip bool) (end time.Duration, stands standing, err error) {
	sql := q.sql
	if skip {
		sql = sql.SkipLocked()
	}
	start := monotonic()
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changed, _, err := s.Items(within, sql.EndAfter([]sqlbatch.Item{l.item}, d), nil)
	if err != nil {
		if classify(q.dialect, err) == sqlbatch.Unknown {
			l.doubt(start, d)
		}
		return 0, 0, err
	}
	if len(changed) == 1 {
		return l.reach(start, d), 0, nil
	}
	seen, err := q.look(ctx, s, timeout, []*lease{l})
	return 0, seen.of(l.item), err
}
