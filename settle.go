package chanq

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// settler stores settles: leases in state settling are added to its writer, which groups them, repeats what failed and
// isolates settles that fail alone. The kind of an item is its settleOp, so each statement settles in one way.
//
// Its goroutines are those of run, each on a session of its own. One worker is enough while all goes well, and the other
// one waits, so that groups grow with the time that a statement takes.
//
// Each lease gets its own outcome. A statement returns the (id, fence) of every row it changed. The settler looks
// for the rows that it does not return (settle_look.go) before it calls a lease lost (settle_outcome.go).
type settler struct {
	owner     leaseOwner
	queue     *queue
	sessions  *sessions
	writer    *batch.Writer[*lease]
	crowd     int
	linger    time.Duration
	timeout   time.Duration   // of one statement
	abandoned context.Context // ends when the owner gives up what is not settled
	scratch   sync.Pool       // of *settleScratch
	isolated  *base.Isolated
}

const (
	// storers is how many groups of a settler may be under way at once: the first, and one
	// that goes on where the first is stuck.
	storers = 2
	// settleMoment is how long a statement may take before the next group is stored beside
	// it: longer than those of a healthy database.
	settleMoment = 250 * time.Millisecond
	// awaitedLinger is how long a settle that somebody waits for may linger, where many
	// come at once.
	awaitedLinger = 5 * time.Millisecond
)

// newSettler makes the settler of an owner: timeout is that of one statement, more than half of room that
// wait are a crowd, and room is how many may wait before add does.
func newSettler(owner leaseOwner, s *sessions, h *base.Availability, abandoned context.Context, timeout, linger time.Duration, room int) *settler {
	q := owner.home()
	traits := q.dialect.Traits()
	st := &settler{owner: owner, queue: q, sessions: s, crowd: room, linger: linger, timeout: timeout, abandoned: abandoned}
	st.isolated = q.isolated("consumer")
	st.scratch.New = func() any { return new(settleScratch) }
	workers := storers
	if traits.OneWriter {
		workers = 1 // one session has no use for more
	}
	st.writer = batch.New(batch.Config[*lease]{
		Full:   []int{settleAck: traits.AckItems, settleNack: traits.NackItems, settleSnooze: traits.NackItems, settleRelease: traits.AckItems, settleDead: traits.BuryItems},
		Linger: linger, AwaitedLinger: awaitedLinger, Capacity: room, Moment: settleMoment, Workers: workers,
		Loop:     batch.Loop{Health: h, Classify: q.classify, Unknown: session.Fell, Waited: session.Unconnected, Timeout: timeout},
		Observer: batch.Observer{Isolated: st.isolated.Set},
		Write:    st.write, Absent: st.absent, Done: st.done,
	})
	return st
}

// run stores settles until the writer is closed and each has an outcome, or abandoned ends.
func (s *settler) run() {
	s.writer.Run(s.abandoned)
	s.isolated.Close()
}

// add takes over a lease in state settling, once there is room. It returns ErrClosed
// after the writer was closed, or the cause of ctx's end.
func (s *settler) add(ctx context.Context, l *lease) error {
	l.Kind = uint8(l.op)
	err := s.writer.Add(ctx, l, s.urgency(l))
	if err == batch.ErrClosed {
		return ErrClosed
	}
	return err
}

// addAll takes leases over without waiting for room: those of one consumer's buffer, or
// pipe, which bounds them.
func (s *settler) addAll(leases ...*lease) {
	urgency := batch.Lazy
	for _, l := range leases {
		l.Kind = uint8(l.op)
		urgency = max(urgency, s.urgency(l))
	}
	if s.writer.AddAll(len(leases), func(i int) *lease { return leases[i] }, urgency) != nil {
		for _, l := range leases {
			l.finish(ErrClosed)
		}
	}
}

// crowded reports that so many settles wait that claims had better do so, too.
func (s *settler) crowded() bool { return s.writer.Stats().Waiting > s.crowd/2 }

