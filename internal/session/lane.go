package session

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/sqlbatch"
)

// lane has the sessions of one kind of work. Puddle creates, keeps and destroys them. The
// lane decides how many there are, and which statement gets the next one.
type lane struct {
	pool  *Pool
	kind  Kind
	store *puddle.Pool[*session]

	// mu guards the fields below and every call of the store, except the creation of a
	// session. It is held briefly, never during a statement or an attempt to connect.
	mu       sync.Mutex
	reserved int       // see Kind.reserved
	most     int       // limit of open and closing together
	open     int       // sessions that are idle, in use, or being connected
	idle     int       // sessions in the store; 0 while a statement waits
	coming   int       // sessions that are being connected
	closing  int       // sessions that have ended and whose driver has not returned
	waiting  []*waiter // first come first served
	sweeper  *time.Timer
	armed    bool      // the sweeper is scheduled
	awaited  time.Time // one session stays until then: see expect
	closed   bool
	patient  turns         // of patient statements
	filling  chan struct{} // has a value while a call of fill runs
}

// waiter is a statement without a session.
type waiter struct {
	got chan grant // of capacity 1
}

type grant struct {
	res *puddle.Resource[*session]
	err error
}

const (
	// moment is how long a patient statement waits for another of its kind: longer
	// than statements take on a healthy database, and short compared with the pause
	// of an idle consumer before its next poll.
	moment = 500 * time.Millisecond
	// slowConnect is how long a statement waits for sessions that are being connected before
	// another attempt is made in parallel: the earlier ones might have begun during a
	// network failure, and never get an answer.
	slowConnect = 3 * time.Second
	// keep is how long a session is idle before it is closed.
	keep = 5 * time.Second
	// keepBriefly is the same for borrowed connections: those of notes, and those above the reserved
	// connections of a *sql.DB with a limit. The application might wait for one that long.
	keepBriefly = 100 * time.Millisecond
	// watch is the time between two sweeps while there are idle sessions.
	watch = time.Second
)

func newLane(p *Pool, k Kind) *lane {
	l := &lane{pool: p, kind: k, most: math.MaxInt32, filling: make(chan struct{}, 1)}
	if p.traits.OneWriter {
		l.reserved, l.most = 1, 1
	}
	store, err := puddle.NewPool(&puddle.Config[*session]{
		MaxSize:     math.MaxInt32,
		Constructor: l.connect,
		Destructor:  l.disconnect,
	})
	if err != nil {
		panic(err) // only for a MaxSize below 1
	}
	l.store = store
	l.sweeper = time.AfterFunc(time.Hour, func() { p.probe(); l.sweep() })
	l.sweeper.Stop()
	return l
}

// connect creates a session. It pings the connection first, unless it is borrowed or the database has one writer.
func (l *lane) connect(ctx context.Context) (*session, error) {
	lent := l.kind == Note || l.kind == call
	began := time.Now()
	conn, far, err := connectFar(ctx, l.pool.db, !lent && !l.pool.traits.OneWriter)
	l.pool.arrived(time.Since(began), far)
	if err != nil {
		return nil, err
	}
	return newSession(conn, l.pool.dialect), nil
}

// disconnect closes a session that was dropped, or was idle when the lane was closed.
func (l *lane) disconnect(s *session) {
	s.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing > 0 {
		l.closing--
	}
	l.grow() // a statement might wait for the place
}

// expect keeps one session open until the given time, if there is one.
func (l *lane) expect(until time.Time) {
	l.mu.Lock()
	if until.After(l.awaited) {
		l.awaited = until
	}
	l.mu.Unlock()
}

func (l *lane) setReserved(n int) {
	l.mu.Lock()
	l.reserved = n
	l.arm()
	l.mu.Unlock()
}

// acquire waits for a session: an idle one, one that is released, or a new one. It returns
// an error if a new one cannot be connected, or if ctx ends first.
func (l *lane) acquire(ctx context.Context) (*puddle.Resource[*session], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	if l.idle > 0 {
		defer l.mu.Unlock()
		return l.take()
	}
	w := &waiter{got: make(chan grant, 1)}
	l.waiting = append(l.waiting, w)
	l.grow()
	l.mu.Unlock()
	again, began := time.NewTicker(moment), time.Now()
	defer again.Stop()
	for {
		select {
		case g := <-w.got:
			return g.res, g.err
		case <-again.C: // there might be a connection to spare by now
			l.mu.Lock()
			l.grow()
			if time.Since(began) >= slowConnect {
				l.growUnless(2 * len(l.waiting))
			}
			l.mu.Unlock()
		case <-ctx.Done():
			l.leave(w)
			return nil, context.Cause(ctx)
		}
	}
}

// leave removes w from the waiting statements.
func (l *lane) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return
	}
	if g := <-w.got; g.res != nil { // granted in the meantime
		l.assign(g.res)
	}
}

