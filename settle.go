package chanq

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/group"
	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// settler stores settles: leases in state settling are handed over by add, leave the
// backlog in groups, and each group becomes a statement for each kind of settle in it.
//
// Its goroutines, the owner's: storers() of them are in run, each on a session of its
// own. One is enough while all goes well, and then the other waits, so that groups grow
// with the time that a statement takes. A statement that takes longer than a moment does
// not hold up what comes after it: the other storer goes on with the next group. What
// somebody has locked is kept out of all groups, and tried again later. What takes longer
// than a try may goes apart, to the storer in runApart (settle_apart.go), of consumers only.
//
// Each lease learns its own outcome. A statement returns the (id, fence) of every row
// it changed; what it does not return is looked at (settle_look.go) before anybody hears that
// it is lost (settle_outcome.go).
type settler struct {
	owner     leaseOwner
	queue     *queue
	sessions  *sessions
	backlog   *group.Backlog[*lease]
	crowd     int
	aside     *group.Worker[*lease] // of runApart; nil: nothing goes apart
	linger    time.Duration
	timeout   time.Duration   // of one try
	loop      retry.Loop      // to be copied for each statement
	abandoned context.Context // ends when the owner gives up what is in the backlog
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
	// lockPause is the pause before a settle whose row was locked is tried again, which
	// doubles up to lockPauses times: to a second or so.
	lockPause  = 20 * time.Millisecond
	lockPauses = 6
)

// newSettler makes the settler of an owner: timeout is that of one try, more than half of crowd that
// wait are a crowd, and room is how many may wait before add does; 0 is no bound.
func newSettler(owner leaseOwner, s *sessions, h *health, abandoned context.Context, timeout, linger time.Duration, crowd, room int) *settler {
	q := owner.home()
	return &settler{
		owner: owner, queue: q, sessions: s, crowd: crowd, linger: linger, timeout: timeout, abandoned: abandoned,
		loop: retry.Loop{Health: h, Classify: q.classify},
		backlog: group.New(group.Config[*lease]{
			Full: q.dialect.Traits().AckItems, Linger: linger, AwaitedLinger: awaitedLinger,
			Capacity: room, Moment: settleMoment, Abandoned: abandoned,
		}),
	}
}

// storers is how many goroutines are to call run. One session has no use for more.
func (s *settler) storers() int {
	if s.queue.dialect.Traits().OneWriter {
		return 1
	}
	return storers
}

// add takes over a lease in state settling, once there is room. It fails with ErrClosed
// after the backlog was closed.
func (s *settler) add(l *lease) error {
	if !s.backlog.Add(l, s.haste(l)) {
		return ErrClosed
	}
	return nil
}

// addAll takes leases over without waiting for room: those of one consumer's buffer, or
// pipe, which bounds them.
func (s *settler) addAll(leases ...*lease) {
	haste := group.Unhurried
	for _, l := range leases {
		haste = max(haste, s.haste(l))
	}
	if !s.backlog.AddAll(len(leases), func(i int) *lease { return leases[i] }, haste) {
		for _, l := range leases {
			l.finish(ErrClosed)
		}
	}
}

// crowded reports that so many settles wait that claims had better do so, too.
func (s *settler) crowded() bool { return s.backlog.Waiting() > s.crowd/2 }

// haste is how soon a settle is to be stored.
func (s *settler) haste(l *lease) group.Haste {
	switch {
	case l.deadlineAt()-monotonic() < 2*s.linger: // it is too late for an extension
		return group.Urgent
	case l.done.Load() != nil, s.owner.awaits(l):
		return group.Awaited
	}
	return group.Unhurried
}

// storer stores groups of settles, one after another.
type storer struct {
	*settler
	groups  *group.Worker[*lease]
	apart   bool // what it stores is
	scratch settleScratch
}

type settleScratch struct {
	items   []sqlbatch.Item
	nacks   []sqlbatch.NackItem
	buries  []sqlbatch.BuryItem
	changed []sqlbatch.Item
}

// run stores groups until the backlog is closed and each settle has an outcome.
func (s *settler) run() { (&storer{settler: s, groups: s.backlog.Worker()}).run() }

