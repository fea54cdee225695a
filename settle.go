package chanq

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// settler groups settles into statements. Callers hand leases over with add,
// which blocks only while the backlog is full; one goroutine (run) stores them,
// repeating what failed until it is known, in the order of handing over.
//
// Each lease learns its own outcome. A statement returns the (id, fence) of
// every row it changed; what it does not return was lost, unless an earlier try
// had an unknown outcome: then the row itself is looked at.
type settler struct {
	queue    *queue
	sessions *sessions
	health   *health
	timeout  time.Duration
	capacity int
	stored   func(SettledEvent) // after each group, besides the hook
	broken   func(error)        // a permanent error

	mu      sync.Mutex
	space   sync.Cond // backlog has room again, or closed
	backlog []*lease
	pace    pacer
	since   time.Time // when the oldest of backlog came
	added   uint64    // count of leases ever handed over
	settled uint64    // count of leases finished
	urgent  uint64    // store at once up to this count
	awaited uint64    // somebody waits for settles up to this count
	waiters []flushWaiter
	closed  bool
	work    chan struct{} // what is due changed

	abandoned context.Context // ends when the backlog is given up
	abandon   context.CancelFunc
	scratch   settleScratch // of run
}

type flushWaiter struct {
	target uint64
	done   chan struct{}
}

type settleScratch struct {
	items    []sqlbatch.Item
	nacks    []sqlbatch.NackItem
	releases []sqlbatch.ReleaseItem
	buries   []sqlbatch.BuryItem
	changed  []sqlbatch.Item
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
	s.backlog = append(s.backlog, l)
	s.added++
	if l.deadlineAt()-monotonic() < 2*s.pace.linger {
		s.urgent = max(s.urgent, s.added) // nobody extends a lease that is being settled
		notify(s.work)
	}
	if l.done.Load() != nil {
		s.awaited = max(s.awaited, s.added)
	}
	if n := len(s.backlog); n == 1 || n == s.pace.full || s.awaited > s.settled && n >= s.pace.last/2 {
		notify(s.work)
	}
}

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
// most. mu is held, and no statement is under way.
func (s *settler) due(n int) (bool, time.Duration) {
	switch {
	case s.settled < s.urgent:
		return true, 0
	case s.settled < s.awaited:
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
	return len(s.backlog)
}

// open is the count of settles without an outcome: those that wait, and those of
// the statement that is under way.
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

// close lets run return once the backlog is stored. Later adds fail.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.urgent = max(s.urgent, s.added)
	s.space.Broadcast()
	s.mu.Unlock()
	notify(s.work)
}

// run stores groups until close and the end of the backlog, or abandon.
func (s *settler) run() {
	var group []*lease
	for {
		var open bool
		if group, open = s.next(group[:0]); !open {
			return
		}
		s.store(group)
		s.mu.Lock()
		s.settled += uint64(len(group))
		s.waiters = slices.DeleteFunc(s.waiters, func(w flushWaiter) bool {
			if w.target > s.settled {
				return false
			}
			close(w.done)
			return true
		})
		s.mu.Unlock()
		clear(group)
	}
}

// next waits for a group that is due. open is false at the end.
func (s *settler) next(group []*lease) (_ []*lease, open bool) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		n := len(s.backlog)
		wait := time.Hour
		if n > 0 {
			due, left := s.due(n)
			if due {
				n = min(n, s.pace.full)
				group = append(group, s.backlog[:n]...)
				rest := copy(s.backlog, s.backlog[n:])
				clear(s.backlog[rest:])
				s.backlog = s.backlog[:rest]
				s.since = time.Now()
				s.pace.last = n
				s.space.Broadcast()
				s.mu.Unlock()
				return group, true
			}
			wait = left
		} else if s.closed {
			s.mu.Unlock()
			return nil, false
		}
		s.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-s.work:
		case <-timer.C:
		}
	}
}