// take returns the idle session that was used last. mu is held, and idle is above 0.
func (l *lane) take() (*puddle.Resource[*session], error) {
	l.idle--
	return l.store.Acquire(context.Background()) // returns immediately
}

// grow starts to connect one more session, unless as many are being connected as statements
// wait, or no more are allowed. mu is held.
func (l *lane) grow() { l.growUnless(len(l.waiting)) }

// growUnless is grow, unless n sessions are being connected. mu is held.
func (l *lane) growUnless(n int) {
	if l.coming >= n || l.open+l.closing >= l.most || l.open >= max(l.reserved, 1) &&
		!l.pool.spare(1+int(l.pool.coming.Load())) {
		return
	}
	l.start()
}

// start connects one more session. mu is held.
func (l *lane) start() {
	l.open++
	l.coming++
	l.pool.coming.Add(1)
	l.pool.dials.Go(func() {
		slow := time.AfterFunc(moment, l.pool.late)
		err := l.store.CreateResource(l.pool.life)
		slow.Stop()
		if err != nil && l.pool.dialect.Classify(err) != sqlbatch.Unknown { // the server has answered: it is no outage
			l.pool.late()
		}
		l.pool.coming.Add(-1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.coming--
		if err != nil {
			l.open--
			l.failWaiting(err)
		} else {
			l.idle++ // a sweep might have closed it already
			l.serve()
			l.grow()
			l.arm()
		}
	})
}

// serve grants idle sessions to waiting statements. mu is held.
func (l *lane) serve() {
	for l.idle > 0 && len(l.waiting) > 0 {
		res, err := l.take()
		l.waiting[0].got <- grant{res, err}
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
}

// failWaiting returns the error of an attempt to connect to the first waiting statement, if more
// wait than sessions are being connected, or to all if there is no session. mu is held.
func (l *lane) failWaiting(err error) {
	for len(l.waiting) > l.coming {
		l.waiting[0].got <- grant{nil, err}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		if l.open > 0 {
			return
		}
	}
}

// release returns a session to the lane. It must not be used afterwards.
func (l *lane) release(res *puddle.Resource[*session]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reserved, _, _ := l.retention()
	switch {
	case res.Value().broken, l.pool.scarce() && l.open > reserved, l.open > l.reserved && !l.pool.spare(0):
		// The application needs it.
		l.drop(res)
	default:
		l.assign(res)
	}
}

// assign grants a session to the first waiting statement, or keeps it idle. mu is held.
func (l *lane) assign(res *puddle.Resource[*session]) {
	if len(l.waiting) > 0 {
		l.waiting[0].got <- grant{res, nil}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		return
	}
	res.Release()
	l.idle++
	l.arm()
}

// drop closes a session. mu is held.
func (l *lane) drop(res *puddle.Resource[*session]) {
	l.open--
	l.closing++
	l.grow() // a statement might wait for this session
	res.Destroy()
}

// arm schedules the sweeper if there are idle sessions. mu is held.
func (l *lane) arm() {
	if l.armed || l.closed || l.idle == 0 || l.most == 1 {
		return
	}
	_, wait, _ := l.retention()
	l.armed = true
	l.sweeper.Reset(min(wait, watch))
}

// retention returns how many sessions stay, for how long the others may be idle, and whether
// their connections are closed then. Borrowed connections return to the *sql.DB, where the
// application might wait for one. Others are closed: the *sql.DB does not know their age.
func (l *lane) retention() (reserved int, long time.Duration, closes bool) {
	awaited := 0
	if time.Now().Before(l.awaited) {
		awaited = 1
	}
	switch {
	case l.pool.scarce() && l.pool.doubtful():
		return awaited, keepBriefly, false
	case l.pool.scarce():
		return 0, 0, false
	case l.pool.limit() > 0:
		return l.reserved, keepBriefly, false
	case l.kind == Note:
		return 0, keepBriefly, false
	}
	return awaited, keep, true
}

// sweep closes the sessions that were idle for too long.
func (l *lane) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	if l.closed {
		return
	}
	reserved, long, closes := l.retention()
	idle := l.store.AcquireAllIdle()
	l.idle -= len(idle)
	for _, res := range slices.Backward(idle) { // the longest idle first
		if l.open > reserved && res.IdleDuration() >= long {
			res.Value().broken = closes
			l.drop(res)
		} else {
			res.ReleaseUnused()
			l.idle++
		}
	}
	l.arm()
}

// fill connects the reserved sessions. It returns the error of the first attempt that fails.
func (l *lane) fill(ctx context.Context) error {
	select {
	case l.filling <- struct{}{}: // one call at a time: the next one finds all connected
		defer func() { <-l.filling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	n := l.reserved - l.open + l.idle
	l.mu.Unlock()
	for range n {
		res, err := l.acquire(ctx)
		if err != nil {
			return err
		}
		defer l.release(res)
	}
	return nil
}

// close waits until all sessions are released, and closes them.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.sweeper.Stop()
	l.mu.Unlock()
	l.store.Close()
}
