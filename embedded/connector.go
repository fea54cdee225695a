package embedded

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// connector opens connections whose writes pass one writer queue.
type connector struct {
	name     string
	driver   driver.Driver
	writers  *writerQueue
	notifier *notifier   // the driver's; nil in memory
	keep     driver.Conn // keeps a database in memory alive; nil for a file
}

func newConnector(name, path string) (*connector, error) {
	sqlite := &sqlite.Driver{}
	c := &connector{name: name, driver: sqlite, writers: newWriterQueue(path)}
	if path != inMemory {
		c.notifier = newNotifier(path, func() (driver.Conn, error) { return sqlite.Open(name) })
		c.driver = fileDriver{sqlite, c.notifier}
		return c, nil
	}
	keep, err := sqlite.Open(name)
	if err != nil {
		return nil, err
	}
	c.keep = keep
	return c, nil
}

// Driver returns SQLite's driver, or a driver with a notifier. chanq derives the dialect from it.
func (c *connector) Driver() driver.Driver { return c.driver }

// Close is called by (*sql.DB).Close.
func (c *connector) Close() error {
	if c.notifier != nil {
		c.notifier.close()
	}
	c.writers.close()
	if c.keep == nil {
		return nil
	}
	return c.keep.Close()
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(sqliteConn)
	if !ok {
		inner.Close()
		return nil, errors.New("this version of modernc.org/sqlite lacks a method that chanq needs: use the version in the go.mod of chanq")
	}
	return &conn{sqliteConn: full, writers: c.writers}, nil
}

