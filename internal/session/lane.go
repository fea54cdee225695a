package session

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/puddle/v2"
)

// lane has the sessions of one kind of work. Puddle makes, keeps and ends them; the lane
// decides how many there are, and who gets the next one.
type lane struct {
	pool  *Pool
	kind  Kind
	store *puddle.Pool[*session]

	// mu guards what follows, and every call of the store but the making of a session.
	// It is held for moments, never over a statement or an attempt to connect.
	mu       sync.Mutex
	reserved int       // see Kind.reserved
	most     int       // of open and closing together
	open     int       // sessions that are idle, in use, or being connected
	idle     int       // those in the store that nobody has; none while a statement waits
	coming   int       // those being connected
	closing  int       // sessions that have ended and whose driver has not returned
	waiting  []*waiter // first come first served
	sweeper  *time.Timer
	armed    bool      // the sweeper is on its way
	awaited  time.Time // until then one session stays: a statement was announced
	closed   bool
	line     chan struct{} // of capacity 1: has a value while a statement in no hurry is under way
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
	// moment is how long a statement in no hurry waits for others of its kind: longer
	// than statements of a healthy database take, and little beside what a consumer
	// may wait for its next look.
	moment = 500 * time.Millisecond
	// doubt is how long a statement waits for those that are being connected before
	// another attempt is made beside them: they may have begun while the network was
	// away, and hear no answer any more.
	doubt = 3 * time.Second
	// keep is how long a session is idle before it is closed.
	keep = 5 * time.Second
	// keepBriefly is the same for what is lent: beyond the reserved connections of a *sql.DB with a limit,
	// where the application may wait for it so long, and for notes.
	keepBriefly = 100 * time.Millisecond
)

func newLane(p *Pool, k Kind) *lane {
	l := &lane{pool: p, kind: k, most: math.MaxInt32, line: make(chan struct{}, 1), filling: make(chan struct{}, 1)}
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
	l.sweeper = time.AfterFunc(time.Hour, l.sweep)
	l.sweeper.Stop()
	return l
}

// connect makes a session. One that is to stay has to answer.
func (l *lane) connect(ctx context.Context) (*session, error) {
	lent := l.kind == Note || l.kind == call
	conn, err := connect(ctx, l.pool.db, !lent && !l.pool.traits.OneWriter)
	if err != nil {
		return nil, err
	}
	return newSession(conn, l.pool.dialect), nil
}

// disconnect ends a session that was dropped, or was idle when the lane was closed.
func (l *lane) disconnect(s *session) {
	s.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing > 0 {
		l.closing--
	}
	l.more() // somebody may wait for the place
}

// expect keeps one session until then, if there is one.
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

