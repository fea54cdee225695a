package claim

import (
	"math"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
)

// Neighbours are the consumers of one queue in one process. They share the gate of their claims, and know which
// messages their handlers have. It is safe for concurrent use.
type Neighbours struct {
	key   notify.Key
	gate  *semaphore.Weighted // see enter
	users int                 // guarded by neighbours.mu

	mu      sync.Mutex                // guards what follows; held briefly
	handled map[[16]byte]*lease.Lease // by message: the lease of its handler that runs
}

// neighbours has an entry for each queue that has consumers.
var neighbours = struct {
	mu sync.Mutex // guards the entries; held briefly
	of map[notify.Key]*Neighbours
}{of: map[notify.Key]*Neighbours{}}

// Join adds a consumer of a queue. Call Leave once.
func Join(key notify.Key) *Neighbours {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	n := neighbours.of[key]
	if n == nil {
		n = &Neighbours{key: key, gate: newGate(), handled: map[[16]byte]*lease.Lease{}}
		neighbours.of[key] = n
	}
	n.users++
	return n
}

// Handle records that a handler gets a lease. If another handler of the process still has the message, by a lease that
// has ended in the database unnoticed, the context of that handler ends, and Handle waits until it has returned, or l
// has ended. It waits only for grace for a handler whose lease was known to have expired before, because it might hang.
func (n *Neighbours) Handle(l *lease.Lease, grace time.Duration) {
	end := time.Duration(math.MaxInt64)
	for first := true; ; first = false {
		n.mu.Lock()
		former := n.handled[l.Item.ID]
		if first && former != nil && former.State() == lease.Expired {
			end = base.Now() + grace
		}
		if former == nil || former == l || lease.NotHeld(former) == lease.ErrSettled || l.Gone() ||
			base.Now() >= end {
			n.handled[l.Item.ID] = l
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		former.Home.Owner.Expire(former)
		time.Sleep(10 * time.Millisecond)
	}
}

// Handled records that the handler of a lease has returned.
func (n *Neighbours) Handled(l *lease.Lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handled[l.Item.ID] == l {
		delete(n.handled, l.Item.ID)
	}
}

// Leave removes the consumer after it has ended.
func (n *Neighbours) Leave() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(neighbours.of, n.key)
	}
}
