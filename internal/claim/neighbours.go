package claim

import (
	"math"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
)

// Neighbour registers a consumer in its process. The consumers of one queue share the gate of their claims, and know
// which messages their handlers have. It is safe for concurrent use.
type Neighbour struct {
	key notify.Key
	of  *shared
}

// shared is shared by the consumers of one queue.
type shared struct {
	gate  *Gate
	users int // guarded by neighbours.mu

	mu      sync.Mutex                // guards what follows; held briefly
	handled map[[16]byte]*lease.Lease // by message: the lease of its handler that runs
}

// neighbours has an entry for each queue that has consumers.
var neighbours = struct {
	mu sync.Mutex // guards the entries; held briefly
	of map[notify.Key]*shared
}{of: map[notify.Key]*shared{}}

// Join adds a consumer of a queue. Call Leave once.
func Join(key notify.Key) *Neighbour {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	s := neighbours.of[key]
	if s == nil {
		s = &shared{gate: NewGate(), handled: map[[16]byte]*lease.Lease{}}
		neighbours.of[key] = s
	}
	s.users++
	return &Neighbour{key, s}
}

// Handle records that a handler gets a lease. If another handler of the process still has the message, by a lease that
// has ended in the database unnoticed, the context of that handler ends, and Handle waits until it has returned, or l
// has ended. It waits only for grace for a handler whose lease was known to have expired before, because it might hang.
func (n *Neighbour) Handle(l *lease.Lease, grace time.Duration) {
	s, end := n.of, time.Duration(math.MaxInt64)
	for first := true; ; first = false {
		s.mu.Lock()
		former := s.handled[l.Item.ID]
		if first && former != nil && former.State() == lease.Expired {
			end = base.Now() + grace
		}
		if former == nil || former == l || lease.NotHeld(former) == lease.ErrSettled || l.Gone() ||
			base.Now() >= end {
			s.handled[l.Item.ID] = l
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		former.Home.Owner.Expire(former)
		time.Sleep(10 * time.Millisecond)
	}
}

// Handled records that the handler of a lease has returned.
func (n *Neighbour) Handled(l *lease.Lease) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.of.handled[l.Item.ID] == l {
		delete(n.of.handled, l.Item.ID)
	}
}

// Leave removes the consumer after it has ended.
func (n *Neighbour) Leave() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.of.users--; n.of.users == 0 {
		delete(neighbours.of, n.key)
	}
}
