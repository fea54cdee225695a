package chanq

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// sharedDB is what all queues on one *sql.DB share in this process.
type sharedDB struct {
	users     int           // parts of sessions and listeners: the last one to leave ends it
	sessions  *session.Pool // nil before the first part
	listeners map[queueKey][]*listener
	gates     map[queueKey]*claim.Gate // of those that have listeners
	trials    map[queueKey]bool        // queues of which a consumer tries a suspect: see internal/claim
	// vacuums is taken by the queue whose table is being vacuumed: one at a time, since
	// it borrows a connection of the application's for as long as that takes.
	vacuums chan struct{}
}

// shared has one entry for each *sql.DB on which something runs.
var shared struct {
	mu sync.Mutex // guards all entries; held for moments, for no statement
	of map[*sql.DB]*sharedDB
}

// sharedOf returns what db's queues share. shared.mu is held. Whoever stays counts as a
// user and leaves later.
func sharedOf(db *sql.DB) *sharedDB {
	if shared.of == nil {
		shared.of = map[*sql.DB]*sharedDB{}
	}
	s := shared.of[db]
	if s == nil {
		s = &sharedDB{listeners: map[queueKey][]*listener{}, gates: map[queueKey]*claim.Gate{}, trials: map[queueKey]bool{}, vacuums: make(chan struct{}, 1)}
		shared.of[db] = s
	}
	return s
}

// leaveShared is the end of n users of what db's queues share.
func leaveShared(db *sql.DB, n int) {
	shared.mu.Lock()
	s := shared.of[db]
	s.users -= n
	last := s.users == 0
	if last {
		delete(shared.of, db)
	}
	shared.mu.Unlock()
	if last && s.sessions != nil {
		s.sessions.Close()
	}
}

// sessions are what one part of a Queue may use of the sessions on its *sql.DB. Close them
// once.
type sessions struct {
	*session.Part
	close func()
}

// connect takes the connections before they are needed, where the *sql.DB has a limit. If it fails, the first
// statement fails in the same way and reports the error.
func (s *sessions) connect(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = s.Fill(ctx)
}

// openSessions joins the pool of db's sessions with each need. An error says that the
// *sql.DB allows too few connections. It connects nothing.
func openSessions(db *sql.DB, d sqlbatch.Dialect, maxAge time.Duration, needs ...session.Need) ([]*sessions, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	s := sharedOf(db)
	if s.sessions == nil {
		s.sessions = session.NewPool(db, d)
	}
	s.users += len(needs)
	parts, err := s.sessions.Join(maxAge, needs...)
	if err != nil {
		if s.users -= len(needs); s.users == 0 {
			delete(shared.of, db) // its pool has nothing to close
		}
		return nil, err
	}
	all := make([]*sessions, len(parts))
	for i, part := range parts {
		all[i] = &sessions{part, func() { part.Close(); leaveShared(db, 1) }}
	}
	return all, nil
}

// openOnce is for one call, which takes its connection as the application's own calls
// do. A database with one writer has one session for such calls, too.
func openOnce(db *sql.DB, d sqlbatch.Dialect) *sessions {
	if d.Traits().OneWriter {
		if all, err := openSessions(db, d, 0, session.Need{Kind: session.Note, Sessions: 1}); err == nil {
			return all[0]
		}
	}
	part := session.Once(db, d)
	return &sessions{part, part.Close}
}

// queueKey names a queue within this process. Producers signal it after a commit;
// consumers listen. Queues opened twice on one *sql.DB share it.
type queueKey struct {
	db            *sql.DB
	schema, queue string
}

// schemaOf is the schema that a Config means: the default one has two names, "" and
// its own.
func schemaOf(d sqlbatch.Dialect, schema string) string {
	if schema == "" {
		return d.Traits().Schema
	}
	return schema
}

// listener is a consumer that listens for its queue.
type listener struct {
	woken chan struct{} // of capacity 1: has a value after each signal since the last receive
	gate  *claim.Gate   // shared with the others of its queue
	key   queueKey
	db    *sharedDB

	// Of shared.mu.
	places  sqlbatch.Floors // the lowest given back since they were heard of
	hurried bool            // by wake
}

// heard returns the lowest places that were given back since the last call, and whether
// somebody says that there may be something anywhere.
func (l *listener) heard() (places sqlbatch.Floors, hurried bool) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	places, hurried = l.places, l.hurried
	l.places, l.hurried = claim.NoPlace, false
	return places, hurried
}

// beginTrial begins the trial of a suspect. It reports false if one of the queue is under way in this process. The trial may
// outlast the listener.
func (l *listener) beginTrial() bool {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if l.db.trials[l.key] {
		return false
	}
	l.db.trials[l.key] = true
	return true
}

// endTrial ends the trial that beginTrial began.
func (l *listener) endTrial() {
	shared.mu.Lock()
	delete(l.db.trials, l.key)
	shared.mu.Unlock()
}

// listen returns a listener, and a function that ends it.
func (k queueKey) listen() (*listener, func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	s := sharedOf(k.db)
	l := &listener{woken: make(chan struct{}, 1), key: k, db: s, places: claim.NoPlace}
	s.users++
	s.listeners[k] = append(s.listeners[k], l)
	if s.gates[k] == nil {
		s.gates[k] = claim.NewGate()
	}
	l.gate = s.gates[k]
	return l, func() {
		shared.mu.Lock()
		s.listeners[k] = slices.DeleteFunc(s.listeners[k], func(o *listener) bool { return o == l })
		if len(s.listeners[k]) == 0 {
			delete(s.listeners, k)
			delete(s.gates, k)
		}
		shared.mu.Unlock()
		leaveShared(k.db, 1)
	}
}

// each calls f for each listener.
func (k queueKey) each(f func(*listener)) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if s := shared.of[k.db]; s != nil {
		for _, l := range s.listeners[k] {
			f(l)
		}
	}
}

// signal ends the pauses of idle consumers: there is something that is due just now.
func (k queueKey) signal() { k.each(func(l *listener) { base.Signal(l.woken) }) }

// wake is signal for what may have been due for long.
func (k queueKey) wake() {
	k.each(func(l *listener) { l.hurried = true; base.Signal(l.woken) })
}

// lower says that something lies at these places again. It ends no pause.
func (k queueKey) lower(places sqlbatch.Floors) {
	k.each(func(l *listener) { l.places = claim.Lowest(l.places, places) })
}

// vacuums is taken by a queue on the same *sql.DB whose table is being vacuumed. The
// caller has sessions on it.
func (k queueKey) vacuums() chan struct{} {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.of[k.db].vacuums
}