// store settles a group: one statement for each kind of settle in it, acks
// first.
func (s *settler) store(group []*lease) {
	start := time.Now()
	slices.SortStableFunc(group, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(a.op, b.op), bytes.Compare(a.item.ID[:], b.item.ID[:]), cmp.Compare(a.item.Fence, b.item.Fence))
	})
	event := SettledEvent{Queue: s.queue.name}
	traits := s.queue.dialect.Traits()
	for len(group) > 0 {
		op := group[0].op
		limit := [...]int{traits.AckItems, traits.NackItems, traits.ReleaseItems, traits.BuryItems}[op]
		n := 1
		for n < len(group) && n < limit && group[n].op == op {
			n++
		}
		counts := [...]*int{&event.Acked, &event.Nacked, &event.Released, &event.Dead}
		s.storeSame(op, group[:n], false, counts[op], &event.Lost)
		group = group[n:]
	}
	event.Took = time.Since(start)
	call(s.queue.cfg.Hooks.Settled, event)
	s.stored(event)
}

// storeSame settles leases of one kind in one statement, repeated until its
// outcome is known or the backlog is abandoned. unknown says that an earlier try
// may have been applied.
func (s *settler) storeSame(op settleOp, leases []*lease, unknown bool, done, lost *int) {
	st := s.statement(op, leases)
	pause := retries()
	for {
		s.scratch.changed = s.scratch.changed[:0]
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.abandoned, s.timeout)
		err := s.sessions.run(ctx, st, collectItems(&s.scratch.changed))
		cancel()
		if err == nil {
			s.health.worked(began)
			break
		}
		class := classify(s.queue.dialect, err)
		unknown = unknown || class == sqlbatch.Unknown
		refused := class == sqlbatch.BadRow || class == sqlbatch.Duplicate
		switch {
		case refused && len(leases) > 1 && s.abandoned.Err() == nil:
			// One row must not sink its neighbours.
			half := len(leases) / 2
			s.storeSame(op, leases[:half], unknown, done, lost)
			s.storeSame(op, leases[half:], unknown, done, lost)
			return
		case refused, class == sqlbatch.NoSchema, class == sqlbatch.Permanent, s.abandoned.Err() != nil:
			s.finishFailed(op, leases, unknown, err, class)
			return
		}
		if pause.outage(class, began) {
			s.health.failed(began, err)
		}
		sleep(s.abandoned, pause.after(class))
	}
	missing := s.finishChanged(op, leases, done)
	if len(missing) == 0 {
		return
	}
	if unknown {
		missing = s.finishUnknown(op, missing, done)
	}
	for _, l := range missing {
		if l.inTx && s.isGone(l) {
			l.finish(ErrSettled) // by the caller's commit
			continue
		}
		*lost++
		l.finish(ErrLeaseLost)
		call(s.queue.cfg.Hooks.LeaseLost, LeaseLostEvent{Queue: s.queue.name, ID: l.item.ID, Attempt: l.attempt, Confirmed: true})
	}
}

func (s *settler) statement(op settleOp, leases []*lease) sqlbatch.Statement {
	x := &s.scratch
	switch op {
	case settleNack:
		x.nacks = x.nacks[:0]
		for _, l := range leases {
			x.nacks = append(x.nacks, sqlbatch.NackItem{Item: l.item, Delay: l.delay, Error: l.text})
		}
		return s.queue.sql.Nack(x.nacks)
	case settleRelease:
		x.releases = x.releases[:0]
		for _, l := range leases {
			x.releases = append(x.releases, sqlbatch.ReleaseItem{Item: l.item, Due: l.due})
		}
		return s.queue.sql.Release(x.releases)
	case settleDead:
		x.buries = x.buries[:0]
		for _, l := range leases {
			x.buries = append(x.buries, sqlbatch.BuryItem{Item: l.item, Error: l.text, Uncounted: l.uncounted})
		}
		return s.queue.sql.Bury(x.buries)
	default:
		x.items = x.items[:0]
		for _, l := range leases {
			x.items = append(x.items, l.item)
		}
		return s.queue.ackStatement(s.queue.sql, x.items)
	}
}

