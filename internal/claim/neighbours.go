package claim

import (
	"sync"
)

// Neighbour is a consumer among those of its queue in this process. They share the gate of their claims, and the turn to try a suspect,
// which one of them has at a time: see order.Process. It is safe for concurrent use.
type Neighbour struct {
	key any
	of  *shared
}

// shared is what the consumers of one queue share.
type shared struct {
	gate *Gate

	// Of neighbours.mu.
	users  int
	trying *Neighbour // has the turn; nil: none has
}

// neighbours has an entry for each queue that has consumers.
var neighbours = struct {
	mu sync.Mutex // guards what follows, and the entries; held for moments
	of map[any]*shared
}{of: map[any]*shared{}}

// Join adds a consumer of a queue. key is the queue's. Call Leave once.
func Join(key any) *Neighbour {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	s := neighbours.of[key]
	if s == nil {
		s = &shared{gate: NewGate()}
		neighbours.of[key] = s
	}
	s.users++
	return &Neighbour{key, s}
}

// Leave is called when the consumer has ended. It ends its turn.
func (n *Neighbour) Leave() {
	n.End()
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.of.users--; n.of.users == 0 {
		delete(neighbours.of, n.key)
	}
}

// Begin begins the turn of the consumer. It reports false if a consumer of the queue has the turn.
func (n *Neighbour) Begin() bool {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.of.trying != nil {
		return false
	}
	n.of.trying = n
	return true
}

// End ends the turn, if this consumer has it.
func (n *Neighbour) End() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.of.trying == n {
		n.of.trying = nil
	}
}
