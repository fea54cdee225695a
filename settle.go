package chanq

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// settler groups settles into statements. Callers hand leases over with add,
// which blocks only while the backlog is full; storers (settle_store.go) take
// groups from it and store them.
//
// One storer is enough while all goes well, and then the others wait, so that
// groups grow with the time that a statement takes. A statement that takes longer
// than a moment does not hold up what comes after it: the next storer goes on, on
// another session, with a group of its own. What somebody has locked is kept apart
// from all groups, and tried again later (late).
//
// Each lease learns its own outcome. A statement returns the (id, fence) of
// every row it changed; what it does not return is looked at (look.go) before
// anybody hears that it is lost.
type settler struct {
	queue    *queue
	sessions *sessions
	health   *health
	timeout  time.Duration // of one try
	capacity int
	stored   func(SettledEvent) // after each group, besides the hook
	broken   func(error)        // a permanent error

	mu      sync.Mutex
	space   sync.Cond // backlog has room again, or closed
	backlog []*lease
	late    []lateSettle // found locked; to be tried again
	flying  []*flight    // groups that are being stored
	idle    int          // storers that wait for a group, and for no statement
	pace    pacer
	since   time.Time // when the oldest of backlog came
	added   uint64    // count of leases ever handed over; the next one's seq
	settled uint64    // count of leases finished
	urgent  uint64    // store at once up to this seq
	awaited uint64    // somebody waits for settles up to this seq
	waiters []flushWaiter
	closed  bool
	work    chan struct{} // what is due changed

	abandoned context.Context // ends when the backlog is given up
	abandon   context.CancelFunc
}

// flight is a group that is being stored.
type flight struct {
	group  []*lease
	oldest uint64 // seq
	began  time.Time
	late   bool // of what was locked
}

// lateSettle is a settle whose row was locked.
type lateSettle struct {
	lease *lease
	at    time.Time // not before
}

type flushWaiter struct {
	target uint64
	done   chan struct{}
}

func newSettler(q *queue, s *sessions, h *health, timeout, linger time.Duration, capacity int) *settler {
	st := &settler{
		queue: q, sessions: s, health: h, timeout: timeout, capacity: capacity,
		pace: pacer{full: q.dialect.Traits().AckItems, linger: linger},
		work: make(chan struct{}, 1),
	}
	st.space.L = &st.mu
	st.abandoned, st.abandon = context.WithCancel(context.Background())
	return st
}

// add takes over a lease in state settling. It fails with ErrClosed after close.
func (s *settler) add(l *lease) error {
	s.mu.Lock()
	for len(s.backlog) >= s.capacity && !s.closed {
		s.space.Wait()
	}
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.push(l)
	s.mu.Unlock()
	return nil
}

// addAll takes leases over without waiting for room: those of one consumer's
// buffer, which bounds them.
func (s *settler) addAll(leases []*lease) {
	s.mu.Lock()
	for _, l := range leases {
		s.push(l)
	}
	s.mu.Unlock()
}

func (s *settler) push(l *lease) {
	if len(s.backlog) == 0 {
		s.since = time.Now()
	}
	l.seq = s.added
	s.backlog = append(s.backlog, l)
	s.added++
	if l.deadlineAt()-monotonic() < 2*s.pace.linger { // nobody extends it any more
		s.urgent = max(s.urgent, s.added)
		notify(s.work)
	}
	if l.done.Load() != nil {
		s.awaited = max(s.awaited, s.added)
	}
	// Storers that wait for a statement look at the backlog by themselves.
	if n := len(s.backlog); s.idle > 0 && (n == 1 || n == s.pace.full || s.awaited > s.taken() && n >= s.pace.last/2) {
		notify(s.work)
	}
}

// taken is the seq up to which settles have left the backlog. mu is held.
func (s *settler) taken() uint64 { return s.added - uint64(len(s.backlog)) }

// hurry has nothing that was handed over before linger for long.
func (s *settler) hurry() {
	s.mu.Lock()
	s.awaited = max(s.awaited, s.added)
	s.mu.Unlock()
	notify(s.work)
}

// drain ends lingering for good: the consumer waits for every settle.
func (s *settler) drain() {
	s.mu.Lock()
	s.urgent = math.MaxUint64
	s.mu.Unlock()
	notify(s.work)
}

// awaitedLinger is how long a settle that somebody waits for may linger, where
// many come at once.
const awaitedLinger = 5 * time.Millisecond

// due reports whether a group of n is due, and otherwise how long to wait at
// most. mu is held.
func (s *settler) due(n int) (bool, time.Duration) {
	switch {
	case s.taken() < s.urgent:
		return true, 0
	case s.taken() < s.awaited:
		pace := s.pace
		pace.linger = min(pace.linger, awaitedLinger)
		return pace.due(n, s.since)
	}
	return s.pace.ripe(n, s.since)
}

// len is the count of settles that wait.
func (s *settler) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.backlog) + len(s.late)
}

// open is the count of settles without an outcome: those that wait, and those of
// the statements that are under way.
func (s *settler) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.added - s.settled)
}

// flush waits until every settle handed over before is finished.
func (s *settler) flush(ctx context.Context) error {
	s.mu.Lock()
	if s.settled == s.added {
		s.mu.Unlock()
		return nil
	}
	w := flushWaiter{target: s.added, done: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.urgent = max(s.urgent, s.added)
	s.mu.Unlock()
	notify(s.work)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close lets the storers return once everything is stored. Later adds fail.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.urgent = max(s.urgent, s.added)
	s.space.Broadcast()
	s.mu.Unlock()
	notify(s.work)
}

// wakeFlushers ends the waits of flush for what has an outcome. mu is held.
func (s *settler) wakeFlushers() {
	if len(s.waiters) == 0 {
		return
	}
	oldest := s.taken()
	for _, f := range s.flying {
		oldest = min(oldest, f.oldest)
	}
	for _, l := range s.late {
		oldest = min(oldest, l.lease.seq)
	}
	s.waiters = slices.DeleteFunc(s.waiters, func(w flushWaiter) bool {
		if w.target > oldest {
			return false
		}
		close(w.done)
		return true
	})
}
