package measure

import (
	"context"
	"database/sql/driver"
	"io"
	"sync/atomic"
)

// Counter counts the operations of a driver: each execution of a statement, and each begin and end
// of a transaction. Preparing is not counted, because it happens once for each text. It costs one
// atomic addition per statement and nothing per row, so it stays on in timed runs.
type Counter struct {
	statements atomic.Int64
	heard      atomic.Pointer[func(text string)]
}

// Statements returns the count so far; 0 for a nil counter.
func (c *Counter) Statements() int64 {
	if c == nil {
		return 0
	}
	return c.statements.Load()
}

// Add counts one statement, for a driver that reports its statements itself.
func (c *Counter) Add(text string) {
	c.statements.Add(1)
	if heard := c.heard.Load(); heard != nil {
		(*heard)(text)
	}
}

// Heard makes Add call f with the text of each further statement, in the goroutine that runs it.
func (c *Counter) Heard(f func(text string)) { c.heard.Store(&f) }

// Connector wraps the connections of inner with the counter. The drivers must
// have the interfaces of Go 1.8.
func (c *Counter) Connector(inner driver.Connector) driver.Connector {
	return &countingConnector{inner, c}
}

// DSN is Connector for a driver that opens databases only by name.
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
	driver.Connector // libraries derive the dialect from its Driver
	counter          *Counter
}

func (c *countingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countingConn{inner, c.counter}, nil
}

// Close is called by (*sql.DB).Close.
func (c *countingConnector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// countingConn forwards every optional interface. If the driver does not implement one, it returns
// what database/sql interprets as "not implemented".
type countingConn struct {
	driver.Conn
	counter *Counter
}

func (c *countingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	inner, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	c.counter.statements.Add(1)
	return inner.ExecContext(ctx, query, args)
}

func (c *countingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	inner, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	c.counter.statements.Add(1)
	return inner.QueryContext(ctx, query, args)
}

func (c *countingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &countingStmt{stmt, c}, nil
}

func (c *countingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.counter.statements.Add(1)
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &countingTx{tx, c.counter}, nil
}

func (c *countingConn) Ping(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.Pinger); ok {
		return inner.Ping(ctx)
	}
	return nil
}

func (c *countingConn) ResetSession(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

func (c *countingConn) IsValid() bool {
	inner, ok := c.Conn.(driver.Validator)
	return !ok || inner.IsValid()
}

func (c *countingConn) CheckNamedValue(v *driver.NamedValue) error {
	if inner, ok := c.Conn.(driver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type countingStmt struct {
	driver.Stmt
	conn *countingConn
}

func (s *countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.conn.counter.statements.Add(1)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.conn.counter.statements.Add(1)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s *countingStmt) CheckNamedValue(v *driver.NamedValue) error {
	if inner, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

type countingTx struct {
	driver.Tx
	counter *Counter
}

func (t *countingTx) Commit() error {
	t.counter.statements.Add(1)
	return t.Tx.Commit()
}

func (t *countingTx) Rollback() error {
	t.counter.statements.Add(1)
	return t.Tx.Rollback()
}
