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

// take returns the leases that are still in a transaction. If a transaction was rolled back, another consumer might end the message.
func (w *witness) take() []*lease.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	leases := slices.Collect(maps.Keys(w.leases))
	clear(w.leases)
	return slices.DeleteFunc(leases, func(l *lease.Lease) bool { return !inOpenTx(l) })
}

// waits reports that a lease is still in a transaction.
func (w *witness) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.leases {
		if inOpenTx(l) {
			return true
		}
	}
	return false
}

func inOpenTx(l *lease.Lease) bool { return l.State() == lease.InTx && !l.RolledBack.Load() }

// run checks until ctx ends, and once more after that. If transactions are still open, it makes a last check witnessEvery later, because
// readers of a channel commit after the ack that ends the consumer.
func (w *witness) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-w.entered:
			batch.Sleep(ctx, witnessEvery)
		case <-ctx.Done():
		}
		w.look()
	}
	if w.waits() { // also those that came during the last look
		batch.Sleep(w.abandoned, witnessEvery)
		w.look()
	}
}

// look reports the acks whose rows are gone. It keeps checking the others until LeaseFor after the end of their leases: a transaction might
// keep a row for longer, but other consumers might have the message by then.
func (w *witness) look() {
	leases := slices.DeleteFunc(w.take(), func(l *lease.Lease) bool {
		entering := l.Entering.Load() // its row might be gone, so that the ack finds the lease lost
		if entering && w.lasts(l) {
			w.add(l)
		}
		return entering
	})
	if len(leases) == 0 {
		return
	}
	seen, err := table.Table{Queue: w.cfg.Table, Part: w.note}.Look(w.abandoned, w.cfg.patience(), lease.IDs(leases))
	w.mind("look", err)
	var gone []*lease.Lease
	for _, l := range leases {
		row := lease.RowHeld
		if err == nil {
			row = l.Row(seen)
		}
		switch {
		case row == lease.RowGone:
			gone = append(gone, l)
		case row == lease.RowHeld && w.lasts(l):
			w.add(l)
		}
	}
	w.committed(gone, true)
}

// lasts reports whether a lease is still checked.
func (w *witness) lasts(l *lease.Lease) bool { return base.Now() < l.Period.Deadline()+w.cfg.LeaseFor }