// turn waits until no other statement in no hurry is under way, which done ends, or until
// those have taken longer than a moment. Whoever waited for that long opens a line of its
// own for all that come later, and leaves the old one to what hangs.
func (l *lane) turn(ctx context.Context) (done func(), err error) {
	timer := time.NewTimer(moment)
	defer timer.Stop()
	for {
		l.mu.Lock()
		line := l.line
		l.mu.Unlock()
		select {
		case line <- struct{}{}:
			return func() { <-line }, nil
		case <-timer.C:
			l.mu.Lock()
			if l.line == line {
				l.line = make(chan struct{}, 1)
			}
			l.mu.Unlock()
			timer.Reset(moment)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// acquire waits for a session: one that is idle or comes back, or a new one. It returns
// an error if that cannot be connected, or ctx ends before.
func (l *lane) acquire(ctx context.Context) (*puddle.Resource[*session], error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	l.mu.Lock()
	if l.idle > 0 {
		defer l.mu.Unlock()
		return l.take()
	}
	w := &waiter{got: make(chan grant, 1)}
	l.waiting = append(l.waiting, w)
	l.more()
	l.mu.Unlock()
	again, began := time.NewTicker(moment), time.Now()
	defer again.Stop()
	for {
		select {
		case g := <-w.got:
			return g.res, g.err
		case <-again.C: // there may be a connection to spare by now
			l.mu.Lock()
			l.more()
			if time.Since(began) >= doubt {
				l.moreThan(2 * len(l.waiting))
			}
			l.mu.Unlock()
		case <-ctx.Done():
			l.leave(w)
			return nil, context.Cause(ctx)
		}
	}
}

// leave ends the wait of w.
func (l *lane) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return
	}
	if g := <-w.got; g.res != nil { // it came meanwhile
		l.hand(g.res)
	}
}

// take takes the idle session that was used last. mu is held, and idle above 0.
func (l *lane) take() (*puddle.Resource[*session], error) {
	l.idle--
	return l.store.Acquire(context.Background()) // at once
}

// more has one more session connected, unless as many are coming as are waited for, or
// there may be no more. mu is held.
func (l *lane) more() { l.moreThan(len(l.waiting)) }

// moreThan is more, unless n are coming. mu is held.
func (l *lane) moreThan(n int) {
	if l.coming >= n || l.open+l.closing >= l.most || l.open >= max(l.reserved, 1) && !l.pool.spare(1+int(l.pool.coming.Load())) {
		return
	}
	l.start(nil)
}

// start has one more session connected, and tells done, unless it is nil. mu is held.
func (l *lane) start(done chan<- error) {
	l.open++
	l.coming++
	l.pool.coming.Add(1)
	l.pool.dials.Go(func() {
		err := l.store.CreateResource(l.pool.life)
		l.pool.coming.Add(-1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.coming--
		if err != nil {
			l.open--
			l.tell(err)
		} else {
			l.idle++
			l.serve()
			l.arm()
		}
		if done != nil {
			done <- err
		}
	})
}

// serve gives idle sessions to those who wait. mu is held.
func (l *lane) serve() {
	for l.idle > 0 && len(l.waiting) > 0 {
		res, err := l.take()
		l.waiting[0].got <- grant{res, err}
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
}

// tell tells the first of those who wait that an attempt to connect has failed, if more
// wait than sessions are coming; and all of them, if there is no session. mu is held.
func (l *lane) tell(err error) {
	for len(l.waiting) > l.coming {
		l.waiting[0].got <- grant{nil, err}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		if l.open > 0 {
			return
		}
	}
}

// release takes a session back. Use it no more.
func (l *lane) release(res *puddle.Resource[*session]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case res.Value().broken, l.open > l.reserved && !l.pool.spare(0): // the application needs it
		l.drop(res)
	default:
		l.hand(res)
	}
}

// hand gives a session to the first of those who wait, or keeps it. mu is held.
func (l *lane) hand(res *puddle.Resource[*session]) {
	if len(l.waiting) > 0 {
		l.waiting[0].got <- grant{res, nil}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		return
	}
	res.Release()
	l.idle++
	l.arm()
}

// drop ends a session. mu is held.
func (l *lane) drop(res *puddle.Resource[*session]) {
	l.open--
	l.closing++
	l.more() // somebody may have waited for this one
	res.Destroy()
}

// arm has the sweeper look at idle sessions, unless they are to stay. mu is held.
func (l *lane) arm() {
	if l.armed || l.closed || l.idle == 0 || l.most == 1 {
		return
	}
	reserved, wait, _ := l.manners()
	if l.open <= reserved {
		if l.pool.limit() > 0 {
			return // they stay for good
		}
		wait = time.Until(l.awaited)
	}
	l.armed = true
	l.sweeper.Reset(wait)
}

// manners say how many sessions stay, for how long the others may be idle, and whether
// their connections are closed then. What is lent goes back to the *sql.DB, where somebody
// may wait for it; of others that would forget how old they are.
func (l *lane) manners() (reserved int, long time.Duration, closes bool) {
	switch {
	case l.pool.limit() > 0:
		return l.reserved, keepBriefly, false
	case l.kind == Note:
		return 0, keepBriefly, false
	}
	if time.Now().Before(l.awaited) {
		return 1, keep, true
	}
	return 0, keep, true
}

// sweep ends the sessions that were idle for long.
func (l *lane) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	if l.closed {
		return
	}
	reserved, long, closes := l.manners()
	var idle []*puddle.Resource[*session]
	for l.idle > 0 {
		if res, err := l.take(); err == nil {
			idle = append(idle, res)
		}
	}
	for _, res := range slices.Backward(idle) { // the one that is idle for longest first
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

// fill connects what is reserved. Its error is that of the first attempt that failed.
func (l *lane) fill(ctx context.Context) error {
	select {
	case l.filling <- struct{}{}: // by one at a time: the next one finds all of it connected
		defer func() { <-l.filling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	n := max(0, l.reserved-l.open)
	done := make(chan error, n)
	for range n {
		l.start(done)
	}
	l.mu.Unlock()
	for range n {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// close ends the sessions, once all are back.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.sweeper.Stop()
	l.mu.Unlock()
	l.store.Close()
}
