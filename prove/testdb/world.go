package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
	"github.com/chanq/chanq/sqlbatch"
)

// World is one test's database, reached through faults.
type World struct {
	*testing.T
	Engine Engine

	watch *time.Timer

	mu         sync.Mutex
	statements map[string]sqlbatch.Queue

	// The following fields are set by Open.
	Address string
	Faults  *faultdb.Connector
	DB      *sql.DB
	tables  *sql.DB
}

// New returns the world of a test that must end within Bound. The database is created by Open, which its methods call.
func New(t *testing.T, e Engine) *World {
	if !e.Bubble && time.Now().Year() == 2000 { // when a bubble's clock begins
		t.Fatalf("%s is reached by the kernel, whose answers a bubble's clock does not wait for", e.Name)
	}
	return &World{T: t, Engine: e, watch: watch(t, Bound)}
}

// Within replaces Bound for this test, counted from now.
func (w *World) Within(d time.Duration) { w.watch.Reset(Slowness * d) }

// OnEach runs a test on each of some engines.
func OnEach(t *testing.T, engines []Engine, test func(*World)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			Run(t, e, test)
		})
	}
}

// Run runs a test on an engine, in a bubble if the engine has Bubble: there the test cannot have subtests, and fails if a goroutine is left
// when it has ended.
func Run(t *testing.T, e Engine, test func(*World)) {
	t.Helper()
	e.Require(t)
	InBubble(t, e.Bubble, func(t *testing.T) { test(New(t, e)) })
}

// InBubble runs a test in a bubble of testing/synctest, or outside of one.
func InBubble(t *testing.T, bubble bool, test func(*testing.T)) {
	if bubble {
		synctest.Test(t, test)
	} else {
		test(t)
	}
}

// Open creates the database, once.
func (w *World) Open() *sql.DB {
	if w.DB == nil {
		w.Address = w.Engine.Create(w.T)
		w.Faults, w.DB = w.Connect()
	}
	return w.DB
}

// Tables returns the database where tables can be created and dropped: w.DB, unless the engine has a separate connection for that.
func (w *World) Tables() *sql.DB {
	w.Open()
	if w.tables == nil {
		w.tables = w.DB
		if w.Engine.Tables != nil {
			_, w.tables = w.ConnectTables()
		}
	}
	return w.tables
}

// Connect opens the database again, separately from w.DB.
func (w *World) Connect() (*faultdb.Connector, *sql.DB) { return w.connect(w.Engine.Connect) }

// ConnectTables is Connect to where tables can be created and dropped.
func (w *World) ConnectTables() (*faultdb.Connector, *sql.DB) {
	return w.connect(w.Engine.ConnectTables)
}

func (w *World) connect(to func(address string) (driver.Connector, error)) (*faultdb.Connector, *sql.DB) {
	c, err := to(w.Address)
	require.NoError(w, err)
	faults := faultdb.New(c)
	db := sql.OpenDB(faults)
	w.Cleanup(func() { w.close(faults, db) })
	return faults, db
}

// close closes a database at the end of its test, which fails if anything is left open: a connection in use or unknown to the pool, a
// statement, a result, a transaction.
func (w *World) close(faults *faultdb.Connector, db *sql.DB) {
	faults.Inject(nil)
	left := func() faultdb.Open {
		open := faults.Open()
		open.Conns -= db.Stats().Idle
		return open
	}
	// If a transaction's context has ended, database/sql ends the transaction in a separate goroutine.
	for end := time.Now().Add(Patience); !w.Failed() && left() != (faultdb.Open{}) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	open := left()
	require.NoError(w, db.Close())
	if !w.Failed() {
		require.Zero(w, open, "the test has left something open in addition to idle connections")
		require.Zero(w, faults.Open(), "something is open after Close")
	}
}

// Through opens the database again, through a proxy to its server.
func (w *World) Through(proxy net.Addr) *sql.DB {
	address, err := w.Engine.Through(w.Address, proxy)
	require.NoError(w, err)
	_, db := w.connect(func(string) (driver.Connector, error) { return w.Engine.Connect(address) })
	return db
}

// BehindProxy opens the database again, through a network that the test can break.
func (w *World) BehindProxy() (*netproxy.Proxy, *sql.DB) {
	network, upstream, err := w.Engine.Server(w.Address)
	require.NoError(w, err)
	proxy := netproxy.Start(w.T, network, upstream)
	db := w.Through(proxy.Addr())
	w.Cleanup(func() {
		proxy.Set(netproxy.Conditions{})
		proxy.Close()
	})
	return proxy, db
}

