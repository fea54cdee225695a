package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/sqlbatch"
)

// session is one pinned connection with its prepared statements. It is used by
// one goroutine at a time.
type session struct {
	conn     *sql.Conn
	dialect  sqlbatch.Dialect
	prepared map[string]*sql.Stmt // nil where the dialect gains nothing by it
	broken   bool                 // its state is unknown: the connection must be closed
}

// maxPrepared bounds the statements of a session that several queues share.
const maxPrepared = 256

// sessions is a pool of pinned connections, apart from the application's use of
// the *sql.DB: a settle never waits for a connection that a handler holds.
// A session whose statement ended in a known way is used again; one whose
// outcome is unknown is closed, and so is its connection.
//
// A database with one writer has one session per *sql.DB, shared by all its
// queues: statements then queue up here in order, and its page cache stays
// warm.
type sessions struct {
	pool    *puddle.Pool[*session]
	dialect sqlbatch.Dialect
	close   func()
}

// openSessions makes a pool of at most n sessions, or joins the shared one, and
// takes its connections from what the *sql.DB allows: an error says that there
// are too few. It connects when a session is first used. Call close once.
func openSessions(db *sql.DB, d sqlbatch.Dialect, n int) (*sessions, error) {
	if d.Traits().OneWriter {
		if err := enough(db, 0, 1); err != nil {
			return nil, err
		}
		return joinSharedSessions(db, d), nil
	}
	release, err := reserve(db, n)
	if err != nil {
		return nil, err
	}
	s := newSessions(db, d, n)
	s.close = func() {
		s.pool.Close()
		release()
	}
	return s, nil
}

// openOnce makes a session for one call, which takes its connection as the
// application's own calls do.
func openOnce(db *sql.DB, d sqlbatch.Dialect) *sessions {
	if d.Traits().OneWriter {
		return joinSharedSessions(db, d)
	}
	s := newSessions(db, d, 1)
	s.close = s.pool.Close
	return s
}

func newSessions(db *sql.DB, d sqlbatch.Dialect, n int) *sessions {
	prepare := d.Traits().Prepare
	pool, err := puddle.NewPool(&puddle.Config[*session]{
		MaxSize: int32(n),
		Constructor: func(ctx context.Context) (*session, error) {
			conn, err := connect(ctx, db)
			if err != nil {
				return nil, err
			}
			s := &session{conn: conn, dialect: d}
			if prepare {
				s.prepared = map[string]*sql.Stmt{}
			}
			return s, nil
		},
		Destructor: func(s *session) { s.close() },
	})
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &sessions{pool: pool, dialect: d}
}

// connectTimeout bounds an attempt to connect. The pool does not: a caller whose
// context ends leaves the attempt, which keeps its place, to the next one.
const connectTimeout = 15 * time.Second

// connect gives up when ctx ends or connectTimeout is over, whatever the driver
// does: go-mssqldb waits for a server's greeting without looking at the context,
// and one that accepts connections and says nothing would keep every session of
// a consumer for ever. The attempt is then left alone until the driver returns.
func connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	type attempt struct {
		conn *sql.Conn
		err  error
	}
	done := make(chan attempt)
	go func() {
		defer cancel()
		conn, err := db.Conn(ctx)
		select {
		case done <- attempt{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close() // nobody waits for it: it goes back to the *sql.DB
			}
		}
	}()
	select {
	case a := <-done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// notRunError marks a failure before anything could have been applied: to get a
// connection, or to reach the commit of a transaction.
type notRunError struct{ err error }

func (e *notRunError) Error() string { return e.err.Error() }
func (e *notRunError) Unwrap() error { return e.err }

// classify is the dialect's classification, with what the session knows: what
// was not run has no unknown outcome.
func classify(d sqlbatch.Dialect, err error) sqlbatch.Class {
	if undecided := (*undecidedError)(nil); errors.As(err, &undecided) {
		return sqlbatch.BadRow // the others of its batch may be stored
	}
	c := d.Classify(err)
	if _, notRun := err.(*notRunError); notRun && c == sqlbatch.Unknown {
		return sqlbatch.Refused
	}
	return c
}

// run executes one statement and gives each of its rows to scan, which is nil
// for a statement without a result. ctx should have a deadline. It returns nil
// only when every row and result set was read and the database reported
// success.
func (p *sessions) run(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	res, err := p.pool.Acquire(ctx)
	if err != nil {
		return &notRunError{fmt.Errorf("connect: %w", err)}
	}
	err = res.Value().run(ctx, st, scan)
	if err == nil {
		res.Release()
		return nil
	}
	class := p.dialect.Classify(err)
	if class == sqlbatch.Unknown || class == sqlbatch.Refused {
		res.Value().broken = true
	}
	if res.Value().broken {
		res.Destroy()
	} else {
		res.Release()
	}
	return err
}

// inTx runs f in one transaction on one session. Only an error of the commit
// itself leaves the outcome unknown.
func (p *sessions) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	res, err := p.pool.Acquire(ctx)
	if err != nil {
		return &notRunError{fmt.Errorf("connect: %w", err)}
	}
	err = func() error {
		tx, err := res.Value().conn.BeginTx(ctx, nil)
		if err != nil {
			return &notRunError{err}
		}
		if err := f(tx); err != nil {
			_ = tx.Rollback() // a session that cannot roll back is closed below
			return &notRunError{err}
		}
		err = tx.Commit()
		if errors.Is(err, sql.ErrTxDone) { // rolled back at the end of ctx
			return &notRunError{cmp.Or(ctx.Err(), err)}
		}
		return err
	}()
	if err == nil {
		res.Release()
	} else {
		res.Value().broken = true
		res.Destroy()
	}
	return err
}

