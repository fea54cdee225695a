package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/sqlbatch"
)

// What producers and consumers keep of the connections that a *sql.DB allows.

// reserved counts the connections kept by what runs on each *sql.DB.
var reserved struct {
	mu          sync.Mutex
	connections map[*sql.DB]int
}

// reserve keeps n connections of db until release, unless it allows too few for
// these, for those that are kept already, and one for the application: pinned
// connections do not come back, so the last to ask would wait for ever.
func reserve(db *sql.DB, n int) (release func(), err error) {
	reserved.mu.Lock()
	defer reserved.mu.Unlock()
	kept := reserved.connections[db]
	if err := enough(db, kept, n); err != nil {
		return nil, err
	}
	if reserved.connections == nil {
		reserved.connections = map[*sql.DB]int{}
	}
	reserved.connections[db] = kept + n
	return sync.OnceFunc(func() {
		reserved.mu.Lock()
		defer reserved.mu.Unlock()
		if reserved.connections[db] -= n; reserved.connections[db] == 0 {
			delete(reserved.connections, db)
		}
	}), nil
}

// enough reports a *sql.DB that cannot hold the kept connections, n more and one
// for the application.
func enough(db *sql.DB, kept, n int) error {
	most := db.Stats().MaxOpenConnections
	if most == 0 || most >= kept+n+1 {
		return nil
	}
	already := ""
	if kept > 0 {
		already = fmt.Sprintf(" besides the %d of the producers and consumers that run", kept)
	}
	return fmt.Errorf("the *sql.DB allows %d open connections: chanq keeps up to %d for itself%s, and the application needs one; call SetMaxOpenConns(%d) or more",
		most, n, already, kept+n+1)
}

// fill connects every session of a *sql.DB with a limit before there is work.
// Handlers may use up the limit, and hold what they have while they wait for a
// settle; a session that asks for its connection only then would never get it.
func (p *sessions) fill(ctx context.Context) error {
	if p.db.Stats().MaxOpenConnections == 0 {
		return nil
	}
	for {
		switch err := p.pool.CreateResource(ctx); {
		case errors.Is(err, puddle.ErrNotAvailable), errors.Is(err, puddle.ErrClosedPool): // full, or at its end
			return nil
		case err != nil:
			return &notRunError{err: fmt.Errorf("connect: %w", err), unconnected: true}
		}
	}
}

// spare reports that a *sql.DB has a connection for whoever asks next.
func spare(db *sql.DB) bool {
	s := db.Stats()
	return s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections
}

// The shared pools of databases with one writer.
var shared struct {
	mu    sync.Mutex
	pools map[*sql.DB]*sharedSessions
}

type sharedSessions struct {
	*sessions
	users int
}

func joinSharedSessions(db *sql.DB, d sqlbatch.Dialect) *sessions {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.pools == nil {
		shared.pools = map[*sql.DB]*sharedSessions{}
	}
	p := shared.pools[db]
	if p == nil {
		p = &sharedSessions{sessions: newSessions(db, d, 0, 1)}
		shared.pools[db] = p
	}
	p.users++
	s := &sessions{pool: p.pool, db: db, dialect: d}
	s.close = func() {
		s.endStrays()
		shared.mu.Lock()
		p.users--
		last := p.users == 0
		if last {
			delete(shared.pools, db)
		}
		shared.mu.Unlock()
		if last {
			p.pool.Close()
		}
	}
	return s
}
