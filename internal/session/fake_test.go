package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is a fake whose statements do what a test configures.
type database struct {
	testing.TB
	db      *sql.DB
	dialect sqlbatch.Dialect

	mu        sync.Mutex
	made      int     // connections
	alive     int     // of them
	ran       []int   // which connection ran each statement
	forgotten int     // connections up to this one do not answer
	undone    []error // per rollback, the error of its transaction's context
	connect   func(context.Context) error
	trip      time.Duration                          // how long a ping takes
	left      func()                                 // called when a connection is closed, unless it is nil
	texts     map[string]func(context.Context) error // what a statement does
	ends      []func()                               // of statements that hang
	parts     []*Part
}

// world makes a database, in a bubble with its own time.
func world(t *testing.T, limit int, test func(*database)) {
	worldOf(t, postgres.Dialect, limit, test)
}

func worldOf(t *testing.T, d sqlbatch.Dialect, limit int, test func(*database)) {
	synctest.Test(t, func(t *testing.T) {
		w := &database{TB: t, texts: map[string]func(context.Context) error{}}
		w.db = sql.OpenDB(w)
		w.db.SetMaxOpenConns(limit)
		w.dialect = d
		defer func() {
			for _, end := range w.ends { // needed after a test that failed
				end()
			}
			synctest.Wait()
			for _, p := range w.parts {
				if t.Failed() && !p.ended {
					p.Close()
				}
			}
			inUse := w.db.Stats().InUse
			require.NoError(t, w.db.Close())
			require.Zero(t, inUse)
			require.Zero(t, w.opened())
		}()
		test(w)
	})
}

func (w *database) Driver() driver.Driver { return nil }

func (w *database) Connect(ctx context.Context) (driver.Conn, error) {
	w.mu.Lock()
	connect := w.connect
	w.mu.Unlock()
	if connect != nil {
		if err := connect(ctx); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	w.alive++
	return &connection{w: w, number: w.made}, nil
}

type connection struct {
	w      *database
	number int
	tx     context.Context // of its latest transaction
}

func (c *connection) Prepare(text string) (driver.Stmt, error) { return &prepared{c, text}, nil }
func (c *connection) Begin() (driver.Tx, error)                { return c, nil }

func (c *connection) Commit() error {
	c.w.mu.Lock()
	do := c.w.texts["commit"]
	c.w.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(c.tx)
}

func (c *connection) Rollback() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.undone = append(c.w.undone, c.tx.Err())
	return nil
}

func (c *connection) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	c.tx = ctx
	return c, nil
}

func (c *connection) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.alive--
	if c.w.left != nil {
		c.w.left()
	}
	return nil
}

var errNoAnswer = errors.New("no answer")

func (c *connection) Ping(context.Context) error {
	c.w.mu.Lock()
	trip, forgotten := c.w.trip, c.number <= c.w.forgotten
	c.w.mu.Unlock()
	time.Sleep(trip)
	if forgotten {
		return errNoAnswer
	}
	return nil
}

func (c *connection) ExecContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	c.w.mu.Lock()
	c.w.ran = append(c.w.ran, c.number)
	do := c.w.texts[text]
	c.w.mu.Unlock()
	if do != nil {
		return driver.ResultNoRows, do(ctx)
	}
	return driver.ResultNoRows, nil
}

// prepared is a statement of a dialect with Traits.Prepare.
type prepared struct {
	c    *connection
	text string
}

func (s *prepared) Close() error                               { return nil }
func (s *prepared) NumInput() int                              { return -1 }
func (s *prepared) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.ErrUnsupported }
func (s *prepared) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }

func (s *prepared) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.text, args)
}

// QueryContext is called by Items. It returns no rows.
func (c *connection) QueryContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	_, err := c.ExecContext(ctx, text, nil)
	return nil, errors.Join(err, errNoRows)
}

var errNoRows = errors.New("no rows")

// join adds a part, which the test must close.
func (w *database) join(k Kind, sessions int) *Part {
	w.Helper()
	parts, err := w.open(Need{Kind: k, Sessions: sessions})
	require.NoError(w, err)
	return parts[0]
}

func (w *database) open(needs ...Need) ([]*Part, error) {
	parts, err := Open(w.db, w.dialect, time.Hour, needs...)
	w.parts = append(w.parts, parts...)
	return parts, err
}

// hang makes a statement hang until end is called, whatever the statement's context
// does.
func (w *database) hang(text string) (end func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts[text] = func(context.Context) error { <-gate; return nil }
	end = sync.OnceFunc(func() { close(gate) })
	w.ends = append(w.ends, end)
	return end
}

// start runs a statement and returns a channel that receives its error.
func start(p *Part, text string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- run(p, text) }()
	synctest.Wait()
	return done
}

func run(p *Part, text string) error {
	return p.Run(context.Background(), sqlbatch.Statement{Text: text}, nil)
}

// opened returns how many connections are open after all goroutines have settled.
func (w *database) opened() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alive
}

// lastRan returns the connection that ran the latest statement.
func (w *database) lastRan() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran[len(w.ran)-1]
}

// application takes a connection of the *sql.DB, like a handler.
func (w *database) application() *sql.Conn {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := w.db.Conn(ctx)
	require.NoError(w, err)
	return conn
}

// pass lets time pass, and waits for everything that happens by then.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}
