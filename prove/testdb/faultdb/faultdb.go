// Package faultdb wraps a database/sql driver so that a test can fail, cut or hold chosen operations, before the
// database receives them or after it has applied them, and can count what is left open. The caller chooses by
// operation: by its number, so that a test can walk every one, or by its text.
package faultdb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind is the kind of an operation.
type Kind uint8

// The kinds.
const (
	Connect Kind = iota
	Prepare
	Exec
	Query
	Begin
	Commit
	Rollback
)

func (k Kind) String() string {
	return [...]string{"connect", "prepare", "exec", "query", "begin", "commit", "rollback"}[k]
}

// Op is one operation on the database.
type Op struct {
	N    int // 0, 1, 2 … since New
	Conn int // number of the connection, from 1
	Kind Kind
	Text string              // of a statement
	Args []driver.NamedValue // of Exec and Query; only during the choice
}

func (o Op) String() string { return fmt.Sprintf("%d: %s on %d: %s", o.N, o.Kind, o.Conn, o.Text) }

// Fault is what to do to an operation. The zero value lets it pass.
type Fault struct {
	verb    verb
	err     error
	gate    <-chan struct{}
	applied bool
	rows    int
	first   string
}

type verb uint8

const (
	pass verb = iota
	fail
	cut
	hold
	stick
	lead
	fall
)

// Fail returns err. The connection stays open.
func Fail(err error) Fault { return Fault{verb: fail, err: err} }

// Cut returns err and breaks the connection: all later operations on it fail with driver.ErrBadConn.
func Cut(err error) Fault { return Fault{verb: cut, err: err} }

// Hold waits until gate is closed, then lets the operation pass. If the context ends first, it returns the context's
// error and breaks the connection, as a driver does that gives up a network read.
func Hold(gate <-chan struct{}) Fault { return Fault{verb: hold, gate: gate} }

// Hang waits until the context ends.
func Hang() Fault { return Hold(nil) }

// Stick is Hold for a driver that ignores its context while it waits for the network.
func Stick(gate <-chan struct{}) Fault { return Fault{verb: stick, gate: gate} }

// Panic panics with err, as a driver with a bug does.
func Panic(err error) Fault { return Fault{verb: fall, err: err} }

// After runs another statement on the operation's connection before it, to change the settings of its session. An error
// of that statement becomes the operation's.
func After(text string) Fault { return Fault{verb: lead, first: text} }

// Applied makes the database apply the operation first, which the caller cannot know. The caller gets the error and
// nothing of a result.
func (f Fault) Applied() Fault { f.applied = true; return f }

// AfterRows is Applied, with the first n rows of the result before the error.
func (f Fault) AfterRows(n int) Fault { f.applied, f.rows = true, n; return f }

// Connector is a driver.Connector for sql.OpenDB.
type Connector struct {
	mu      sync.Mutex
	inner   driver.Connector   // for new connections
	former  []driver.Connector // to be closed with it
	choose  func(Op) Fault
	rewrite func(string) string
	ops     int
	made    int
	conns   map[*conn]struct{}
	most    int
	open    Open
}

// Open counts the open resources of a database.
type Open struct{ Conns, Stmts, Rows, Txs int }

// New wraps a connector.
func New(inner driver.Connector) *Connector {
	return &Connector{inner: inner, conns: map[*conn]struct{}{}}
}

// Inject makes choose decide about each operation from now on, one at a time; nil lets all pass. choose must not block,
// nor use the database.
func (c *Connector) Inject(choose func(Op) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.choose = choose
}

// Rewrite makes f change the text of every statement before the database receives it. Choices see the original text.
// Call it before the first connection.
func (c *Connector) Rewrite(f func(string) string) { c.rewrite = f }

// Open returns what is open now: connections, and the statements, results and transactions that were not closed or
// ended, including those of connections that were closed meanwhile.
func (c *Connector) Open() Open {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.open
	o.Conns = len(c.conns)
	return o
}

// note adds to the open resources.
func (c *Connector) note(o Open) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open.Stmts += o.Stmts
	c.open.Rows += o.Rows
	c.open.Txs += o.Txs
}

// textFor returns the text that the database receives for a text.
func (c *Connector) textFor(text string) string {
	if c.rewrite == nil {
		return text
	}
	return c.rewrite(text)
}

// Ops returns how many operations there have been.
func (c *Connector) Ops() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops
}

// Conns returns how many connections are open, and the most so far.
func (c *Connector) Conns() (now, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns), c.most
}

// CutAll breaks every open connection: the next operation on each fails with
// err, once, and then with driver.ErrBadConn.
func (c *Connector) CutAll(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cn := range c.conns {
		cn.doom(err)
	}
}

// Connect opens a connection.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	f := c.next(0, Connect, "", nil)
	if err := f.before(ctx, nil); err != nil {
		return nil, err
	}
	inner, err := c.target().Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.after(ctx, nil); err != nil {
		inner.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	cn := &conn{inner: inner, owner: c, number: c.made, stmts: map[*stmt]struct{}{}}
	c.conns[cn] = struct{}{}
	c.most = max(c.most, len(c.conns))
	return cn, nil
}

// Driver returns the driver of the wrapped connector, from which chanq derives the dialect.
func (c *Connector) Driver() driver.Driver { return c.target().Driver() }

// Redirect makes every new connection one to another database, and breaks open connections, as CutAll does: a failover.
func (c *Connector) Redirect(to driver.Connector, err error) {
	c.mu.Lock()
	c.former = append(c.former, c.inner)
	c.inner = to
	c.mu.Unlock()
	c.CutAll(err)
}

func (c *Connector) target() driver.Connector {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner
}

// Close closes the wrapped connectors, if they can be closed.
func (c *Connector) Close() error {
	var errs []error
	for _, inner := range append(c.former, c.target()) {
		if closer, ok := inner.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

func (c *Connector) next(conn int, k Kind, text string, args []driver.NamedValue) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	op := Op{N: c.ops, Conn: conn, Kind: k, Text: text, Args: args}
	c.ops++
	if c.choose == nil {
		return Fault{}
	}
	return c.choose(op)
}

func (c *Connector) forget(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, cn)
}

// before applies the fault before the operation; if it returns an error, the operation must not run.
func (f Fault) before(ctx context.Context, cn *conn) error {
	if f.applied {
		return nil
	}
	return f.strike(ctx, cn)
}

// after applies the fault after the operation was applied.
func (f Fault) after(ctx context.Context, cn *conn) error {
	if !f.applied {
		return nil
	}
	return f.strike(ctx, cn)
}

func (f Fault) strike(ctx context.Context, cn *conn) error {
	switch f.verb {
	case fail:
		return f.err
	case cut:
		cn.cut()
		return f.err
	case stick:
		<-f.gate
		if ctx.Err() != nil {
			cn.cut()
			return ctx.Err()
		}
	case hold:
		select {
		case <-f.gate:
		case <-ctx.Done():
			cn.cut()
			return ctx.Err()
		}
	case fall:
		panic(f.err)
	case lead:
		return cn.lead(ctx, f.first)
	}
	return nil
}
