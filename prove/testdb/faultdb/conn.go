package faultdb

import (
	"context"
	"database/sql/driver"
	"sync"
)

// conn is a connection on whose operations the Connector's choice decides.
type conn struct {
	inner  driver.Conn
	owner  *Connector
	number int

	mu    sync.Mutex
	dead  bool
	last  error // the error of the first operation after a doom
	stmts map[*stmt]struct{}
}

// doom breaks the connection from outside.
func (c *conn) doom(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead, c.last = true, err
}

// cut breaks the connection, if there is one, from within an operation on it.
func (c *conn) cut() {
	if c != nil {
		c.doom(nil)
	}
}

// lead runs a statement without a result, without asking the choice.
func (c *conn) lead(ctx context.Context, text string) error {
	if c == nil {
		return nil // a Connect
	}
	_, err := c.inner.(driver.ExecerContext).ExecContext(ctx, text, nil) // every supported driver implements it
	return err
}

// broken returns the error of an operation on a broken connection. sent reports whether it would have been sent to the
// database: the first such operation returns how the connection broke.
func (c *conn) broken(sent bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead {
		return nil
	}
	if err := c.last; sent && err != nil {
		c.last = nil
		return err
	}
	return driver.ErrBadConn
}

// run runs an operation without a result under the choice of the Connector.
func (c *conn) run(ctx context.Context, k Kind, text string, args []driver.NamedValue, do func() error) error {
	if err := c.broken(true); err != nil {
		return err
	}
	f := c.owner.next(c.number, k, text, args)
	if err := f.before(ctx, c); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return f.after(ctx, c)
}

// query is run for operations that return rows. A result that a fault might affect is read immediately, so that the
// database has applied all of it.
func (c *conn) query(ctx context.Context, text string, args []driver.NamedValue, do func() (driver.Rows, error)) (driver.Rows, error) {
	if err := c.broken(true); err != nil {
		return nil, err
	}
	f := c.owner.next(c.number, Query, text, args)
	if err := f.before(ctx, c); err != nil {
		return nil, err
	}
	inner, err := do()
	if err != nil {
		return nil, err
	}
	if !f.applied {
		c.owner.note(Open{Rows: 1})
		return &rows{inner, c.owner, false}, nil
	}
	read, err := readAll(inner)
	if err != nil {
		return nil, err
	}
	if err := f.after(ctx, c); err != nil {
		if f.rows == 0 {
			return nil, err
		}
		read.breakAfter(f.rows, err)
	}
	return read, nil
}

func (c *conn) Prepare(text string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), text)
}

func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	var inner driver.Stmt
	err := c.run(ctx, Prepare, text, nil, func() (err error) {
		if p, ok := c.inner.(driver.ConnPrepareContext); ok {
			inner, err = p.PrepareContext(ctx, c.owner.textFor(text))
		} else {
			inner, err = c.inner.Prepare(c.owner.textFor(text))
		}
		if err != nil {
			inner = nil // a driver might return a typed nil
		}
		return err
	})
	if err != nil {
		if inner != nil {
			inner.Close()
		}
		return nil, err
	}
	s := &stmt{inner: inner, conn: c, text: text}
	c.owner.note(Open{Stmts: 1})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stmts[s] = struct{}{}
	return s, nil
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (res driver.Result, err error) {
	x, ok := c.inner.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.run(ctx, Exec, text, args, func() (err error) {
		res, err = x.ExecContext(ctx, c.owner.textFor(text), args)
		return err
	})
	return res, err
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	x, ok := c.inner.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return c.query(ctx, text, args, func() (driver.Rows, error) { return x.QueryContext(ctx, c.owner.textFor(text), args) })
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	var inner driver.Tx
	err := c.run(ctx, Begin, "", nil, func() (err error) {
		inner, err = c.inner.(driver.ConnBeginTx).BeginTx(ctx, opts) // every supported driver implements it
		return err
	})
	if err != nil {
		return nil, err
	}
	c.owner.note(Open{Txs: 1})
	return &tx{inner: inner, conn: c, ctx: ctx}, nil
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.inner.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *conn) Ping(ctx context.Context) error {
	if err := c.broken(false); err != nil {
		return err
	}
	if p, ok := c.inner.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if err := c.broken(false); err != nil {
		return err
	}
	if r, ok := c.inner.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	if c.broken(false) != nil {
		return false
	}
	v, ok := c.inner.(driver.Validator)
	return !ok || v.IsValid()
}

// Close closes the statements first. After a broken connection database/sql closes those of a *sql.Conn too late for
// drivers that keep a connection, with its transaction, until its statements are closed.
func (c *conn) Close() error {
	c.owner.forget(c)
	c.mu.Lock()
	stmts := c.stmts
	c.stmts = nil
	c.mu.Unlock()
	for s := range stmts {
		_ = s.inner.Close()
	}
	return c.inner.Close()
}

type stmt struct {
	inner driver.Stmt
	conn  *conn
	text  string
}

func (s *stmt) NumInput() int { return s.inner.NumInput() }

func (s *stmt) Close() error {
	s.conn.owner.note(Open{Stmts: -1})
	s.conn.mu.Lock()
	_, open := s.conn.stmts[s]
	delete(s.conn.stmts, s)
	s.conn.mu.Unlock()
	if !open {
		return nil // ends with its connection
	}
	return s.inner.Close()
}

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	err = s.conn.run(ctx, Exec, s.text, args, func() (err error) {
		res, err = s.inner.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return res, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, s.text, args, func() (driver.Rows, error) {
		return s.inner.(driver.StmtQueryContext).QueryContext(ctx, args)
	})
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.inner.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

// tx bounds waits in its end by the context with which it began, since Commit and Rollback have none.
type tx struct {
	inner driver.Tx
	conn  *conn
	ctx   context.Context
}

func (t *tx) Commit() error   { return t.end(Commit, t.inner.Commit) }
func (t *tx) Rollback() error { return t.end(Rollback, t.inner.Rollback) }

// end is called once: database/sql does not end a transaction again.
func (t *tx) end(k Kind, do func() error) error {
	t.conn.owner.note(Open{Txs: -1})
	return t.conn.run(t.ctx, k, "", nil, do)
}
