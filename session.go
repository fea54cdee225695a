package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
	old      time.Time            // when it is to be renewed
	broken   bool                 // the connection must be closed: its state is unknown, or it is too old
}

// maxPrepared bounds the statements of a session that several queues share.
const maxPrepared = 256

// sessions is a pool of pinned connections, apart from the application's use of
// the *sql.DB: a settle never waits for a connection that a handler holds. Each
// kind of work has a pool of its own (see Consumer), so that none waits for
// another's statement.
//
// A session whose statement ended in a known way is used again, until it is old or
// was idle for long; any other is closed, and so is its connection.
//
// A database with one writer has one session per *sql.DB, shared by all its
// queues: statements then queue up here in order, and its page cache stays
// warm.
type sessions struct {
	pool    *puddle.Pool[*session]
	db      *sql.DB
	dialect sqlbatch.Dialect
	maxAge  time.Duration // of a session; 0 is no limit
	maxIdle time.Duration
	close   func()

	mu     sync.Mutex
	ended  bool           // no statement of items begins any more
	strays sync.WaitGroup // statements of items
}

// openSessions makes a pool of each size, or joins the shared one with each, and
// takes the connections of all from what the *sql.DB allows: an error says that
// there are too few. It connects when a session is first used. Close each once.
func openSessions(db *sql.DB, d sqlbatch.Dialect, maxAge time.Duration, sizes ...int) ([]*sessions, error) {
	pools := make([]*sessions, len(sizes))
	if d.Traits().OneWriter {
		if err := enough(db, 0, 1); err != nil {
			return nil, err
		}
		for i := range pools {
			pools[i] = joinSharedSessions(db, d)
		}
		return pools, nil
	}
	total := 0
	for _, n := range sizes {
		total += n
	}
	release, err := reserve(db, total)
	if err != nil {
		return nil, err
	}
	open := atomic.Int64{}
	open.Store(int64(len(sizes)))
	for i, n := range sizes {
		p := newSessions(db, d, maxAge, n)
		p.close = func() {
			p.end()
			if open.Add(-1) == 0 {
				release()
			}
		}
		pools[i] = p
	}
	return pools, nil
}

// openOnce makes a session for one call, which takes its connection as the
// application's own calls do.
func openOnce(db *sql.DB, d sqlbatch.Dialect) *sessions {
	if d.Traits().OneWriter {
		return joinSharedSessions(db, d)
	}
	s := newSessions(db, d, 0, 1)
	s.close = s.end
	return s
}

func newSessions(db *sql.DB, d sqlbatch.Dialect, maxAge time.Duration, n int) *sessions {
	prepare := d.Traits().Prepare
	pool, err := puddle.NewPool(&puddle.Config[*session]{
		MaxSize: int32(n),
		Constructor: func(ctx context.Context) (*session, error) {
			conn, err := connect(ctx, db, maxAge > 0)
			if err != nil {
				return nil, err
			}
			s := &session{conn: conn, dialect: d}
			if maxAge > 0 {
				// Those that were made together are not renewed together.
				s.old = time.Now().Add(maxAge - rand.N(maxAge/8+1))
			}
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
	return &sessions{pool: pool, db: db, dialect: d, maxAge: maxAge, maxIdle: maxIdle}
}

// end closes the pool once every session is back, those of statements that were
// left behind, too.
func (p *sessions) end() {
	p.endStrays()
	p.pool.Close()
}

// endStrays waits for the statements that were left behind.
func (p *sessions) endStrays() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.strays.Wait()
}

// maxIdle is for how long a session may be idle before its connection is looked
// at with suspicion: less than the four minutes after which firewalls begin to
// forget one, silently.
const maxIdle = time.Minute

// acquire waits for a session and renews it if it is old or was idle for long: its
// connection is closed, and another one taken.
//
// Where the application uses all that a *sql.DB allows, a session that answers stays:
// the place of its connection would go to whoever waits for one, who may hold it
// until this session has done its work.
func (p *sessions) acquire(ctx context.Context) (*puddle.Resource[*session], error) {
	for began := time.Now(); ; {
		res, err := p.pool.Acquire(ctx)
		if err != nil {
			return nil, &notRunError{err: fmt.Errorf("connect: %w", err), unconnected: true}
		}
		idle := res.IdleDuration() >= p.maxIdle
		switch {
		case p.maxAge == 0, !idle && time.Now().Before(res.Value().old), res.CreationTime().After(began):
			return res, nil
		case !spare(p.db) && (!idle || answers(ctx, res.Value().conn) == nil):
			return res, nil
		}
		res.Value().broken = true
		res.Destroy()
	}
}

// notRunError marks a failure before anything could have been applied: to get a
// connection, or to reach the commit of a transaction.
type notRunError struct {
	err         error
	unconnected bool // there was no connection
}

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
	res, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	if err = res.Value().run(ctx, st, scan); err != nil && !p.clean(err) {
		res.Value().broken = true
	}
	if res.Value().broken {
		res.Destroy()
	} else {
		res.Release()
	}
	return err
}

// clean reports an error after which nothing of the statement is left on its
// connection: no transaction, no lock. Of the others that is not certain. (A SQL
// Server, for one, may leave the transaction of a batch open whose second statement
// did not compile.)
func (p *sessions) clean(err error) bool {
	switch p.dialect.Classify(err) {
	case sqlbatch.RolledBack, sqlbatch.Duplicate, sqlbatch.BadRow:
		return true
	}
	return false
}

// items runs a statement whose rows are id, fence, and appends them to into. Unlike
// run it returns soon after the end of ctx, whatever the driver does, which may need
// seconds to notice that its network is gone: the statement is left behind then, on
// its session, which is closed when the driver returns. Its outcome is unknown, and
// whatever the statement was given stays with it (left is true).
func (p *sessions) items(ctx context.Context, st sqlbatch.Statement, into []sqlbatch.Item) (items []sqlbatch.Item, left bool, err error) {
	type result struct {
		items []sqlbatch.Item
		err   error
	}
	done := make(chan result, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return into, false, &notRunError{err: ErrClosed, unconnected: true}
	}
	p.strays.Go(func() {
		r := result{items: into}
		r.err = p.run(ctx, st, collectItems(&r.items))
		done <- r
	})
	p.mu.Unlock()
	select {
	case r := <-done:
		return r.items, false, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(driverGrace)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.items, false, r.err
	case <-timer.C:
		return nil, true, fmt.Errorf("the driver does not return: %w", context.Cause(ctx))
	}
}

// driverGrace is for how long a driver may take to notice the end of its context
// before its statement is left behind.
const driverGrace = 20 * time.Millisecond

// inTx runs f in one transaction on one session. Only an error of the commit
// itself leaves the outcome unknown.
func (p *sessions) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	res, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted} // statements that skip locked rows need it
	if p.dialect.Traits().OneWriter {
		opts = nil
	}
	err = func() error {
		tx, err := res.Value().conn.BeginTx(ctx, opts)
		if err != nil {
			return &notRunError{err: err}
		}
		if err := f(tx); err != nil {
			_ = tx.Rollback() // a session that cannot roll back is closed below
			return &notRunError{err: err}
		}
		err = tx.Commit()
		if errors.Is(err, sql.ErrTxDone) { // rolled back at the end of ctx
			return &notRunError{err: cmp.Or(ctx.Err(), err)}
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
		discard(s.conn)
	} else {
		_ = s.conn.Close()
	}
}
