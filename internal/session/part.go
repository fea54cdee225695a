package session

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/sqlbatch"
)

// Part is what one producer, consumer or pipe uses of the sessions of a kind. It is safe
// for concurrent use.
type Part struct {
	pool    *Pool
	lane    *lane
	need    Need
	slots   chan struct{} // has a value for each session in use
	maxAge  time.Duration // of a session; 0 is no limit
	maxIdle time.Duration
	last    func() // what Close does in the end; nil is nothing

	mu     sync.Mutex     // guards ended, and that no stray begins after it
	ended  bool           // no statement of Items begins any more
	strays sync.WaitGroup // statements of Items
}

// maxIdle is for how long a session may be idle before its connection is looked
// at with suspicion: less than the four minutes after which firewalls begin to
// forget one, silently.
const maxIdle = time.Minute

// driverGrace is for how long a driver may take to notice the end of its context
// before its statement is left behind.
const driverGrace = 20 * time.Millisecond

// newPart makes a part of p, whose mu is held, or which nobody else has.
func newPart(p *Pool, n Need, maxAge time.Duration) *Part {
	part := &Part{pool: p, lane: p.lane(n.Kind), need: n, slots: make(chan struct{}, n.Sessions+n.Spare), maxAge: maxAge, maxIdle: maxIdle}
	if p.traits.OneWriter || n.Kind == Note {
		part.maxAge = 0
	}
	return part
}

// Fill connects what is reserved for the part's kind where the *sql.DB has a limit: before there
// is work. Handlers may use up the limit, and hold what they have while they wait for a
// settle; a session that asks for its connection only then would never get it.
func (p *Part) Fill(ctx context.Context) error {
	if p.pool.limit() == 0 {
		return nil
	}
	if err := p.lane.fill(ctx); err != nil {
		return unconnected(err)
	}
	return nil
}

// Expect announces a statement within d, at most a minute: one session of the part's kind
// stays till then, though it is idle. For statements whose time is short where it takes
// long to connect.
func (p *Part) Expect(d time.Duration) { p.lane.expect(time.Now().Add(min(d, maxIdle))) }

// Spare reports whether there is more than one session of the kind, or one may be connected
// without taking what the application may need. Whoever uses one nevertheless may have to
// wait for it.
func (p *Part) Spare() bool {
	if p.pool.limit() == 0 {
		return true
	}
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return p.lane.open > 1 || p.pool.spare(1+int(p.pool.coming.Load()))
}

// Alone waits for its turn, where the *sql.DB has a limit: of those statements that may take long one is
// run at a time on all of it, so that the other session of the kind stays for the rest. done ends the turn.
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

// Close waits until the statements that were left behind have ended. No other one may be
// under way, nor come later.
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

// Run executes one statement and gives each of its rows to scan, which is nil
// for a statement without a result. ctx should have a deadline. It returns nil
// only when every row and result set was read and the database reported
// success. A NotRunError says that nothing was done.
func (p *Part) Run(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	_, err := p.RunTimed(ctx, st, scan)
	return err
}

// Within calls f with a context that ends after Config.StatementTimeout, and names that in the error if it was too short.
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

// RunTimed is Run, and tells how long the statement took, without the wait for a session.
func (p *Part) RunTimed(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) (took time.Duration, err error) {
	res, err := p.acquire(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err = res.Value().run(ctx, st, scan); err != nil && !p.clean(err) {
		res.Value().broken = true
	}
	took = time.Since(began)
	p.release(res)
	return took, err
}

// RunPatient is RunTimed for a statement that may wait. Of all such statements on the *sql.DB of
// one kind, one is run at a time, so that one session does for them. One that hangs
// keeps the others waiting for half a second, no longer. The time that it returns is without the waits for its turn and for a session.
func (p *Part) RunPatient(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) (took time.Duration, err error) {
	done, err := p.lane.turn(ctx)
	if err != nil {
		return 0, unconnected(err)
	}
	defer done()
	return p.RunTimed(ctx, st, scan)
}

// acquire waits for a session and renews it if it is old or was idle for long: its
// connection is closed, and another one taken.
//
// Where the application uses all that a *sql.DB allows, a session that answers stays:
// the place of its connection would go to whoever waits for one, who may hold it
// until this session has done its work.
func (p *Part) acquire(ctx context.Context) (*puddle.Resource[*session], error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, unconnected(context.Cause(ctx))
	}
	for began := time.Now(); ; {
		res, err := p.lane.acquire(ctx)
		if err != nil {
			<-p.slots
			return nil, unconnected(err)
		}
		made := res.CreationTime()
		idle := res.IdleDuration() >= p.maxIdle
		switch {
		case p.maxAge == 0, !idle && !res.Value().old(time.Since(made), p.maxAge), made.After(began):
			return res, nil
		case !p.pool.spare(0) && (!idle || res.Value().answers(ctx) == nil):
			return res, nil
		}
		res.Value().broken = true
		p.lane.release(res)
	}
}

func (p *Part) release(res *puddle.Resource[*session]) {
	p.lane.release(res)
	<-p.slots
}

func unconnected(err error) error {
	return &NotRunError{Err: fmt.Errorf("connect: %w", err), Unconnected: true}
}

// clean reports an error after which nothing of the statement is left on its
// connection: no transaction, no lock. Of the others that is not certain. (A SQL
// Server, for one, may leave the transaction of a batch open whose second statement
// did not compile.)
func (p *Part) clean(err error) bool {
	switch p.pool.dialect.Classify(err) {
	case sqlbatch.RolledBack, sqlbatch.Duplicate, sqlbatch.BadRow:
		return true
	}
	return false
}

// Items runs a statement whose rows are id, fence, and appends them to into. Unlike
// Run it returns soon after the end of ctx, whatever the driver does, which may need
// seconds to notice that its network is gone: the statement is left behind then, on
// its session, which is closed when the driver returns. Its outcome is unknown, and
// whatever the statement was given stays with it (left is true).
func (p *Part) Items(ctx context.Context, st sqlbatch.Statement, into []sqlbatch.Item) (items []sqlbatch.Item, left bool, err error) {
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

// RollbackGrace is how long a transaction outlasts its context, so that it can be rolled
// back. go-mssqldb 1.11 gives the answer to a rollback whose context has ended to nobody,
// and the buffer into which that is read to another connection.
const RollbackGrace = time.Second

// Outlasting returns a context that ends d after ctx does, or by end, which is to be called.
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

// InTx runs f in one transaction on one session. f is to end with ctx. Only an error of
// the commit itself leaves the outcome unknown.
func (p *Part) InTx(ctx context.Context, f func(tx *sql.Tx) error) (err error) {
	res, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer p.release(res)
	defer res.Value().caught(&err)
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted} // statements that skip locked rows need it
	if p.pool.traits.OneWriter {
		opts = nil
	}
	res.Value().broken = true // until it is committed
	longer, end := Outlasting(ctx, RollbackGrace)
	defer end()
	tx, err := res.Value().conn.BeginTx(longer, opts)
	if err != nil {
		return &NotRunError{Err: err}
	}
	if err := cmp.Or(f(tx), ctx.Err()); err != nil {
		_ = tx.Rollback() // the connection is closed in any case
		return &NotRunError{Err: err}
	}
	switch err = tx.Commit(); {
	case err == nil:
		res.Value().broken = false
	case errors.Is(err, sql.ErrTxDone): // rolled back
		return &NotRunError{Err: err}
	}
	return err
}
