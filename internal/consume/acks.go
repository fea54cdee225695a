package consume

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
)

// openAcks has the leases of a plain queue that AckTx has acked. Their holders might settle them after a rollback, so
// the end of the consumer waits for them. The commit shows only in the rows. An ordered queue looks at them itself.
type openAcks struct {
	tasks

	mu     sync.Mutex // guards leases
	leases map[*lease.Lease]bool
}

// lookLeast is the pause before rows are looked up if someone waits: the end of the consumer, or a handler whose
// message was cancelled.
const lookLeast = notify.LookEvery / 10

// add registers a lease that is in a transaction now.
func (a *openAcks) add(l *lease.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[l] = true
}

// returned removes a lease whose handler has returned and does not settle it.
func (a *openAcks) returned(l *lease.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.leases, l)
}

// run looks rows up until ctx ends, so that leases whose transactions have ended do not stay in memory. Most have ended
// when their rows are looked up.
func (a *openAcks) run(ctx context.Context) {
	for ctx.Err() == nil {
		batch.Sleep(ctx, notify.LookEvery)
		a.look()
	}
}

// open returns the leases that a holder might settle, or is settling.
func (a *openAcks) open() []*lease.Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.leases, func(l *lease.Lease, _ bool) bool {
		return l.State() > lease.Settling || base.Now() >= l.Period.Deadline()
	})
	return slices.Collect(maps.Keys(a.leases))
}

// look removes the leases whose rows are gone or taken, and reports whether others are open.
func (a *openAcks) look() bool {
	leases := a.open()
	if len(leases) == 0 {
		return false
	}
	seen, err := a.lookUp(leases)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range leases {
		if err == nil && l.State() == lease.InTx && l.Row(seen) != lease.RowHeld {
			delete(a.leases, l)
		}
	}
	return len(a.leases) > 0
}