func (s *session) run(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	if len(st.Prior) == 0 {
		return s.one(ctx, st, scan)
	}
	begun := false
	err := func() error {
		for _, text := range s.dialect.Begin() {
			if err := s.one(ctx, sqlbatch.Statement{Text: text}, nil); err != nil {
				return err
			}
			begun = true
		}
		if err := s.each(ctx, st, scan); err != nil {
			return err
		}
		return s.one(ctx, sqlbatch.Statement{Text: s.dialect.Commit()}, nil)
	}()
	if err != nil && begun {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, e := s.conn.ExecContext(undo, "ROLLBACK"); e != nil {
			s.broken = true
		}
	}
	return err
}

// rollbackTimeout is short: a connection that cannot roll back is closed, which
// does the same.
const rollbackTimeout = 5 * time.Second

// each runs the statements of st in order, in the transaction that is open.
func (s *session) each(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	for _, prior := range st.Prior {
		if err := s.one(ctx, prior, nil); err != nil {
			return err
		}
	}
	return s.one(ctx, st, scan)
}

func (s *session) one(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	stmt, err := s.prepare(ctx, st.Text)
	if err != nil {
		return err
	}
	err = s.execute(ctx, stmt, st, scan)
	if err != nil && s.dialect.Traits().PrepareTells && s.dialect.Classify(err) == sqlbatch.NoSchema && s.compiles(ctx, st.Text) {
		return &sqlbatch.RunError{Err: err}
	}
	return err
}

// compiles reports whether what a text names is there.
func (s *session) compiles(ctx context.Context, text string) bool {
	stmt, err := s.conn.PrepareContext(ctx, text)
	if err != nil {
		return s.dialect.Classify(err) != sqlbatch.NoSchema
	}
	_ = stmt.Close()
	return true
}

// execute runs a statement, by stmt where it is prepared.
func (s *session) execute(ctx context.Context, stmt *sql.Stmt, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	var err error
	if scan == nil {
		if stmt != nil {
			_, err = stmt.ExecContext(ctx, st.Args...)
		} else {
			_, err = s.conn.ExecContext(ctx, st.Text, st.Args...)
		}
		return err
	}
	var rows *sql.Rows
	if stmt != nil {
		rows, err = stmt.QueryContext(ctx, st.Args...)
	} else {
		rows, err = s.conn.QueryContext(ctx, st.Text, st.Args...)
	}
	if err != nil {
		return err
	}
	return drain(rows, scan)
}

// drain reads every row of every result set. An error may follow any number of
// rows, so nothing may be believed before it returns nil.
func drain(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close()
	for {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

func (s *session) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s.prepared == nil {
		return nil, nil
	}
	if stmt := s.prepared[text]; stmt != nil {
		return stmt, nil
	}
	if len(s.prepared) >= maxPrepared {
		for t, stmt := range s.prepared {
			_ = stmt.Close()
			delete(s.prepared, t)
		}
	}
	stmt, err := s.conn.PrepareContext(ctx, text)
	if err == nil {
		s.prepared[text] = stmt
	}
	return stmt, err
}

// close gives the connection back to the *sql.DB, or closes it if it is broken.
func (s *session) close() {
	for _, stmt := range s.prepared {
		_ = stmt.Close()
	}
	if s.broken {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = s.conn.Close()
}
