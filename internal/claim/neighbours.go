package claim

import (
	"sync"
)

// Neighbours is what the consumers of one queue share in a process: the gate of their claims, and the turn to try a suspect.
type Neighbours struct {
	key  any
	gate *Gate

	// Of neighbours.mu.
	users  int
	trying *Trial // has the turn; nil: none has
}

// neighbours has an entry for each queue that has consumers.
var neighbours struct {
	mu sync.Mutex // guards what follows, and the entries; held for moments
	of map[any]*Neighbours
}

// Join returns what the consumers of the queue share. key is the queue's. Call Leave once.
func Join(key any) *Neighbours {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	n := neighbours.of[key]
	if n == nil {
		if neighbours.of == nil {
			neighbours.of = map[any]*Neighbours{}
		}
		n = &Neighbours{key: key, gate: NewGate()}
		neighbours.of[key] = n
	}
	n.users++
	return n
}

// Leave is called by a consumer that has ended.
func (n *Neighbours) Leave() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(neighbours.of, n.key)
	}
}

// Trial is the turn of one consumer to try a suspect of its queue: see order.Process. One consumer of the process has it at a time.
// It is safe for concurrent use.
type Trial struct{ of *Neighbours }

// Trial returns the turn of a consumer.
func (n *Neighbours) Trial() *Trial { return &Trial{of: n} }

// Begin reports false if another consumer has the turn.
func (t *Trial) Begin() bool {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if t.of.trying != nil {
		return false
	}
	t.of.trying = t
	return true
}

// End ends the turn, if this consumer has it.
func (t *Trial) End() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if t.of.trying == t {
		t.of.trying = nil
	}
}
