package chanqtest

import (
	"context"
	"database/sql/driver"
	"io"
)

// connector opens connections that report their statements to a database.
type connector struct {
	inner driver.Connector
	to    *database
}

func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	process, dead := c.to.alive()
	if dead != nil {
		return nil, dead
	}
	inner, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner, c.to, process}, nil
}

// conn is a connection of a process that can die.
type conn struct {
	driver.Conn
	to      *database
	process int
}

// run runs a statement, unless the process is dead, and lets it die afterwards if it is to.
func run[R any](c *conn, text string, do func() (R, error)) (R, error) {
	var none R
	process, dead := c.to.alive()
	switch {
	case dead != nil:
		return none, dead
	case process != c.process:
		return none, driver.ErrBadConn
	}
	r, err := do()
	if err == nil {
		err = c.to.ran(text)
	}
	return r, err
}

func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	if _, dead := c.to.alive(); dead != nil {
		return nil, dead
	}
	var inner driver.Stmt
	var err error
	if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
		inner, err = p.PrepareContext(ctx, text)
	} else {
		inner, err = c.Prepare(text)
	}
	if err != nil {
		return nil, err
	}
	return &stmt{inner, c, text}, nil
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	x, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return run(c, text, func() (driver.Result, error) { return x.ExecContext(ctx, text, args) })
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	x, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return c.query(text, func() (driver.Rows, error) { return x.QueryContext(ctx, text, args) })
}

// query is run for rows. A database might apply a statement only when its rows are read, so a process that dies reads them first.
func (c *conn) query(text string, do func() (driver.Rows, error)) (driver.Rows, error) {
	var rows driver.Rows
	_, err := run(c, text, func() (_ any, err error) {
		rows, err = do()
		return nil, err
	})
	if err != nil && rows != nil {
		for into := make([]driver.Value, len(rows.Columns())); rows.Next(into) == nil; {
		}
		_ = rows.Close()
	}
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	b, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, driver.ErrSkip
	}
	var inner driver.Tx
	_, err := run(c, "BEGIN", func() (_ any, err error) {
		inner, err = b.BeginTx(ctx, o)
		return nil, err
	})
	if err != nil && inner != nil {
		_ = inner.Rollback()
	}
	if err != nil {
		return nil, err
	}
	return &tx{inner, c}, nil
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok && c.IsValid() {
		return p.Ping(ctx)
	}
	_, dead := c.to.alive()
	return dead
}

func (c *conn) ResetSession(ctx context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	process, dead := c.to.alive()
	v, ok := c.Conn.(driver.Validator)
	return dead == nil && process == c.process && (!ok || v.IsValid())
}

type stmt struct {
	driver.Stmt
	conn *conn
	text string
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	x, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return run(s.conn, s.text, func() (driver.Result, error) { return x.ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	x, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return s.conn.query(s.text, func() (driver.Rows, error) { return x.QueryContext(ctx, args) })
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

type tx struct {
	driver.Tx
	conn *conn
}

// Commit of a process that has died does nothing: its connection is closed, which rolls back.
func (t *tx) Commit() error {
	_, err := run(t.conn, "COMMIT", func() (any, error) { return nil, t.Tx.Commit() })
	return err
}