// ackStatement deletes, or archives with Config.Retain.
func (q *queue) ackStatement(sql sqlbatch.Queue, items []sqlbatch.Item) sqlbatch.Statement {
	if q.cfg.Retain > 0 {
		return sql.Archive(items)
	}
	return sql.Ack(items)
}

// finishChanged finishes the leases whose (id, fence) the statement returned
// and returns the others. leases are sorted.
func (s *settler) finishChanged(op settleOp, leases []*lease, done *int) (missing []*lease) {
	changed := s.scratch.changed
	if !slices.IsSortedFunc(changed, compareItems) {
		slices.SortFunc(changed, compareItems)
	}
	for _, l := range leases {
		for len(changed) > 0 && compareItems(changed[0], l.item) < 0 {
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == l.item {
			*done++
			s.finishDone(op, l)
		} else {
			missing = append(missing, l)
		}
	}
	return missing
}

func (s *settler) finishDone(op settleOp, l *lease) {
	if op == settleDead {
		call(s.queue.cfg.Hooks.Dead, DeadEvent{Queue: s.queue.name, ID: l.item.ID, Attempt: l.attempt, Reason: l.reason()})
	}
	l.finish(nil)
}

func (s *settler) finishFailed(op settleOp, leases []*lease, unknown bool, err error, class sqlbatch.Class) {
	for _, l := range leases {
		l.finish(&OpError{Op: op.String(), Queue: s.queue.name, ID: l.item.ID, Unknown: unknown, Err: err})
	}
	switch {
	case s.abandoned.Err() != nil:
	case class == sqlbatch.NoSchema, class == sqlbatch.Permanent:
		s.broken(s.queue.fail(op.String(), err))
	default: // the database refuses what these rows would become: their leases run out
		for _, l := range leases {
			call(s.queue.cfg.Hooks.LeaseLost, LeaseLostEvent{Queue: s.queue.name, ID: l.item.ID, Attempt: l.attempt})
		}
	}
}

// finishUnknown decides about leases that a repeated statement did not change,
// after a try whose outcome was unknown, by looking at their rows. It returns
// those that were lost.
func (s *settler) finishUnknown(op settleOp, leases []*lease, done *int) (lost []*lease) {
	ids := make([][16]byte, len(leases))
	for i, l := range leases {
		ids[i] = l.item.ID
	}
	rows, err := s.queue.find(s.abandoned, s.sessions, s.timeout, ids)
	for _, l := range leases {
		row, live := rows[l.item.ID]
		// While the lease runs no one else can claim the message: that it moved on
		// was our doing (or an operator's, who cancelled it). Later it may have been
		// another holder's.
		ours := monotonic() < l.deadlineAt()
		switch {
		case err != nil:
			l.finish(&OpError{Op: op.String(), Queue: s.queue.name, ID: l.item.ID, Unknown: true, Err: err})
		case (op == settleAck || op == settleDead) && !live && ours:
			*done++
			s.finishDone(op, l)
		case (op == settleNack || op == settleRelease) && live && row.fence > l.item.Fence && ours:
			*done++
			s.finishDone(op, l)
		case op == settleAck && live && row.fence > l.item.Fence:
			lost = append(lost, l)
		default:
			l.finish(&OpError{Op: op.String(), Queue: s.queue.name, ID: l.item.ID, Unknown: true,
				Err: errOutcomeHidden})
		}
	}
	return lost
}

// isGone looks whether a message has left the queue.
func (s *settler) isGone(l *lease) bool {
	rows, err := s.queue.find(s.abandoned, s.sessions, s.timeout, [][16]byte{l.item.ID})
	_, live := rows[l.item.ID]
	return err == nil && !live
}

func (op settleOp) String() string {
	return [...]string{"ack", "nack", "release", "dead-letter"}[op]
}

func compareItems(a, b sqlbatch.Item) int {
	return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Fence, b.Fence))
}

// collectItems scans the id, fence of settle statements.
func collectItems(items *[]sqlbatch.Item) func(*sql.Rows) error {
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

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
