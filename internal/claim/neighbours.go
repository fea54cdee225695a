package claim

import (
	"context"
	"database/sql"
	"math"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
)

// Neighbour registers a consumer in its process. The consumers of one queue share the gate of their claims, and know which messages their
// handlers have. All consumers share the turn to try a suspect, which only one of them has at a time: see order.Process. It is safe for
// concurrent use.
type Neighbour struct {
	key     notify.Key
	of      *shared
	process *process
	stop    context.Context // ends when the consumer stops
}

// shared is shared by the consumers of one queue.
type shared struct {
	gate  *Gate
	users int // guarded by neighbours.mu

	mu      sync.Mutex                // guards what follows; held briefly
	handled map[[16]byte]*lease.Lease // by message: the lease of its handler that runs
}

// process is shared by all consumers of a process, whatever their queues.
type process struct {
	mu     sync.Mutex   // guards what follows; held briefly
	trying *Neighbour   // has the turn, or nil
	on     *lease.Lease // ends the turn, or nil
}

// neighbours has an entry for each queue that has consumers.
var neighbours = struct {
	mu sync.Mutex // guards the entries; held briefly
	of map[notify.Key]*shared
}{of: map[notify.Key]*shared{}}

var (
	this process
	// processes has the simulated processes of tests, by their databases.
	processes sync.Map
)

// SimulateProcess makes the consumers that use db share the turn only with each other until end is called. It is for tests that run in
// parallel, or that simulate several processes.
func SimulateProcess(db *sql.DB) (end func()) {
	processes.Store(db, &process{})
	return func() { processes.Delete(db) }
}

// processOf returns this process, unless a test simulates another one.
func processOf(db *sql.DB) *process {
	if p, simulated := processes.Load(db); simulated {
		return p.(*process)
	}
	return &this
}

// Join adds a consumer of a queue, which has stopped when stop has ended. Call Leave once.
func Join(key notify.Key, stop context.Context) *Neighbour {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	s := neighbours.of[key]
	if s == nil {
		s = &shared{gate: NewGate(), handled: map[[16]byte]*lease.Lease{}}
		neighbours.of[key] = s
	}
	s.users++
	return &Neighbour{key, s, processOf(key.DB), stop}
}

// Handle records that a handler gets a lease. If another handler of the process still has the message, by a lease that has ended in the
// database unnoticed, the context of that handler ends, and Handle waits until it has returned, or l has ended. It waits only for grace for
// a handler whose lease was known to have expired before, because it might hang.
func (n *Neighbour) Handle(l *lease.Lease, grace time.Duration) {
	s, end := n.of, time.Duration(math.MaxInt64)
	for first := true; ; first = false {
		s.mu.Lock()
		former := s.handled[l.Item.ID]
		if first && former != nil && former.State() == lease.Expired {
			end = base.Now() + grace
		}
		if former == nil || former == l || former.State().NotHeld() == lease.ErrSettled || l.Gone() || base.Now() >= end {
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

// Leave removes the consumer after it has ended. It ends its turn.
func (n *Neighbour) Leave() {
	n.End()
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.of.users--; n.of.users == 0 {
		delete(neighbours.of, n.key)
	}
}

// Begin begins the turn of the consumer. It returns false if a consumer of the process has the turn.
func (n *Neighbour) Begin() bool {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trying != nil && !p.over() {
		return false
	}
	p.trying, p.on = n, nil
	return true
}

// over reports that the lease with which the turn ends is over. A consumer that has stopped does not look for the commit of its ack.
func (p *process) over() bool {
	return p.on != nil && (isOver(p.on) || p.on.State() == lease.InTx && p.trying.stop.Err() != nil)
}

// EndWith makes the turn of the consumer end when the lease is known to be over, even if the consumer does not call End.
func (n *Neighbour) EndWith(l *lease.Lease) {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trying == n {
		p.on = l
	}
}

// End ends the turn if this consumer has it.
func (n *Neighbour) End() {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trying == n {
		p.trying, p.on = nil, nil
	}
}