// open opens a connection. While several processes turn a new file into a database in WAL mode, SQLite refuses some of
// them immediately, despite busy_timeout. open retries in this case.
func (c *connector) open(ctx context.Context) (driver.Conn, error) {
	for until := time.Now().Add(busyTimeout); ; {
		inner, err := c.driver.Open(c.name)
		if !isBusy(err) || time.Now().After(until) {
			return inner, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// sqliteConn has the methods of modernc.org/sqlite's connections.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn holds the writer queue during each writing statement and each transaction.
type conn struct {
	sqliteConn
	writers *writerQueue
	inTx    bool // a transaction of this connection holds the writer queue
}

// The kinds of statements that matter to the writer queue, recognized by their first word. A reader that is classified as
// a writer waits in the queue, and other writers wait until its rows are closed. A writer that is classified as a reader
// polls as SQLite does.
type kind uint8

const (
	reads kind = iota
	writes
	begins
	commits
	rollsBack
	scripts // several statements, which may begin and end transactions
)

func kindOf(query string) kind {
	query = skipComments(query)
	if skipComments(afterFirst(query)) != "" {
		return scripts // or a CREATE TRIGGER, which is harmless
	}
	word := firstWord(query)
	switch strings.ToUpper(word) {
	case "SELECT", "VALUES", "EXPLAIN", "SAVEPOINT", "RELEASE":
		return reads
	case "PRAGMA":
		if !writingPragma.MatchString(query) {
			return reads
		}
	case "WITH":
		if !writingWord.MatchString(query) {
			return reads
		}
	case "BEGIN":
		return begins
	case "COMMIT", "END":
		return commits
	case "ROLLBACK":
		if toSavepoint.MatchString(query) {
			return reads // the transaction continues
		}
		return rollsBack
	}
	return writes
}

var (
	writingWord   = regexp.MustCompile(`(?i)\b(INSERT|UPDATE|DELETE|REPLACE)\b`)
	writingPragma = regexp.MustCompile(`(?i)\bincremental_vacuum\b`)
	toSavepoint   = regexp.MustCompile(`(?i)^ROLLBACK\s+(TRANSACTION\s+)?TO\b`)
)

func firstWord(query string) string {
	for i := range len(query) {
		if c := query[i] | 0x20; c < 'a' || c > 'z' {
			return query[:i]
		}
	}
	return query
}

// afterFirst returns the text after the first statement of a query. A semicolon in a literal, a quoted name or a comment
// ends no statement, so a reader with such a semicolon does not wait for the writer.
func afterFirst(query string) string {
	if !strings.Contains(query, ";") {
		return ""
	}
	for query != "" {
		end, skip := "", 1
		switch c := query[0]; {
		case c == ';':
			return query[1:]
		case c == '\'' || c == '"' || c == '`': // a doubled quote ends a text and begins the next
			end = string(c)
		case c == '[':
			end = "]"
		case strings.HasPrefix(query, "--"):
			end, skip = "\n", 2
		case strings.HasPrefix(query, "/*"):
			end, skip = "*/", 2
		}
		query = query[skip:]
		if end != "" {
			_, query, _ = strings.Cut(query, end)
		}
	}
	return ""
}

// skipComments returns query starting at its first word.
func skipComments(query string) string {
	for {
		query = strings.TrimLeft(query, " \t\r\n\f;(")
		end := ""
		switch {
		case strings.HasPrefix(query, "--"):
			end = "\n"
		case strings.HasPrefix(query, "/*"):
			end = "*/"
		default:
			return query
		}
		_, query, _ = strings.Cut(query[2:], end)
	}
}

// enter enters the writer queue for a statement; leave must be called after it.
func (c *conn) enter(ctx context.Context, k kind) (leave func(error), err error) {
	nothing := func(error) {}
	switch {
	case k == scripts:
		if !c.inTx {
			if err := c.writers.enter(ctx); err != nil {
				return nil, err
			}
		}
		return func(error) {
			if c.inTx = c.inTransaction(); !c.inTx {
				c.leave()
			}
		}, nil
	case k == begins && !c.inTx:
		if err := c.writers.enter(ctx); err != nil {
			return nil, err
		}
		return func(err error) {
			if c.inTx = err == nil; !c.inTx {
				c.writers.leave()
			}
		}, nil
	case (k == commits || k == rollsBack) && c.inTx:
		return func(err error) {
			// A commit that failed leaves the transaction open; a rollback fails only
			// if SQLite has already rolled back.
			if err == nil || k == rollsBack {
				c.inTx = false
				c.leave()
			}
		}, nil
	case k == writes && !c.inTx:
		if err := c.writers.enter(ctx); err != nil {
			return nil, err
		}
		return func(error) { c.leave() }, nil
	}
	return nothing, nil
}

// patiently runs a statement again while another program holds a lock, until busyTimeout is over or ctx ends. Within a
// transaction, which has the lock, only a commit waits. A script might have run in part: there SQLite waits itself, and
// does not see the end of ctx.
func patiently[R any](ctx context.Context, c *conn, k kind, run func() (R, error)) (R, error) {
	if k == scripts {
		c.waitFor(busyTimeout)
		defer c.waitFor(busyTry)
	}
	for until := time.Now().Add(busyTimeout); ; {
		result, err := run()
		if !isBusy(err) || k == scripts || c.inTx && k != commits || time.Now().After(until) {
			return result, err
		}
		select {
		case <-time.After(busyPause): // SQLite does not wait where two transactions might wait for each other
		case <-ctx.Done():
			return result, err
		}
	}
}

// waitFor sets how long SQLite itself waits for a lock. It takes no lock.
func (c *conn) waitFor(d time.Duration) {
	_, _ = c.sqliteConn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA busy_timeout(%d)", d.Milliseconds()), nil)
}

// isBusy reports SQLITE_BUSY, except for a transaction that reads an old state and can therefore never write.
func isBusy(err error) bool {
	const busySnapshot = busyCode | 2<<8
	var coded interface{ Code() int }
	return errors.As(err, &coded) && coded.Code()&0xff == busyCode && coded.Code() != busySnapshot
}

// leave leaves the writer queue after a statement that may have written.
func (c *conn) leave() {
	c.writers.journal.shorten(c.sqliteConn)
	c.writers.leave()
}

// inTransaction tries to begin a transaction, which SQLite refuses within one: its driver has no other way to detect one.
// It takes no lock.
func (c *conn) inTransaction() bool {
	if _, err := c.sqliteConn.ExecContext(context.Background(), "BEGIN", nil); err != nil {
		return true
	}
	_, err := c.sqliteConn.ExecContext(context.Background(), "COMMIT", nil)
	return err != nil
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	leave, err := c.enter(ctx, begins)
	if err != nil {
		return nil, err
	}
	inner, err := patiently(ctx, c, begins, func() (driver.Tx, error) { return c.sqliteConn.BeginTx(ctx, opts) })
	leave(err)
	if err != nil {
		return nil, err
	}
	return &tx{inner, c}, nil
}

type tx struct {
	driver.Tx
	conn *conn
}

func (t *tx) Commit() error {
	return t.end(func() error {
		_, err := patiently(context.Background(), t.conn, commits, func() (any, error) { return nil, t.Tx.Commit() })
		return err
	})
}
func (t *tx) Rollback() error { return t.end(t.Tx.Rollback) }

// end leaves the writer queue in any case: database/sql does not end a transaction
// twice, and closes the connection if it is bad.
func (t *tx) end(f func() error) error {
	err := f()
	if t.conn.inTx {
		t.conn.inTx = false
		t.conn.leave()
	}
	return err
}

// IsValid reports false for a connection that is released inside a transaction, for example after a script of several
// statements. database/sql then closes it, because its next user would hold the writer queue.
func (c *conn) IsValid() bool { return !c.inTx && c.sqliteConn.IsValid() }

// Close leaves the writer queue if the connection is in a transaction.
func (c *conn) Close() error {
	err := c.sqliteConn.Close()
	if c.inTx {
		c.inTx = false
		c.writers.leave()
	}
	return err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	leave, err := c.enter(ctx, kindOf(query))
	if err != nil {
		return nil, err
	}
	res, err := patiently(ctx, c, kindOf(query), func() (driver.Result, error) { return c.sqliteConn.ExecContext(ctx, query, args) })
	leave(err)
	return res, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	leave, err := c.enter(ctx, kindOf(query))
	if err != nil {
		return nil, err
	}
	inner, err := patiently(ctx, c, kindOf(query), func() (driver.Rows, error) { return c.sqliteConn.QueryContext(ctx, query, args) })
	return leaveWithRows(inner, err, leave)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	inner, err := c.sqliteConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(sqliteStmt)
	if !ok {
		inner.Close()
		return nil, errors.New("this version of modernc.org/sqlite lacks a method that chanq needs: use the version in the go.mod of chanq")
	}
	return &stmt{full, c, kindOf(query)}, nil
}

type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type stmt struct {
	sqliteStmt
	conn *conn
	kind kind
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	leave, err := s.conn.enter(ctx, s.kind)
	if err != nil {
		return nil, err
	}
	res, err := patiently(ctx, s.conn, s.kind, func() (driver.Result, error) { return s.sqliteStmt.ExecContext(ctx, args) })
	leave(err)
	return res, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	leave, err := s.conn.enter(ctx, s.kind)
	if err != nil {
		return nil, err
	}
	inner, err := patiently(ctx, s.conn, s.kind, func() (driver.Rows, error) { return s.sqliteStmt.QueryContext(ctx, args) })
	return leaveWithRows(inner, err, leave)
}

// leaveWithRows keeps the writer queue locked until the rows are closed: SQLite commits a statement with RETURNING when
// its last row has been read.
func leaveWithRows(inner driver.Rows, err error, leave func(error)) (driver.Rows, error) {
	if err != nil {
		leave(err)
		return nil, err
	}
	return &rows{Rows: inner, leave: leave}, nil
}

type rows struct {
	driver.Rows
	leave func(error)
}

func (r *rows) Close() error {
	err := r.Rows.Close()
	if r.leave != nil {
		r.leave(err)
		r.leave = nil
	}
	return err
}

// HasNextResultSet and NextResultSet support queries of several statements.
func (r *rows) HasNextResultSet() bool {
	more, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && more.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	if more, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return more.NextResultSet()
	}
	return io.EOF
}