func (w *storer) run() {
	for {
		leases, open := w.groups.Next()
		if !open {
			return
		}
		w.store(leases)
		w.groups.Done()
	}
}

// settleTally is what became of a group.
type settleTally struct {
	event SettledEvent
	kept  int // for later: they are locked, or apart
}

// count counts a settle that is in the database.
func (t *settleTally) count(op settleOp) {
	*[...]*int{&t.event.Acked, &t.event.Nacked, &t.event.Released, &t.event.Released, &t.event.Dead}[op]++
}

// settlePiece is a part of a group: settles of one kind that one statement takes.
type settlePiece struct {
	op      settleOp
	leases  []*lease
	skip    bool // leave out what is locked
	failed  int  // tries that may have failed by one of the rows
	loop    retry.Loop
	timeout time.Duration // of one try
	at      time.Time     // not before
}

// store settles a group: one statement for each kind of settle in it, acks first,
// and repetitions until the outcome of each is known or the backlog is abandoned. What
// is locked goes to the late ones, and what takes long goes apart.
func (w *storer) store(leases []*lease) {
	if w.apart {
		defer w.sessions.Alone(w.abandoned)()
		w.gainTime(leases[0])
	}
	start := time.Now()
	tally := settleTally{event: SettledEvent{Queue: w.queue.name, Shard: w.queue.shard}}
	places := placesOf(leases)
	for pieces := w.pieces(leases, start); len(pieces) > 0; {
		// Pieces that failed have to wait behind the others.
		p := slices.MinFunc(pieces, func(a, b *settlePiece) int { return a.at.Compare(b.at) })
		pieces = slices.DeleteFunc(pieces, func(o *settlePiece) bool { return o == p })
		if wait := time.Until(p.at); wait > 0 {
			retry.Sleep(w.abandoned, wait)
		}
		pieces = append(pieces, w.try(p, &tally)...)
	}
	if tally.kept < len(leases) {
		tally.event.Took = time.Since(start)
		w.queue.recorder.settled(tally.event)
		call(w.queue.cfg.Hooks.Settled, tally.event)
		if tally.event.Released > 0 {
			w.queue.gaveBack(places)
		}
		w.owner.settled(tally.event)
	}
}

// pieces sorts a group, and cuts it by kind of settle and by what a statement takes.
func (w *storer) pieces(leases []*lease, at time.Time) (pieces []*settlePiece) {
	slices.SortFunc(leases, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(a.op, b.op), compareItems(a.item, b.item))
	})
	traits := w.queue.dialect.Traits()
	for rest := leases; len(rest) > 0; {
		op := rest[0].op
		limit := [...]int{traits.AckItems, traits.NackItems, traits.NackItems, traits.AckItems, traits.BuryItems}[op]
		n := 1
		for n < len(rest) && n < limit && rest[n].op == op {
			n++
		}
		pieces = append(pieces, &settlePiece{op: op, leases: rest[:n], skip: rest[0].locked > 0, loop: w.loop, timeout: w.timeOf(rest[0]), at: at})
		rest = rest[n:]
	}
	return pieces
}

// try runs the statement of a piece once, and returns what must be tried again.
func (w *storer) try(p *settlePiece, tally *settleTally) (again []*settlePiece) {
	f := p.loop.Try(w.abandoned, func(ctx context.Context) error { return w.runPiece(ctx, p, tally) })
	if f == nil {
		return nil
	}
	if f.Class == sqlbatch.Unknown || session.Fell(f.Err) {
		for _, l := range p.leases {
			l.unknown = true
		}
	}
	refused := f.Class == sqlbatch.BadRow || f.Class == sqlbatch.Duplicate
	switch {
	case w.abandoned.Err() != nil, isPermanent(f.Class), refused && len(p.leases) == 1:
		w.finishFailed(p, f)
		return nil
	case refused:
		// One row must not sink its neighbours.
		return p.halves()
	case w.aside != nil && len(p.leases) == 1 && ranOut(f, p.timeout):
		w.putApart(p, f, tally)
		return nil
	}
	p.at = time.Now().Add(p.loop.Failed(w.abandoned, f))
	if f.Class == sqlbatch.RolledBack {
		p.skip = true
	}
	if f.Class == sqlbatch.RolledBack || ranOut(f, p.timeout) {
		// Nor must one keep the others waiting.
		if p.failed++; p.failed > 1 && len(p.leases) > 1 {
			return p.halves()
		}
	}
	return []*settlePiece{p}
}

