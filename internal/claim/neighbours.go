package claim

import (
	"database/sql"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/notify"
)

// Neighbour is a consumer among those of its process. The consumers of one queue share the gate of their claims. All consumers share
// the turn to try a suspect, which one of them has at a time: see order.Process. During a last trial the others rest: they claim and
// deliver nothing. It is safe for concurrent use.
type Neighbour struct {
	key     notify.Key
	of      *shared
	process *process
	cfg     *Config // set by Serve
}

// shared is what the consumers of one queue share.
type shared struct {
	gate  *Gate
	users int // of neighbours.mu
}

// process is what the consumers of a process share, whatever their queues.
type process struct {
	mu      sync.Mutex // guards what follows; held for moments
	trying  *Neighbour // has the turn; nil: none has
	clear   bool       // the others rest
	since   time.Duration
	timer   *time.Timer // ends the rest; nil: they are still waited for
	serving map[*Neighbour]bool
}

// neighbours has an entry for each queue that has consumers.
var neighbours = struct {
	mu sync.Mutex // guards the entries; held for moments
	of map[notify.Key]*shared
}{of: map[notify.Key]*shared{}}

var (
	this process
	// processes has the processes that tests simulate, by their databases.
	processes sync.Map
)

// SimulateProcess has the consumers that use a database share the turn with those of no other database until end is called. It is for
// tests that run in parallel, or that simulate several processes.
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

// Join adds a consumer of a queue. Call Leave once.
func Join(key notify.Key) *Neighbour {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	s := neighbours.of[key]
	if s == nil {
		s = &shared{gate: NewGate()}
		neighbours.of[key] = s
	}
	s.users++
	return &Neighbour{key: key, of: s, process: processOf(key.DB)}
}

// Serve has the consumer, whose pace this is, rest during the last trials of others.
func (n *Neighbour) Serve(pace *Pace) {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	n.cfg = &pace.cfg
	if p.serving == nil {
		p.serving = map[*Neighbour]bool{}
	}
	p.serving[n] = true
}

// Leave is called when the consumer has ended. It ends its turn.
func (n *Neighbour) Leave() {
	n.End()
	n.process.mu.Lock()
	delete(n.process.serving, n)
	n.process.mu.Unlock()
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if n.of.users--; n.of.users == 0 {
		delete(neighbours.of, n.key)
	}
}

// Begin begins the turn of the consumer. It reports false if a consumer of the process has the turn.
func (n *Neighbour) Begin() bool {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trying != nil {
		return false
	}
	p.trying = n
	return true
}

// Clear is called in the turn of the consumer, before a last trial. It has the others rest, and release what no reader has taken. It
// reports clear if they hold no lease and no handler runs: then they rest until the end of the turn, for LeaseFor at most, since the
// handler of the suspect may hang. It reports late if they still hold a lease LeaseFor after the first call: then they go on. A handler
// that then runs without a lease hangs, and is not waited for.
func (n *Neighbour) Clear() (clear, late bool) {
	p, now := n.process, base.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.clear {
		p.clear, p.since = true, now
	}
	held, handled := 0, 0
	for other := range p.serving {
		if other == n {
			continue
		}
		leases, handlers := other.cfg.Holder.Held()
		if held, handled = held+leases, handled+handlers; leases > 0 {
			other.cfg.Holder.Yield()
		}
	}
	over := now-p.since > n.cfg.LeaseFor
	clear, late = held == 0 && (handled == 0 || over), over && held > 0
	if late {
		p.resume()
	} else if clear && p.timer == nil {
		p.timer = time.AfterFunc(n.cfg.LeaseFor, n.resume)
	}
	return clear, late
}

// resume ends the rest of the others in the turn of the consumer.
func (n *Neighbour) resume() {
	n.process.mu.Lock()
	defer n.process.mu.Unlock()
	if n.process.trying == n {
		n.process.resume()
	}
}

// resume ends the rest of the consumers. mu is held.
func (p *process) resume() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.clear {
		p.clear = false
		for n := range p.serving {
			n.cfg.Holder.Resume()
		}
	}
}

// Rests reports whether the consumer is to claim and deliver nothing.
func (n *Neighbour) Rests() bool {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clear && p.trying != n
}

// End ends the turn, if this consumer has it.
func (n *Neighbour) End() {
	p := n.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trying == n {
		p.trying = nil
		p.resume()
	}
}
