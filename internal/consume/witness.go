package consume

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// witness detects which messages the caller's transactions have acked: their rows are gone after the commit, and only the caller knows
// about the commit. It checks all of them together, witnessEvery after the first ack, and at this interval while rows are left.
type witness struct {
	*tasks
	abandoned context.Context
	committed func(leases []*lease.Lease, seen bool) // see lease.Committed
	entered   chan struct{}                          // of capacity 1: there are leases

	mu     sync.Mutex // guards leases
	leases map[*lease.Lease]bool
}

// witnessEvery is the pause before a check. Most transactions have ended by then.
const witnessEvery = time.Second

// add registers a lease that is in a transaction now.
func (w *witness) add(l *lease.Lease) {
	w.mu.Lock()
	w.leases[l] = true
	w.mu.Unlock()
	base.Signal(w.entered)
}

// returned records that the handler of a lease has returned, and does not settle it.
func (w *witness) returned(l *lease.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[l] {
		w.leases[l] = false
	}
}

// open returns the leases that are still in a transaction. If a transaction was rolled back, another consumer might end the message.
// settles reports that a holder of a lease might settle it after a rollback, or is settling it.
func (w *witness) open() (leases []*lease.Lease, settles bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.leases, func(l *lease.Lease, held bool) bool {
		over := l.State() > lease.Settling || !w.lasts(l)
		settles = settles || held && !over && base.Now() < l.Period.Deadline()
		return over
	})
	leases = slices.Collect(maps.Keys(w.leases))
	return slices.DeleteFunc(leases, func(l *lease.Lease) bool { return !inOpenTx(l) }), settles
}

func inOpenTx(l *lease.Lease) bool { return l.State() == lease.InTx && !l.RolledBack.Load() }

// run checks until ctx ends, and once more after that. Before, the end of the consumer looks as well.
func (w *witness) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-w.entered:
			batch.Sleep(ctx, witnessEvery)
		case <-ctx.Done():
		}
		w.look()
		if leases, _ := w.open(); len(leases) > 0 {
			base.Signal(w.entered)
		}
	}
}

// look reports the acks whose rows are gone, and returns settles of open. It keeps checking the others until LeaseFor after the end of
// their leases: a transaction might keep a row for longer, but other consumers might have the message by then.
func (w *witness) look() (settles bool) {
	leases, settles := w.open()
	leases = slices.DeleteFunc(leases, func(l *lease.Lease) bool {
		return l.Entering.Load() // its row might be gone, so that the ack finds the lease lost
	})
	if len(leases) == 0 {
		return settles
	}
	seen, err := table.Table{Queue: w.cfg.Table, Part: w.note}.Look(w.abandoned, w.cfg.patience(), lease.IDs(leases))
	w.mind("look", err)
	leases = slices.DeleteFunc(leases, func(l *lease.Lease) bool {
		row := lease.RowHeld
		if err == nil {
			row = l.Row(seen)
		}
		if row == lease.RowTaken { // another consumer might end the message
			l.RolledBack.Store(true)
		}
		return row != lease.RowGone
	})
	w.committed(leases, true)
	_, settles = w.open()
	return settles
}

// lasts reports whether a lease is still checked.
func (w *witness) lasts(l *lease.Lease) bool { return base.Now() < l.Period.Deadline()+w.cfg.LeaseFor }