// ranOut reports that a try which had that much time was under way when it was over.
func ranOut(f *retry.Failure, timeout time.Duration) bool {
	var notRun *session.NotRunError
	return time.Since(f.Began) >= timeout && !(errors.As(f.Err, &notRun) && notRun.Unconnected)
}

// halves cuts a piece in two: what fails in it will be alone in the end.
func (p *settlePiece) halves() []*settlePiece {
	first, second := *p, *p
	half := len(p.leases) / 2
	first.leases, second.leases = p.leases[:half], p.leases[half:]
	return []*settlePiece{&first, &second}
}

// runPiece runs the statement of a piece, finishes the leases whose outcome it tells,
// and hands those that are locked to the late ones. After an error p has the others.
func (w *storer) runPiece(ctx context.Context, p *settlePiece, tally *settleTally) error {
	sql := w.queue.sql
	if p.skip {
		sql = sql.SkipLocked()
	}
	within, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	changed, left, err := w.sessions.Items(within, w.scratch.statement(w.queue, sql, p.op, p.leases), w.scratch.changed[:0])
	if left {
		w.scratch = settleScratch{}
	} else {
		w.scratch.changed = changed
	}
	if err != nil {
		return err
	}
	if p.leases = w.finishChanged(p, changed, tally); len(p.leases) == 0 {
		return nil
	}
	seen, err := w.queue.look(ctx, w.sessions, w.timeout, p.leases)
	if err != nil {
		return err
	}
	for _, l := range p.leases {
		if f := l.fate(seen.of(l.item)); f != fateLocked {
			w.finishMissing(l, f, tally)
			continue
		}
		tally.kept++
		w.groups.Late(l, l.foundLocked())
	}
	p.leases = nil
	return nil
}

// finishChanged finishes the leases whose (id, fence) the statement returned
// and returns the others. Those of p are sorted.
func (w *storer) finishChanged(p *settlePiece, changed []sqlbatch.Item, tally *settleTally) (missing []*lease) {
	if !slices.IsSortedFunc(changed, compareItems) {
		slices.SortFunc(changed, compareItems)
	}
	for _, l := range p.leases {
		for len(changed) > 0 && compareItems(changed[0], l.item) < 0 {
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == l.item {
			tally.count(l.op)
			w.finishDone(l)
		} else {
			missing = append(missing, l)
		}
	}
	return missing
}

func (s *settler) finishDone(l *lease) {
	s.queue.recorder.rolledBack(l)
	if l.op == settleDead {
		call(s.queue.cfg.Hooks.Dead, DeadEvent{Queue: s.queue.name, Shard: s.queue.shard, ID: l.item.ID, Attempt: l.attempt, Reason: l.reason()})
	}
	l.finish(nil)
}

func (x *settleScratch) statement(q *queue, sql sqlbatch.Queue, op settleOp, leases []*lease) sqlbatch.Statement {
	switch op {
	case settleNack, settleSnooze:
		x.nacks = x.nacks[:0]
		for _, l := range leases {
			x.nacks = append(x.nacks, sqlbatch.NackItem{Item: l.item, Delay: l.delay, Error: l.text})
		}
		if op == settleSnooze {
			return sql.Snooze(x.nacks)
		}
		return sql.Nack(x.nacks)
	case settleDead:
		x.buries = x.buries[:0]
		for _, l := range leases {
			x.buries = append(x.buries, sqlbatch.BuryItem{Item: l.item, Error: l.text, Uncounted: l.uncounted})
		}
		return sql.Bury(x.buries)
	default:
		x.items = x.items[:0]
		for _, l := range leases {
			x.items = append(x.items, l.item)
		}
		if op == settleRelease {
			return sql.Release(x.items)
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
