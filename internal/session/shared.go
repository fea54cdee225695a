package session

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// pools has the Pool of each *sql.DB that has open parts. All queues on a *sql.DB share it.
var pools struct {
	mu sync.Mutex // held briefly, never during a statement
	of map[*sql.DB]*shared
}

type shared struct {
	pool  *Pool
	parts int // open ones; the last one closes the pool
}

// Open joins the pool of db with each need. It connects nothing. It fails if the *sql.DB allows too few connections.
func Open(db *sql.DB, d sqlbatch.Dialect, maxAge time.Duration, needs ...Need) ([]*Part, error) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	s := pools.of[db]
	if s == nil {
		s = &shared{pool: NewPool(db, d)}
	}
	parts, err := s.pool.Join(maxAge, needs...)
	if err != nil {
		return nil, err // a new pool has nothing to close
	}
	if pools.of == nil {
		pools.of = map[*sql.DB]*shared{}
	}
	pools.of[db] = s
	s.parts += len(parts)
	for _, p := range parts {
		p.last = func() { leave(db) }
	}
	return parts, nil
}

// leave closes the pool of db after its last part.
func leave(db *sql.DB) {
	pools.mu.Lock()
	s := pools.of[db]
	s.parts--
	last := s.parts == 0
	if last {
		delete(pools.of, db)
	}
	pools.mu.Unlock()
	if last {
		s.pool.Close()
	}
}

// OpenOnce returns a part for one call. It takes its connection like a call of the application; on a database with one
// writer it uses the only session.
func OpenOnce(db *sql.DB, d sqlbatch.Dialect) *Part {
	if d.Traits().OneWriter {
		if parts, err := Open(db, d, 0, Need{Kind: call, Sessions: 1}); err == nil {
			return parts[0]
		}
	}
	return Once(db, d)
}

// Connect takes the reserved connections before they are needed, if the *sql.DB has a limit. It drops its error: the
// first statement fails in the same way and returns it.
func (p *Part) Connect(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = p.Fill(ctx)
}

// Turn begins the turn of a task that borrows a connection for long, such as a vacuum: one task at a time on the
// *sql.DB. ok is false during the turn of another task. done ends the turn.
func (p *Part) Turn() (done func(), ok bool) {
	select {
	case p.pool.turn <- struct{}{}:
		return func() { <-p.pool.turn }, true
	default:
		return nil, false
	}
}
