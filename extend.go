package chanq

import (
	"context"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Lease.Extend, which sets the end of a lease, and may bring it nearer.

// extendOne sets the end of a lease to d from now. It is repeated while somebody has
// the row locked, until ctx ends, and fails at once in any other case. A try takes up
// to timeout.
func (q *queue) extendOne(ctx context.Context, s *sessions, l *lease, d, timeout time.Duration) (held bool, err error) {
	for !l.extending() { // two Extends of one lease at once: rare enough
		if sleep(ctx, time.Millisecond); ctx.Err() != nil {
			return false, &OpError{Op: "extend", Queue: q.name, ID: l.item.ID, Err: context.Cause(ctx)}
		}
	}
	var end time.Duration
	defer func() { l.extended(end) }()
	pause, skip := retries(), false
	for {
		sql := q.sql
		if skip {
			sql = sql.SkipLocked()
		}
		start := monotonic()
		within, cancel := context.WithTimeout(ctx, timeout)
		changed, _, err := s.items(within, sql.EndAfter([]sqlbatch.Item{l.item}, d), nil)
		cancel()
		class := classify(q.dialect, err)
		switch {
		case err == nil && len(changed) == 1:
			end = l.reach(start, d)
			return true, nil
		case err != nil && class == sqlbatch.Unknown:
			l.doubt(start, d)
		}
		if err == nil {
			var seen sight
			if seen, err = q.look(ctx, s, timeout, []*lease{l}); err == nil {
				if seen.of(l.item) != standsOurs {
					return false, nil
				}
				err = errLocked
			}
		}
		if err != errLocked && class != sqlbatch.RolledBack {
			return false, q.fail("extend", err)
		}
		skip = true
		if sleep(ctx, pause.after(sqlbatch.RolledBack)); ctx.Err() != nil {
			return false, &OpError{Op: "extend", Queue: q.name, ID: l.item.ID, Err: errLocked}
		}
	}
}
