package session

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Part is the share of one producer, consumer or pipe in the sessions of a *sql.DB, for a kind of work. It is safe
// for concurrent use.
type Part struct {
	pool    *Pool
	need    Need
	maxAge  time.Duration // of a session; 0 is no limit
	failing atomic.Bool   // a statement failed on new connections as well, and none has succeeded since: see afresh
	strays  base.Group    // statements of Items, and borrowed connections that are closed
	used    int           // statements that run; Pool.mu guards it, ended, and the start of statements of Items
	ended   bool          // Items starts no more statements
}

// driverGrace is how long a driver may take to notice the end of its context
// before its statement is left behind.
const driverGrace = 20 * time.Millisecond

// Connect connects the reserved sessions before there is work, if the *sql.DB has
// a limit. Handlers might use all connections and hold them while they wait for a settle. A session
// that requests its connection only then would never get one. Without Connect, the first statement returns its error.
func (p *Part) Connect(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for p.pool.limit() > 0 && !p.pool.scarce() {
		p.pool.mu.Lock()
		most := p.pool.reserve()
		p.pool.mu.Unlock()
		if int(p.pool.store.Stat().TotalResources()) >= most {
			break
		}
		if err := p.pool.store.CreateResource(ctx); err == puddle.ErrNotAvailable {
			break // a statement connects the only one
		} else if err != nil {
			return unconnected(err)
		}
	}
	return nil
}

// Spare reports whether two more statements would run now, without taking a connection that the application might
// need. If it is false, the second one might have to wait.
func (p *Part) Spare() bool {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	k := p.need.Kind
	return !p.pool.scarce() && (p.pool.spare(1) || p.pool.used[k]+1 < k.reserved(p.pool.need[k]))
}

// Turn begins the turn of a task that borrows a connection for long, such as a vacuum: one task at a time on the
// *sql.DB. ok is false during the turn of another task. done ends the turn.
func (p *Part) Turn() (done func(), ok bool) {
	select {
	case p.pool.turn <- struct{}{}:
		return func() { <-p.pool.turn }, true
	default:
		return nil, false
	}
}

// Close waits until the statements that were left behind have ended. No other statement may
// be running or begin later.
func (p *Part) Close() {
	p.pool.mu.Lock()
	p.ended = true
	p.pool.mu.Unlock()
	p.strays.Wait()
	p.pool.leave(p.need)
}

