package peer

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
)

// Counter counts what a driver is asked for: executions of statements, begins
// and ends of transactions. Preparing, once a text, is not counted.
type Counter struct{ n atomic.Int64 }

// Statements is the count so far.
func (c *Counter) Statements() int64 { return c.n.Load() }

// Connector counts what is asked of inner's connections.
func (c *Counter) Connector(inner driver.Connector) driver.Connector {
	return &countingConnector{inner, c}
}

// DSN is Connector for a driver that has only a name for its databases.
func (c *Counter) DSN(d driver.Driver, dsn string) driver.Connector {
	return c.Connector(dsnConnector{d, dsn})
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

type countingConnector struct {
	driver.Connector // its Driver tells libraries the dialect
	counter          *Counter
}

func (c *countingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := inner.(modernConn)
	if !ok {
		return nil, errors.Join(errors.New("counting statements: the driver lacks the interfaces of Go 1.8"), inner.Close())
	}
	return &countingConn{conn, c.counter}, nil
}

// Close is called by (*sql.DB).Close.
func (c *countingConnector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// modernConn is what the SQLite driver's connections implement. Those that it
// may implement besides are passed on by the methods below.
type modernConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
}

type countingConn struct {
	modernConn
	counter *Counter
}

func (c *countingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.counter.n.Add(1)
	return c.modernConn.ExecContext(ctx, query, args)
}

func (c *countingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.counter.n.Add(1)
	return c.modernConn.QueryContext(ctx, query, args)
}

func (c *countingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	inner, err := c.modernConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	stmt, ok := inner.(modernStmt)
	if !ok {
		return nil, errors.Join(errors.New("counting statements: the driver's prepared statements lack the interfaces of Go 1.8"), inner.Close())
	}
	return &countingStmt{stmt, c.counter}, nil
}

func (c *countingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.counter.n.Add(1)
	tx, err := c.modernConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &countingTx{tx, c.counter}, nil
}

func (c *countingConn) ResetSession(ctx context.Context) error {
	if inner, ok := c.modernConn.(driver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

func (c *countingConn) IsValid() bool {
	inner, ok := c.modernConn.(driver.Validator)
	return !ok || inner.IsValid()
}

func (c *countingConn) CheckNamedValue(v *driver.NamedValue) error {
	if inner, ok := c.modernConn.(driver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type modernStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type countingStmt struct {
	modernStmt
	counter *Counter
}

func (s *countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.counter.n.Add(1)
	return s.modernStmt.ExecContext(ctx, args)
}

func (s *countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.counter.n.Add(1)
	return s.modernStmt.QueryContext(ctx, args)
}

type countingTx struct {
	driver.Tx
	counter *Counter
}

func (t *countingTx) Commit() error {
	t.counter.n.Add(1)
	return t.Tx.Commit()
}

func (t *countingTx) Rollback() error {
	t.counter.n.Add(1)
	return t.Tx.Rollback()
}
