package session

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Kind is what a session is used for.
type Kind uint8

// The kinds.
const (
	Claim Kind = iota
	Settle
	Extend
	Enqueue
	Pipe
	Note // statements that can wait: they borrow a connection of the application briefly
	call // the call of a Part of Once
	kinds
)

func (k Kind) String() string {
	return [...]string{"claims", "settles", "extensions", "sends", "pipes", "notes", "calls"}[k]
}

// reserved returns how many sessions a kind keeps if the *sql.DB has a limit and its parts
// may use need at once.
func (k Kind) reserved(need int) int {
	if k == Note || k == call {
		return 0
	}
	return min(need, 2)
}

// Need is how many sessions of a kind a part may use at once. Spare sessions are additional:
// if the *sql.DB has a limit, no connection is reserved for them, and the part calls
// Part.Spare before it uses one.
type Need struct {
	Kind     Kind
	Sessions int
	Spare    int
}

// Pool has the sessions of one *sql.DB: see the package comment. It is safe for
// concurrent use.
//
// Its goroutines are one per attempt to connect, and briefly that of a lane's timer, which
// closes idle sessions. Close joins them, except an attempt that hangs in the driver.
type Pool struct {
	db      *sql.DB
	dialect sqlbatch.Dialect
	traits  sqlbatch.Traits
	life    context.Context // of attempts to connect; Close cancels it
	end     context.CancelFunc
	dials   base.Group
	coming  atomic.Int64  // attempts to connect
	starved atomic.Int64  // connections are scarce until then, in Unix nanoseconds
	sure    atomic.Int64  // as starved, and not because of a slow network: see doubtful
	single  turns         // of statements, while connections are scarce
	alone   chan struct{} // of capacity 1: see Part.Alone
	turn    chan struct{} // of capacity 1: see Part.Turn

	mu    sync.Mutex // guards the fields below; locked before a lane's mu
	lanes [kinds]*lane
	need  [kinds]int // of the open parts
}

// NewPool returns a pool without sessions. Close it after the last part.
func NewPool(db *sql.DB, d sqlbatch.Dialect) *Pool {
	p := &Pool{db: db, dialect: d, traits: d.Traits(), alone: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Join adds a part for each need. It connects nothing. maxAge limits the age of the sessions
// that the parts use; 0 is no limit. Join fails if the *sql.DB allows too few connections
// for the reserved connections of all parts and one for the application.
func (p *Pool) Join(maxAge time.Duration, needs ...Need) ([]*Part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	need := p.need
	for _, n := range needs {
		need[n.Kind] += n.Sessions
	}
	if err := p.enough(need); err != nil {
		return nil, err
	}
	parts := make([]*Part, len(needs))
	for i, n := range needs {
		parts[i] = newPart(p, n, maxAge)
	}
	p.setNeed(need)
	return parts, nil
}

// leave subtracts the need of a part.
func (p *Pool) leave(n Need) {
	p.mu.Lock()
	defer p.mu.Unlock()
	need := p.need
	need[n.Kind] -= n.Sessions
	p.setNeed(need)
}

// setNeed stores the needs and sets the reserved connections of the lanes. mu is held.
func (p *Pool) setNeed(need [kinds]int) {
	p.need = need
	if p.traits.OneWriter {
		return
	}
	for k, l := range p.lanes {
		if l != nil {
			l.setReserved(Kind(k).reserved(need[k]))
		}
	}
}

// lane returns the lane of a kind. mu is held.
func (p *Pool) lane(k Kind) *lane {
	if p.traits.OneWriter {
		k = 0
	}
	if p.lanes[k] == nil {
		p.lanes[k] = newLane(p, k)
	}
	return p.lanes[k]
}

// enough returns an error if the *sql.DB allows too few connections for the reserved
// connections and one for the application.
func (p *Pool) enough(need [kinds]int) error {
	total := 0
	var each []string
	for k, n := range need {
		if reserved := Kind(k).reserved(n); reserved > 0 {
			total += reserved
			each = append(each, fmt.Sprintf("%d for %s", reserved, Kind(k)))
		}
	}
	if p.traits.OneWriter {
		return Enough(p.life, p.db, p.dialect)
	}
	if most := p.limit(); most > 0 && most < total+1 {
		return tooFew(most, fmt.Sprintf("keeps %d of them for itself (%s, shared by all queues on it)", total,
			strings.Join(each, ", ")), total+1)
	}
	return nil
}

// Enough returns an error if db has no connection for the application in addition to one session: by its limit, or
// because it gives no second one before ctx ends. That is tested only while none is in use.
func Enough(ctx context.Context, db *sql.DB, d sqlbatch.Dialect) error {
	s := db.Stats()
	switch {
	case s.MaxOpenConnections == 1:
		return tooFew(1, "needs one for itself", 2)
	case s.InUse > 0 || d.Traits().OneWriter:
		return nil
	}
	first, err := connect(ctx, db, false)
	if err == nil {
		defer first.Close()
		var second *sql.Conn
		if second, err = connect(ctx, db, false); err == nil {
			return second.Close()
		}
		err = fmt.Errorf("there is no second connection, and chanq and the application need one each: "+
			"raise the limit of the driver's pool, the role or the server: %w", err)
	}
	return unconnected(err)
}

func tooFew(most int, why string, least int) error {
	return fmt.Errorf("the *sql.DB allows %d open connections: chanq %s, and the application needs one; call "+
		"SetMaxOpenConns(%d) or more", most, why, least)
}

// limit returns how many connections the *sql.DB may open, or 0 for no limit.
func (p *Pool) limit() int { return p.db.Stats().MaxOpenConnections }

// spare reports whether the *sql.DB has a connection for the next caller, and n more.
func (p *Pool) spare(n int) bool {
	s := p.db.Stats()
	return s.MaxOpenConnections == 0 || s.InUse+n < s.MaxOpenConnections
}

// Close cancels attempts to connect and closes every session. All parts must be closed.
func (p *Pool) Close() {
	p.mu.Lock()
	p.end() // no dial begins from now on
	p.mu.Unlock()
	p.dials.Wait()
	for _, l := range p.lanes {
		if l != nil {
			l.close()
		}
	}
}

// Once returns a part for one call. It takes its connection like a call of the application,
// and returns it when it is closed. Do not use it for a database with one writer: join its
// Pool.
func Once(db *sql.DB, d sqlbatch.Dialect) *Part {
	p := NewPool(db, d)
	part := newPart(p, Need{Kind: call, Sessions: 1}, 0)
	part.last = p.Close
	return part
}
