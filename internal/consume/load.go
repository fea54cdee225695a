package consume

import (
	"context"
	"sync/atomic"

	"github.com/chanq/chanq/internal/base"
)

// load counts what a consumer holds and its end waits for, and has its part in the end of its group. It represents the consumer in the
// group, and is the claim.Idleness of its claims.
type load struct {
	stop  context.Context
	halt  context.CancelFunc
	group *Group // nil: the consumer does not stop when it is idle
	idle  uint64 // Group.now when the poll that found it idle began; 0: it is not idle

	leases atomic.Int64 // buffered or delivered leases that have not ended
	// handlers counts handlers that have not returned: a transaction that acked the lease might roll back, and then the handler's error is
	// to be settled.
	handlers atomic.Int64
	drained  chan struct{} // of capacity 1: the consumer stops, and the last lease or handler has ended
	cleared  chan struct{} // of capacity 1: a suspect has ended, or the last lease of an idle group: a claim might find something
}

func newLoad(group *Group) *load {
	o := &load{group: group, drained: make(chan struct{}, 1), cleared: make(chan struct{}, 1)}
	o.stop, o.halt = context.WithCancel(context.Background())
	return o
}

// track counts leases that may be delivered from now on.
func (o *load) track(leases int) {
	o.leases.Add(int64(leases))
	o.group.delivers()
}

// ended counts a lease or a handler as ended. The last one allows a stopping consumer to end.
func (o *load) ended(of *atomic.Int64) {
	if of.Add(-1) == 0 && o.stop.Err() != nil {
		base.Signal(o.drained)
	}
	o.group.ended()
}

// holds returns how many leases and handlers the end waits for; less than one means none.
func (o *load) holds() int {
	leases, handlers := o.held()
	return leases + handlers
}

// held returns how many leases have not ended, and how many handlers have not returned.
func (o *load) held() (leases, handlers int) { return int(o.leases.Load()), int(o.handlers.Load()) }

// leave records that the consumer has stopped claiming.
func (o *load) leave() {
	if o.group != nil {
		o.group.note(o, idleForGood)
	}
}

func (o *load) Begin() (now uint64, quiet bool) {
	o.group.mu.Lock()
	now = o.group.now // before the counts: a delivery after them invalidates the poll
	o.group.mu.Unlock()
	return now, !o.group.held()
}

func (o *load) Idle(now uint64) (stopped bool) { return o.group.note(o, now) }
