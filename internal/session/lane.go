package session

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// lane has the sessions of one kind of work: it decides how many there are, and which statement gets the next one.
type lane struct {
	pool *Pool
	kind Kind

	// mu guards what follows. It is held for moments, never over a statement or an attempt to connect.
	mu      sync.Mutex
	floor   int          // see Kind.floor
	most    int          // of open and closing together
	open    int          // sessions that are idle, in use, or being connected
	idle    []*session   // that no statement has, the one that was used last at the end; none while a statement waits
	coming  int          // those being connected
	closing int          // sessions that have ended and whose driver has not returned
	waiting []chan grant // of statements without a session, first come first served; each of capacity 1
	sweeper *time.Timer
	armed   bool      // the sweeper is on its way
	awaited time.Time // until then one session stays: a statement was announced
	closed  bool
	line    chan struct{} // of capacity 1: has a value while a statement in no hurry is under way
	filling chan struct{} // likewise while somebody fills the lane
}

// grant is what a statement gets that has waited for a session.
type grant struct {
	session *session
	err     error
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
	// keepBriefly is the same for what is lent: above the floor of a *sql.DB with a limit,
	// where the application may wait for it so long, and for notes.
	keepBriefly = 100 * time.Millisecond
)

func newLane(p *Pool, k Kind) *lane {
	l := &lane{pool: p, kind: k, most: math.MaxInt32, line: make(chan struct{}, 1), filling: make(chan struct{}, 1)}
	if p.traits.OneWriter {
		l.floor, l.most = 1, 1
	}
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

// expect keeps one session until then, if there is one.
func (l *lane) expect(until time.Time) {
	l.mu.Lock()
	if until.After(l.awaited) {
		l.awaited = until
	}
	l.mu.Unlock()
}

func (l *lane) setFloor(n int) {
	l.mu.Lock()
	l.floor = n
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
func (l *lane) acquire(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	l.mu.Lock()
	if last := len(l.idle) - 1; last >= 0 {
		defer l.mu.Unlock()
		s := l.idle[last]
		l.idle = l.idle[:last]
		return s, nil
	}
	got := make(chan grant, 1)
	l.waiting = append(l.waiting, got)
	l.more()
	l.mu.Unlock()
	again, began := time.NewTicker(moment), time.Now()
	defer again.Stop()
	for {
		select {
		case g := <-got:
			return g.session, g.err
		case <-again.C: // there may be a connection to spare by now
			l.mu.Lock()
			l.more()
			if time.Since(began) >= doubt {
				l.moreThan(2 * len(l.waiting))
			}
			l.mu.Unlock()
		case <-ctx.Done():
			l.leave(got)
			return nil, context.Cause(ctx)
		}
	}
}

// leave ends the wait of a statement.
func (l *lane) leave(got chan grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, got); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return
	}
	if g := <-got; g.session != nil { // it came meanwhile
		l.hand(g.session)
	}
}

// more has one more session connected, unless as many are coming as are waited for, or
// there may be no more. mu is held.
func (l *lane) more() { l.moreThan(len(l.waiting)) }

// moreThan is more, unless n are coming. mu is held.
func (l *lane) moreThan(n int) {
	if l.coming >= n || l.open+l.closing >= l.most || l.open >= max(l.floor, 1) && !l.pool.spare(1+int(l.pool.coming.Load())) {
		return
	}
	l.start(nil)
}

// start has one more session connected. done gets the error, unless it is nil. mu is held.
func (l *lane) start(done chan<- error) {
	l.open++
	l.coming++
	l.pool.coming.Add(1)
	l.pool.work.Go(func() {
		s, err := l.connect(l.pool.life)
		l.pool.coming.Add(-1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.coming--
		if err != nil {
			l.open--
			l.refuse(err)
		} else {
			l.hand(s)
		}
		if done != nil {
			done <- err
		}
	})
}

// refuse gives the error of an attempt to connect to the first statement that waits, if more wait than sessions are coming, or to
// all of them if there is no session. mu is held.
func (l *lane) refuse(err error) {
	for len(l.waiting) > l.coming {
		l.serve(grant{err: err})
		if l.open > 0 {
			return
		}
	}
}

// serve ends the wait of the first statement. mu is held.
func (l *lane) serve(g grant) {
	l.waiting[0] <- g
	l.waiting = slices.Delete(l.waiting, 0, 1)
}

// release takes a session back. Use it no more.
func (l *lane) release(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.used = time.Now()
	switch {
	case s.broken, l.open > l.floor && !l.pool.spare(0): // the application needs it
		l.drop(s)
	default:
		l.hand(s)
	}
}

// hand gives a session to the first statement that waits, or keeps it. mu is held.
func (l *lane) hand(s *session) {
	switch {
	case len(l.waiting) > 0:
		l.serve(grant{session: s})
	case l.closed:
		l.drop(s)
	default:
		l.idle = append(l.idle, s)
		l.arm()
	}
}

// drop ends a session. mu is held.
func (l *lane) drop(s *session) {
	l.open--
	l.closing++
	l.more() // a statement may have waited for this one
	l.pool.work.Go(func() {
		s.close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closing--
		l.more() // a statement may wait for the place
	})
}

// arm has the sweeper look at idle sessions, unless they are to stay. mu is held.
func (l *lane) arm() {
	if l.armed || l.closed || len(l.idle) == 0 || l.most == 1 {
		return
	}
	floor, wait, _ := l.manners()
	if l.open <= floor {
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
func (l *lane) manners() (floor int, long time.Duration, closes bool) {
	switch {
	case l.pool.limit() > 0:
		return l.floor, keepBriefly, false
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
	floor, long, closes := l.manners()
	l.idle = slices.DeleteFunc(l.idle, func(s *session) bool { // the one that is idle for longest first
		ends := l.open > floor && time.Since(s.used) >= long
		if ends {
			s.broken = closes
			l.drop(s)
		}
		return ends
	})
	l.arm()
}

// fill connects the floor. Its error is that of the first attempt that failed.
func (l *lane) fill(ctx context.Context) error {
	select {
	case l.filling <- struct{}{}: // by one at a time: the next one finds all of it connected
		defer func() { <-l.filling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	n := max(0, l.floor-l.open)
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

// close ends the idle sessions, and has those end that are still being connected.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.sweeper.Stop()
	for _, s := range l.idle {
		l.drop(s)
	}
	l.idle = nil
}
