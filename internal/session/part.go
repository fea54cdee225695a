package session

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Part is the share of one producer, consumer or pipe in the sessions of a kind. It is safe
// for concurrent use.
type Part struct {
	pool    *Pool
	lane    *lane
	need    Need
	slots   chan struct{} // has a value for each session in use
	maxAge  time.Duration // of a session; 0 is no limit
	maxIdle time.Duration
	last    func()      // called at the end of Close, unless it is nil
	failing atomic.Bool // a statement failed on a new connection as well, and none has succeeded since: see afresh

	mu     sync.Mutex // guards ended, and the start of strays
	ended  bool       // Items starts no more statements
	strays base.Group // statements of Items
}

// maxIdle is how long a session may be idle before its connection is renewed:
// less than the four minutes after which firewalls begin to drop connections
// silently.
const maxIdle = time.Minute

// driverGrace is how long a driver may take to notice the end of its context
// before its statement is left behind.
const driverGrace = 20 * time.Millisecond

// newPart returns a part of p. p.mu is held, or p is not shared yet.
func newPart(p *Pool, n Need, maxAge time.Duration) *Part {
	part := &Part{pool: p, lane: p.lane(n.Kind), need: n, slots: make(chan struct{}, n.Sessions+n.Spare),
		maxAge: maxAge, maxIdle: maxIdle}
	if p.traits.OneWriter || n.Kind == Note {
		part.maxAge = 0
	}
	return part
}

// Fill connects the reserved sessions of the part's kind before there is work, if the *sql.DB has
// a limit. Handlers might use all connections and hold them while they wait for a settle. A session
// that requests its connection only then would never get one.
func (p *Part) Fill(ctx context.Context) error {
	if p.pool.limit() == 0 {
		return nil
	}
	if err := p.lane.fill(ctx); err != nil {
		return unconnected(err)
	}
	return nil
}

// Expect announces a statement within d, at most a minute. Until then one session of the
// part's kind stays open, even if it is idle. It is for statements that must be fast where
// connecting takes long.
func (p *Part) Expect(d time.Duration) { p.lane.expect(time.Now().Add(min(d, maxIdle))) }

// Spare reports whether the kind has more than one session, or another one can be connected
// without taking a connection that the application might need. If it is false, a statement
// might have to wait for a session.
func (p *Part) Spare() bool {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return p.lane.open > 1 || p.pool.spare(1+int(p.pool.coming.Load()))
}

// Alone waits for its turn if the *sql.DB has a limit: of the statements that might take long, only one runs
// at a time on the *sql.DB, and the other session of the kind is free for the rest. done ends the turn.
func (p *Part) Alone(ctx context.Context) (done func()) {
	if p.pool.limit() == 0 {
		return func() {}
	}
	select {
	case p.pool.alone <- struct{}{}:
		return func() { <-p.pool.alone }
	case <-ctx.Done():
		return func() {}
	}
}

// Close waits until the statements that were left behind have ended. No other statement may
// be running or begin later.
func (p *Part) Close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.strays.Wait()
	p.pool.leave(p.need)
	if p.last != nil {
		p.last()
	}
}

// Run executes one statement and calls scan for each of its rows; scan is nil
// for a statement without a result. ctx should have a deadline. Run returns nil
// only if every row and result set was read and the database reported success.
// After a NotRunError nothing was applied.
func (p *Part) Run(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	_, err := p.RunTimed(ctx, st, scan)
	return err
}

// Within calls f with a context that ends after timeout (Config.StatementTimeout), and names it in the error if it was
// too short.
func Within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := f(within)
	if err == nil || within.Err() == nil || ctx.Err() != nil {
		return err
	}
	late := fmt.Errorf("no answer within Config.StatementTimeout (%v): %w", timeout, err)
	if notRun, ok := err.(*NotRunError); ok {
		return &NotRunError{Err: late, Unconnected: notRun.Unconnected}
	}
	return late
}

// RunTimed is Run, and returns how long the statement took, without the wait for a session.
func (p *Part) RunTimed(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) (took time.Duration,
	err error) {
	res, err := p.acquire(ctx)
	if err != nil {
		return 0, err
	}
	s, began := res.Value(), time.Now()
	if err = p.afresh(ctx, s, func() error { return s.run(ctx, st, scan) }); err != nil && !p.clean(err) {
		s.broken = true
	}
	took = time.Since(began)
	p.release(res)
	return took, err
}

// afresh calls do, and calls it again on a new connection if it fails for good, because only the connection might be
// the cause: a plan or a prepared statement in its cache, a role or a setting that an earlier user has left. A new
// connection costs the application its idle ones, so a statement that is repeated later anyway, and one that follows a
// failure on a new connection, is not run again.
func (p *Part) afresh(ctx context.Context, s *session, do func() error) error {
	s.read = false
	err := do()
	switch c := p.pool.dialect.Classify(err); {
	case err == nil:
		p.failing.Store(false)
		return nil
	case s.read, c != sqlbatch.Permanent && c != sqlbatch.NoSchema, p.need.Kind == Note, p.failing.Load():
		return err
	}
	if err := s.renew(ctx, p.pool); err != nil {
		return unconnected(err)
	}
	err = do()
	p.failing.Store(err != nil)
	return err
}

// RunPatient is RunTimed for a statement that can wait. Of such statements of one kind on the *sql.DB,
// one runs at a time, and one session is enough for them. A statement that hangs delays the others by
// half a second at most. took excludes the waits for its turn and for a session.
func (p *Part) RunPatient(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) (took time.Duration,
	err error) {
	defer p.lane.patient.next(ctx)()
	return p.RunTimed(ctx, st, scan)
}

