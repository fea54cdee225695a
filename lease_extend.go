package chanq

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// Lease.Extend. Like the keeper's extensions it keeps the later of two ends, so that
// several may be under way at once, and one that was left behind does no harm.

// extendOne has a lease last at least d from now. It is repeated while another transaction has the row locked, until ctx ends, and
// fails at once in any other case. A try takes up to timeout, and the keeper's turn: so one of its sessions is left to its
// own extensions.
func (k *keeper) extendOne(ctx context.Context, l *lease, d, timeout time.Duration) (held bool, err error) {
	q := k.queue
	failed := func(err error) error {
		return &OpError{Op: "extend", Queue: q.label, ID: l.item.ID, Err: err}
	}
	defer func() {
		if k.due(l, base.Now()) { // the end has come near
			base.Signal(k.wake)
		}
	}()
	pause := batch.Backoff{Low: batch.LowPause, High: batch.HighPause}
	for skip := false; ; skip = true {
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return false, failed(context.Cause(ctx))
		}
		var stands standing
		held, stands, err = k.tryExtend(ctx, l, d, timeout, skip)
		<-k.turn
		switch {
		case err != nil && q.classify(err) != sqlbatch.RolledBack:
			return false, q.fail("extend", err)
		case err == nil && (held || stands != standsOurs):
			return held, nil
		}
		if batch.Sleep(ctx, pause.Pause()); ctx.Err() != nil {
			return false, failed(fmt.Errorf("%w: %w", errLocked, context.Cause(ctx)))
		}
	}
}

// tryExtend reports that the database knows the lease, or how its row stands to it.
func (k *keeper) tryExtend(ctx context.Context, l *lease, d, timeout time.Duration, skip bool) (held bool, stands standing, err error) {
	sql := k.queue.sql
	if skip {
		sql = sql.SkipLocked()
	}
	start := base.Now()
	member, ends := k.member()
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changed, _, err := k.sessions.Items(within, sql.Extend(member, []sqlbatch.Item{l.item}, d), nil)
	if err != nil {
		return false, 0, err
	}
	if len(changed) == 1 {
		l.prolong(min(deadlineAfter(start, d), ends))
		// The keeper goes on where the membership ends sooner.
		raise(&l.until, start+d)
		return true, 0, nil
	}
	seen, err := k.queue.look(ctx, k.sessions, timeout, []*lease{l})
	return false, seen.of(l.item), err
}

// prolong notes that the database has the lease until end at least.
func (l *lease) prolong(end time.Duration) { raise(&l.deadline, end) }

// raise sets t to at, unless it is later.
func raise(t *atomic.Int64, at time.Duration) {
	for was := t.Load(); was < int64(at) && !t.CompareAndSwap(was, int64(at)); was = t.Load() {
	}
}