// Run executes one statement and calls scan for each of its rows; scan is nil
// for a statement without a result. ctx should have a deadline. Run returns nil
// only if every row and result set was read and the database reported success.
// After a NotRunError nothing was applied.
func (p *Part) Run(ctx context.Context, st sqlbatch.Statement, scan Scan) error {
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
func (p *Part) RunTimed(ctx context.Context, st sqlbatch.Statement, scan Scan) (took time.Duration, err error) {
	return p.run(ctx, st, scan, false)
}

// RunPatient is RunTimed for a statement that can wait. Of such statements of a kind on the *sql.DB,
// one runs at a time, and one session is enough for them. A statement that hangs delays the others by
// half a second at most. took excludes the waits for its turn and for a session.
func (p *Part) RunPatient(ctx context.Context, st sqlbatch.Statement, scan Scan) (took time.Duration, err error) {
	return p.run(ctx, st, scan, true)
}

func (p *Part) run(ctx context.Context, st sqlbatch.Statement, scan Scan, patient bool) (took time.Duration,
	err error) {
	err = p.use(ctx, patient, func(s *session) error {
		began := time.Now()
		err := s.run(ctx, st, scan)
		took = time.Since(began)
		s.broken = s.broken || err != nil && !p.clean(err)
		return err
	})
	return took, err
}

// afresh calls do, and calls it again on a new connection if it fails for good, because only the connection might be
// the cause: a plan or a prepared statement in its cache, a role or a setting that an earlier user has left. Some
// more are tried, because another user of the *sql.DB might return an old one after the idle ones were closed. A new
// connection costs the application its idle ones, so a statement that is repeated later anyway, and one that follows
// a failure on new connections, is not run again.
func (p *Part) afresh(ctx context.Context, s *session, do func() error) error {
	for n := 1; ; n++ {
		s.read = false
		err := do()
		switch c := p.pool.dialect.Classify(err); {
		case err == nil, n > tries:
			p.failing.Store(err != nil)
			return err
		case s.read, c != sqlbatch.Permanent && c != sqlbatch.NoSchema, p.need.Kind == Note, p.failing.Load():
			return err
		}
		if err := s.renew(ctx, p.pool); err != nil {
			return unconnected(err)
		}
	}
}

// use waits for a place and a session, and calls do with it, as afresh says.
//
// Sessions outlive their *sql.DB. The work in hand may use them, but no other begins.
func (p *Part) use(ctx context.Context, patient bool, do func(*session) error) error {
	switch p.need.Kind {
	case Settle, Extend, Pipe:
	default:
		if closed(p.pool.db) {
			return unconnected(errClosed)
		}
	}
	switch {
	case p.pool.scarce():
		defer p.pool.single.next(ctx)()
	case patient:
		defer p.pool.patient[p.need.Kind].next(ctx)()
	}
	lent, err := p.enter(ctx)
	if err != nil {
		return unconnected(err)
	}
	defer p.exit(lent)
	s, err := p.acquire(ctx, lent)
	if err != nil {
		return p.unconnected(cmp.Or(context.Cause(ctx), err))
	}
	defer p.release(s)
	return p.afresh(ctx, s, func() error { return do(s) })
}

// place reports whether one more statement may run, and whether it borrows its connection. Pool.mu is held.
func (p *Part) place() (lent, ok bool) {
	pool, k, s := p.pool, p.need.Kind, p.pool.db.Stats()
	limit := s.MaxOpenConnections
	switch {
	case p.used == p.need.Sessions+p.need.Spare:
		return false, false
	case pool.store != nil && pool.oneWriter():
		return false, true
	case k == call:
		return true, true
	case limit > 0 && limit <= pool.reserve():
		pool.starve()
	}
	switch {
	case pool.scarce():
		return true, true
	case limit == 0, pool.used[k] < k.reserved(pool.need[k]):
		return false, true
	}
	return true, k == Note || s.InUse+1 < limit
}

// enter waits for a place.
func (p *Part) enter(ctx context.Context) (lent bool, err error) {
	for {
		p.pool.mu.Lock()
		lent, ok := p.place()
		if ok {
			p.count(lent, 1)
			p.pool.mu.Unlock()
			return lent, nil
		}
		if p.pool.freed == nil {
			p.pool.freed = make(chan struct{})
		}
		freed := p.pool.freed
		p.pool.mu.Unlock()
		select {
		case <-freed:
		case <-time.After(moment): // there might be a connection to spare by now
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// exit gives the place to those that wait.
func (p *Part) exit(lent bool) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.count(lent, -1)
	if p.pool.freed != nil {
		close(p.pool.freed)
		p.pool.freed = nil
	}
}

// count adds n statements. Pool.mu is held.
func (p *Part) count(lent bool, n int) {
	p.used += n
	if !lent {
		p.pool.used[p.need.Kind] += n
	}
}

// acquire borrows a connection, or waits for a session. It replaces the connection of one that is old, or was idle for
// long and does not answer.
//
// If the application uses all connections that the *sql.DB allows, an old session is kept: the place of its connection
// would go to a waiting call of the application, which might hold it until this session has done its work.
func (p *Part) acquire(ctx context.Context, lent bool) (*session, error) {
	if lent {
		conn, err := p.pool.connect(ctx, false)
		if err != nil {
			return nil, err
		}
		return newSession(conn, p.pool.dialect), nil
	}
	res, err := p.pool.store.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	s := res.Value()
	s.home = res
	if p.maxAge > 0 && (s.old(p.maxAge) && p.pool.spare(0) ||
		res.IdleDuration() >= maxIdle && answers(ctx, s.conn) != nil) {
		if err := s.reconnect(ctx, p.pool); err != nil {
			p.release(s)
			return nil, err
		}
	}
	return s, nil
}

func (p *Part) release(s *session) {
	switch {
	case s.home == nil && s.broken:
		p.strays.Go(s.close) // the driver might not return
	case s.home == nil:
		s.close()
	case s.broken:
		s.home.Destroy()
	default:
		s.home.Release()
	}
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
	p.pool.mu.Lock()
	if p.ended {
		p.pool.mu.Unlock()
		return into, false, &NotRunError{Err: ErrClosed, Unconnected: true}
	}
	p.strays.Go(func() {
		r := result{items: into}
		r.err = p.Run(ctx, st, CollectItems(&r.items))
		done <- r
	})
	p.pool.mu.Unlock()
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
func CollectItems(items *[]sqlbatch.Item) Scan {
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
func (p *Part) InTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	return p.use(ctx, false, func(s *session) error { return p.inTx(ctx, s, f) })
}

func (p *Part) inTx(ctx context.Context, s *session, f func(tx *sql.Tx) error) (err error) {
	defer base.Crash()
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted} // statements that skip locked rows need it
	if p.pool.oneWriter() {
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