// acquire waits for a session and renews it if it is old or was idle for long: its
// connection is closed, and another one is taken.
//
// If the application uses all connections that the *sql.DB allows, a session that answers
// is kept: the place of its connection would go to a waiting call of the application,
// which might hold it until this session has done its work.
//
// Sessions outlive their *sql.DB. The work in hand may use them, but no other begins.
func (p *Part) acquire(ctx context.Context) (*puddle.Resource[*session], error) {
	switch p.need.Kind {
	case Settle, Extend, Pipe:
	default:
		if closed(p.pool.db) {
			return nil, unconnected(errClosed)
		}
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, unconnected(context.Cause(ctx))
	}
	turn := func() {}
	if p.pool.scarce() {
		turn = p.pool.single.next(ctx)
	}
	for began := time.Now(); ; {
		res, err := p.lane.acquire(ctx)
		if err != nil {
			turn()
			<-p.slots
			return nil, p.unconnected(err)
		}
		res.Value().done = turn
		made := res.CreationTime()
		idle := res.IdleDuration() >= p.maxIdle
		switch {
		case p.maxAge == 0, !idle && !res.Value().old(time.Since(made), p.maxAge), made.After(began):
			return res, nil
		case !p.pool.spare(0) && (!idle || answers(ctx, res.Value().conn) == nil):
			return res, nil
		}
		res.Value().broken = true
		p.lane.release(res)
	}
}

func (p *Part) release(res *puddle.Resource[*session]) {
	done := res.Value().done
	p.lane.release(res)
	done()
	<-p.slots
}

// unconnected says what the reason might be.
func (p *Part) unconnected(err error) error {
	if p.pool.scarce() {
		err = fmt.Errorf("%w: there is no answer, or the *sql.DB, its driver's pool, the role or the server allows "+
			"too few connections", err)
	}
	return unconnected(err)
}

func unconnected(err error) error {
	return &NotRunError{Err: fmt.Errorf("connect: %w", err), Unconnected: true}
}

// clean reports whether err leaves nothing of the statement on its connection: no
// transaction, no lock. After other errors that is not certain. (For example, SQL
// Server might leave the transaction of a batch open if its second statement did not
// compile.)
func (p *Part) clean(err error) bool {
	switch p.pool.dialect.Classify(err) {
	case sqlbatch.RolledBack, sqlbatch.Duplicate, sqlbatch.BadRow:
		return true
	}
	return false
}

// Items runs a statement whose rows are id, fence, and appends them to into. Unlike
// Run it returns soon after ctx ends, even if the driver needs seconds to notice a
// lost network. The statement is then left behind on its session, which is closed
// when the driver returns. Its outcome is unknown, and left is true: the statement
// still uses its arguments and into.
func (p *Part) Items(ctx context.Context, st sqlbatch.Statement, into []sqlbatch.Item) (items []sqlbatch.Item,
	left bool, err error) {
	type result struct {
		items []sqlbatch.Item
		err   error
	}
	done := make(chan result, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return into, false, &NotRunError{Err: ErrClosed, Unconnected: true}
	}
	p.strays.Go(func() {
		r := result{items: into}
		r.err = p.Run(ctx, st, CollectItems(&r.items))
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

// CollectItems scans rows of id, fence.
func CollectItems(items *[]sqlbatch.Item) func(*sql.Rows) error {
	var raw sql.RawBytes
	var fence sql.NullInt64
	return func(rows *sql.Rows) error {
		if err := rows.Scan(&raw, &fence); err != nil {
			return err
		}
		var it sqlbatch.Item
		copy(it.ID[:], raw)
		it.Fence = fence.Int64
		*items = append(*items, it)
		return nil
	}
}

// RollbackGrace is how long a transaction outlasts its context, to be rolled back. If the
// context of a rollback has ended, go-mssqldb 1.11 drops the answer, and passes the buffer
// into which it is read to another connection.
const RollbackGrace = time.Second

// Outlasting returns a context that ends d after ctx ends, or when end is called. end must be called.
func Outlasting(ctx context.Context, d time.Duration) (longer context.Context, end context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(d):
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

// InTx runs f in one transaction on one session, or in a second one as Part.afresh says. f must end
// with ctx. The outcome is unknown only after an error of the commit itself.
func (p *Part) InTx(ctx context.Context, f func(tx *sql.Tx) error) (err error) {
	res, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer p.release(res)
	s := res.Value()
	return p.afresh(ctx, s, func() error { return p.inTx(ctx, s, f) })
}

func (p *Part) inTx(ctx context.Context, s *session, f func(tx *sql.Tx) error) (err error) {
	defer base.Crash()
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted} // statements that skip locked rows need it
	if p.pool.traits.OneWriter {
		opts = nil
	}
	s.broken = true // until it is committed
	longer, end := Outlasting(ctx, RollbackGrace)
	defer end()
	tx, err := s.conn.BeginTx(longer, opts)
	if err != nil {
		return &NotRunError{Err: err}
	}
	if err := cmp.Or(f(tx), ctx.Err()); err != nil {
		_ = tx.Rollback() // the connection is closed in any case
		return &NotRunError{Err: err}
	}
	switch err = cmp.Or(tx.Commit(), longer.Err()); { // as in execute
	case err == nil:
		s.broken = false
	case errors.Is(err, sql.ErrTxDone): // rolled back
		return &NotRunError{Err: err}
	}
	return err
}
