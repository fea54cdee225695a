package consume

import (
	"context"
	"sync/atomic"

	"github.com/chanq/chanq/internal/base"
)

// load counts what a consumer holds and its end waits for.
type load struct {
	stop context.Context    // ends when the consumer begins to stop
	halt context.CancelFunc // ends stop

	leases atomic.Int64 // buffered or delivered leases that have not ended
	// handlers counts handlers that have not returned: a transaction that acked the lease might roll back, and then the
	// handler's error is to be settled.
	handlers atomic.Int64
	// Of capacity 1: no lease or handler is left, or the consumer stops and the last lease or handler has ended
	drained chan struct{}
}

func newLoad() *load {
	o := &load{drained: make(chan struct{}, 1)}
	o.stop, o.halt = context.WithCancel(context.Background())
	return o
}

// ended counts a lease or a handler as ended. The last one allows a stopping consumer to end.
func (o *load) ended(of *atomic.Int64) {
	if of.Add(-1) == 0 && o.stop.Err() != nil || o.holds() <= 0 {
		base.Signal(o.drained)
	}
}

// holds returns how many leases and handlers the end waits for; less than one means none.
func (o *load) holds() int {
	leases, handlers := o.held()
	return leases + handlers
}

// held returns how many leases have not ended, and how many handlers have not returned.
func (o *load) held() (leases, handlers int) { return int(o.leases.Load()), int(o.handlers.Load()) }
