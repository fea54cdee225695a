// Package engine runs the T-SQL of the SQL Server emulator: tables, indexes, transactions and the statements that chanq
// sends, with the locks and the limits that SQL Server documents. It runs a statement only if it supports every part of
// its tree; otherwise it returns a SQL error that names the part.
package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// Options configure New. The zero value is a server on the machine's clock that admits any login.
type Options struct {
	Database string // default "test"
	// Logins has users and their passwords. Default: any. A login is dbo unless CREATE USER has created a user with its
	// name.
	Logins map[string]string
	// Clock is the server's clock. Default: RealClock.
	Clock Clock
	// ReadCommittedSnapshot and AllowSnapshotIsolation are the initial options of the database. Default: off, as on SQL
	// Server outside of Azure.
	ReadCommittedSnapshot, AllowSnapshotIsolation bool
	// Version is the product's version in SERVERPROPERTY. Default: that of the greeting.
	Version string
	// KeepGhosts keeps deleted rows, and entries of keys that have changed, in their places until CleanGhosts: scans walk
	// them, lock them for a moment, count them, and never return them. Default: they are removed when no snapshot needs
	// them.
	KeepGhosts bool
	// OnWait is called when a session begins to wait for a lock.
	OnWait func(lock.Info)
	// OnLock is called after each lock that a session gets, by that session. It may call Engine.Locks, and must not run a
	// statement.
	OnLock func(lock.Info)
	// OnRelease is called after each lock that the end of a transaction releases, by its session: other sessions can run
	// meanwhile. Default: all locks are released at one moment.
	OnRelease func()
}

// Engine is one server with one database. It implements tds.Handler. Safe for concurrent use; each session serves one
// connection.
type Engine struct {
	opts  Options
	clock Clock
	db    *database
	locks lock.Manager

	nextTx      atomic.Uint64
	nextSession atomic.Int64
	sessions    sync.Map // by number: *Session, until it is closed

	mu      sync.Mutex // guards the following fields
	batches map[batchKey]*batch
	stats   map[batchKey]*queryStats
	hooks   Hooks
	logins  map[string]string
	waitfor map[int]bool // sessions in WAITFOR
}

// batchKey is the key of SQL Server's plan cache: the text and the declaration of its parameters.
type batchKey struct{ text, declaration string }

// New returns an empty server.
func New(opts Options) *Engine {
	if opts.Database == "" {
		opts.Database = "test"
	}
	if opts.Version == "" {
		opts.Version = "16.0.1000.0"
	}
	if opts.Clock == nil {
		opts.Clock = RealClock{}
	}
	e := &Engine{
		opts: opts, clock: opts.Clock,
		batches: map[batchKey]*batch{}, stats: map[batchKey]*queryStats{}, waitfor: map[int]bool{},
		logins: map[string]string{},
		db: &database{
			name:    opts.Database,
			schemas: map[string]*schema{}, objects: map[string]*object{}, users: map[string]*user{},
			nextID: 100,
		},
	}
	for i, name := range []string{"dbo", "guest", "INFORMATION_SCHEMA", "sys"} {
		e.db.schemas[strings.ToLower(name)] = &schema{i + 1, name}
	}
	for u, p := range opts.Logins {
		e.logins[strings.ToLower(u)] = p
	}
	e.db.level.Store(160)
	e.db.rcsi.Store(opts.ReadCommittedSnapshot)
	e.db.allowSnapshot.Store(opts.AllowSnapshotIsolation)
	e.db.versions.keep = opts.KeepGhosts
	e.nextSession.Store(50)
	e.locks = lock.New(lock.Options{
		After:  func(d time.Duration) (<-chan time.Time, func()) { return opts.Clock.After(d) },
		OnWait: e.waited, OnLock: opts.OnLock, OnRelease: opts.OnRelease,
	})
	return e
}

// Login admits a connection. Errors: 4060 for another database, otherwise 18456 for a wrong user or password.
func (e *Engine) Login(_ context.Context, l tds.Login) (tds.Session, error) {
	e.mu.Lock()
	password, known := e.logins[strings.ToLower(l.User)]
	strict := e.opts.Logins != nil
	e.mu.Unlock()
	if (strict || known) && (!known || password != l.Password) {
		return nil, errLogin(l.User)
	}
	if l.Database != "" && !strings.EqualFold(l.Database, e.db.name) && !strings.EqualFold(l.Database, "master") {
		return nil, errors.Join(
			severity(11, 4060, "Cannot open database \"%s\" requested by the login. The login failed.", l.Database),
			errLogin(l.User))
	}
	return e.NewSession(l), nil
}

// NewSession returns a session without a wire, for tests of statements.
func (e *Engine) NewSession(l tds.Login) *Session {
	s := &Session{e: e, id: int(e.nextSession.Add(1)), login: l, user: "dbo"}
	s.database = s.firstDatabase()
	e.db.mu.RLock()
	if u := e.db.users[strings.ToLower(l.User)]; u != nil {
		s.user = u.name
	}
	e.db.mu.RUnlock()
	s.set = s.defaults()
	e.sessions.Store(s.id, s)
	return s
}

// batch returns the parsed text, which is parsed only once.
func (e *Engine) batch(text, declaration string) (*batch, error) {
	key := batchKey{text, declaration}
	e.mu.Lock()
	b := e.batches[key]
	e.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := texts.batch(key)
	if err != nil {
		return nil, err
	}
	b = b.forEngine(e.queryStats(key))
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.batches[key]; other != nil {
		return other, nil
	}
	e.batches[key] = b
	return b, nil
}