// urgency is how soon a settle is to be stored.
func (s *settler) urgency(l *lease) batch.Urgency {
	switch {
	case l.deadlineAt()-base.Now() < 2*s.linger: // it is too late for an extension
		return batch.Now
	case l.done.Load() != nil, s.owner.awaits(l):
		return batch.Awaited
	}
	return batch.Lazy
}

// settleScratch has the slices of one statement, to be used again.
type settleScratch struct {
	items    []sqlbatch.Item
	nacks    []sqlbatch.NackItem
	buries   []sqlbatch.BuryItem
	releases []sqlbatch.ReleaseItem
	changed  []sqlbatch.Item
}

// write settles leases, all in one way, and returns those of which the database returned the (id, fence): they come first in leases
// then.
func (s *settler) write(ctx context.Context, leases []*lease, skipLocked bool) (written []*lease, err error) {
	defer s.gainTime(ctx, leases)()
	sql := s.queue.sql
	if skipLocked {
		sql = sql.SkipLocked()
	}
	slices.SortFunc(leases, func(a, b *lease) int { return compareItems(a.item, b.item) })
	x := s.scratch.Get().(*settleScratch)
	changed, left, err := s.sessions.Items(ctx, x.statement(s.queue, sql, leases[0].op, leases), x.changed[:0])
	if left {
		return nil, err // the driver still has the scratch
	}
	x.changed = changed
	defer s.scratch.Put(x)
	if err != nil {
		return nil, err
	}
	if !slices.IsSortedFunc(changed, compareItems) {
		slices.SortFunc(changed, compareItems)
	}
	n := 0
	for i, l := range leases {
		for len(changed) > 0 && compareItems(changed[0], l.item) < 0 {
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == l.item {
			leases[i], leases[n] = leases[n], l
			n++
		}
	}
	return leases[:n], nil
}

// gainTime makes a lease last for a statement that has more time than usual, and for as long after it: nothing can extend
// the lease of a row that a settle has locked. It fails silently, as the statement meets the same failure. end is to be called after the
// statement: of a pool with a limit one such statement at a time has a session.
func (s *settler) gainTime(ctx context.Context, leases []*lease) (end func()) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	if len(leases) > 1 || left <= s.timeout {
		return func() {}
	}
	end = s.sessions.Alone(ctx)
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, _ = s.owner.extend(within, leases[0], 2*left)
	return end
}

func (x *settleScratch) statement(q *queue, sql sqlbatch.Queue, op settleOp, leases []*lease) sqlbatch.Statement {
	switch op {
	case settleNack, settleSnooze:
		x.nacks = x.nacks[:0]
		for _, l := range leases {
			x.nacks = append(x.nacks, sqlbatch.NackItem{Item: l.item, Delivery: l.delivery, Delay: l.delay, Error: l.text})
		}
		if op == settleSnooze {
			return sql.Snooze(x.nacks)
		}
		return sql.Nack(x.nacks)
	case settleDead:
		x.buries = x.buries[:0]
		for _, l := range leases {
			x.buries = append(x.buries, sqlbatch.BuryItem{Item: l.item, Delivery: l.delivery, Error: l.text, Uncounted: l.uncounted})
		}
		return sql.Bury(x.buries)
	case settleRelease:
		x.releases = x.releases[:0]
		for _, l := range leases {
			x.releases = append(x.releases, sqlbatch.ReleaseItem{Item: l.item, Delivery: l.delivery})
		}
		return sql.Release(x.releases)
	default:
		x.items = x.items[:0]
		for _, l := range leases {
			x.items = append(x.items, l.item)
		}
		return q.ackStatement(sql, x.items)
	}
}

// ackStatement deletes, or archives with Config.Retain.
func (q *queue) ackStatement(sql sqlbatch.Queue, items []sqlbatch.Item) sqlbatch.Statement {
	if q.cfg.Retain > 0 {
		return sql.Archive(items)
	}
	return sql.Ack(items)
}
