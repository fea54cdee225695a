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

// witness finds out which messages transactions of the caller have acked: their rows are gone after the commit, of which only the
// caller learns. It looks at all of them together, witnessEvery after the first ack, and then as often while rows are left.
type witness struct {
	*tasks
	abandoned context.Context
	committed func(leases []*lease.Lease, seen bool) // see lease.Committed
	entered   chan struct{}                          // of capacity 1: there are leases

	mu     sync.Mutex // guards leases
	leases map[*lease.Lease]bool
}

// witnessEvery is the pause before a look. Most transactions have ended by then.
const witnessEvery = time.Second

// add notes a lease that is in a transaction now.
func (w *witness) add(l *lease.Lease) {
	w.mu.Lock()
	w.leases[l] = true
	w.mu.Unlock()
	base.Signal(w.entered)
}

// take returns the leases that are still in a transaction. Of one that was rolled back another consumer may end the message.
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

// run looks until ctx ends, and once more then. If transactions are still open, it looks a last time witnessEvery later: readers of a
// channel commit after the ack that ends the consumer.
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

// look reports the acks whose rows are gone. It goes on looking for the others until LeaseFor after the end of their leases: a
// transaction may keep a row for longer, but others may have the message by then.
func (w *witness) look() {
	leases := w.take()
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
		case row == lease.RowHeld && base.Now() < l.Period.Deadline()+w.cfg.LeaseFor:
			w.add(l)
		}
	}
	w.committed(gone, true)
}