// Heal ends the faults.
func (w *World) Heal() {
	if w.Faults != nil {
		w.Faults.Inject(nil)
	}
}

// Queue migrates and opens a queue of text messages.
func (w *World) Queue(name string, cfg chanq.Config) *chanq.Queue[string] {
	w.Helper()
	return QueueOf[string](w, name, cfg)
}

// QueueOf migrates and opens a queue. A test of an ordered queue is skipped if the engine has none.
func QueueOf[M any](w interface {
	T
	Open() *sql.DB
	Migrate(name string, cfg chanq.Config) error
}, name string, cfg chanq.Config) *chanq.Queue[M] {
	w.Helper()
	require.NoError(w, w.Migrate(name, cfg))
	return OpenOn[M](w, w.Open(), name, cfg)
}

// Migrate creates a queue. A test of an ordered queue is skipped if the engine has none.
func (w *World) Migrate(name string, cfg chanq.Config) error {
	w.Helper()
	if w.Engine.PlainOnly && cfg.Kind == chanq.KindOrdered {
		w.Skipf("there are no ordered queues on %s", w.Engine.Name)
	}
	cfg.StatementTimeout = 0 // a test's timeout might be too short for a loaded machine
	return chanq.Migrate(Soon(w), w.Tables(), name, cfg)
}

// OpenOn opens an existing queue.
func OpenOn[M any](t T, db *sql.DB, name string, cfg chanq.Config) *chanq.Queue[M] {
	t.Helper()
	q, err := chanq.Open[M](Soon(t), db, name, cfg)
	// A short StatementTimeout can end before a loaded machine has answered.
	for end := time.Now().Add(Patience); cfg.StatementTimeout > 0 && errors.Is(err, chanq.ErrUnavailable) && time.Now().Before(end); {
		q, err = chanq.Open[M](Soon(t), db, name, cfg)
	}
	require.NoError(t, err)
	_, _ = TryAdmin(q) // before the test breaks the database; a user without permission for that does not need it
	return q
}

// Define executes a test's own statement that creates, changes or drops a table.
func (w *World) Define(text string) {
	w.Helper()
	_, err := w.Tables().ExecContext(w.Soon(), text)
	require.NoError(w, err, text)
}

// Exec executes a test's own statement.
func (w *World) Exec(text string, args ...any) {
	w.Helper()
	_, err := w.DB.ExecContext(w.Soon(), text, args...)
	require.NoError(w, err, text)
}

// Statements builds the statements of a queue, to recognize them in a test.
func (w *World) Statements(name string) sqlbatch.Queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.statements[name] == nil {
		if w.statements == nil {
			w.statements = map[string]sqlbatch.Queue{}
		}
		w.statements[name] = w.Engine.Dialect.Queue(sqlbatch.Names{Queue: name})
	}
	return w.statements[name]
}

// Hold leases exactly n messages of a plain queue for d, as soon as they exist, only by statements, as a process that has died since.
func (w *World) Hold(queue string, n int, d time.Duration) {
	w.Helper()
	held, most := 0, w.Engine.Dialect.Traits().ClaimRows
	consumer := chanq.NewID()
	w.Eventually("enough messages are ready", func() bool {
		for p := sqlbatch.PriorityLow; p <= sqlbatch.PriorityUrgent; p++ { // which delays nothing
			rescue := w.Statements(queue).Rescue(sqlbatch.RescueParams{Priority: int8(p), MaxCrashes: 1})
			_, err := Rows(w.Soon(), w.Open(), rescue)
			require.NoError(w, err)
		}
		tx, err := w.Open().BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		claim := w.Statements(queue).InTx().Claim(sqlbatch.ClaimParams{Rows: min(n-held, most), Lease: d, Consumer: consumer, Salt: 1, Inline: sqlbatch.MaxBody})
		require.NoError(w, session.RunTx(w.Soon(), tx, claim, func(*sql.Rows) error { held++; return nil }))
		require.NoError(w, tx.Commit())
		return held == n
	})
}

// Eventually waits until is returns true.
func (w *World) Eventually(what string, is func() bool) {
	w.Helper()
	Eventually(w, what, is)
}

// Soon returns a context for calls that must return.
func (w *World) Soon() context.Context { return Soon(w) }
