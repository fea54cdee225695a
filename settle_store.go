package chanq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a settler.

// storers is how many groups of a settler may be under way at once, each on a
// session of its own: the first, and one that goes on where the first is stuck.
const storers = 2

// settleMoment is how long a statement may take before the next group is
// stored beside it: longer than those of a healthy database.
const settleMoment = 250 * time.Millisecond

// lockPause is the pause before a settle whose row was locked is tried again, which
// doubles up to lockPauses times: to a second or so.
const (
	lockPause  = 20 * time.Millisecond
	lockPauses = 6
)

// foundLocked notes that the row was locked once more, and returns the pause before the
// next try.
func (l *lease) foundLocked() time.Duration {
	pause := lockPause << l.locked
	l.locked = min(l.locked+1, lockPauses)
	return pause
}

// storers is how many goroutines are to call run. One session has no use for more.
func (s *settler) storers() int {
	if s.queue.dialect.Traits().OneWriter {
		return 1
	}
	return storers
}

// storer stores groups of settles, one after another.
type storer struct {
	*settler
	scratch settleScratch
}

type settleScratch struct {
	items    []sqlbatch.Item
	nacks    []sqlbatch.NackItem
	releases []sqlbatch.ReleaseItem
	buries   []sqlbatch.BuryItem
	changed  []sqlbatch.Item
}

// run stores groups until close and the end of the backlog, or abandon.
func (s *settler) run() {
	w := storer{settler: s}
	for {
		f, open := s.next()
		if !open {
			return
		}
		n := w.store(f.group)
		s.mu.Lock()
		s.flying = slices.DeleteFunc(s.flying, func(o *flight) bool { return o == f })
		s.settled += uint64(n)
		s.wakeFlushers()
		if s.closed {
			notify(s.work) // the end may have come for the others
		}
		s.mu.Unlock()
	}
}

// next waits for a group that is due. open is false at the end.
func (s *settler) next() (f *flight, open bool) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := time.Now()
		f, lateIn := s.takeLate(now)
		wait := lateIn
		busy := s.busy(now)
		if n := len(s.backlog); f == nil && n > 0 {
			due, left := s.due(n)
			switch {
			case busy > 0:
				wait = min(wait, busy)
			case due:
				f = s.take(now)
			default:
				wait = min(wait, left)
			}
		}
		if f != nil {
			s.flying = append(s.flying, f)
			s.mu.Unlock()
			return f, true
		}
		if s.closed && len(s.backlog)+len(s.late)+len(s.flying) == 0 {
			notify(s.work) // the other storers end, too
			s.mu.Unlock()
			return nil, false
		}
		waiting := busy == 0
		if waiting {
			s.idle++
		}
		s.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-s.work:
		case <-timer.C:
		}
		if waiting {
			s.mu.Lock()
			s.idle--
			s.mu.Unlock()
		}
	}
}

// busy is for how long yet the backlog is left to a storer whose statement has not
// taken more than a moment. mu is held.
func (s *settler) busy(now time.Time) time.Duration {
	var wait time.Duration
	for _, f := range s.flying {
		if !f.late {
			wait = max(wait, settleMoment-now.Sub(f.began))
		}
	}
	return wait
}

// take removes a group from the backlog. mu is held.
func (s *settler) take(now time.Time) *flight {
	n := min(len(s.backlog), s.pace.full)
	f := &flight{group: slices.Clone(s.backlog[:n]), oldest: s.backlog[0].seq, began: now}
	rest := copy(s.backlog, s.backlog[n:])
	clear(s.backlog[rest:])
	s.backlog = s.backlog[:rest]
	s.since = now
	s.pace.last = n
	s.space.Broadcast()
	return f
}

// takeLate removes those of late whose time has come, or says how long that takes.
// One group of them is under way at a time: the other storer is for the rest. mu is
// held.
func (s *settler) takeLate(now time.Time) (*flight, time.Duration) {
	wait := time.Hour
	if len(s.late) == 0 || slices.ContainsFunc(s.flying, func(f *flight) bool { return f.late }) {
		return nil, wait
	}
	f := &flight{oldest: s.added, began: now, late: true}
	abandoned := s.abandoned.Err() != nil
	s.late = slices.DeleteFunc(s.late, func(l lateSettle) bool {
		if left := l.at.Sub(now); left > 0 && !abandoned {
			wait = min(wait, left)
			return false
		}
		f.group = append(f.group, l.lease)
		f.oldest = min(f.oldest, l.lease.seq)
		return true
	})
	if len(f.group) == 0 {
		return nil, wait
	}
	return f, wait
}

// addLate keeps settles whose rows are locked for later.
func (s *settler) addLate(leases []*lease) {
	now := time.Now()
	s.mu.Lock()
	for _, l := range leases {
		s.late = append(s.late, lateSettle{l, now.Add(l.foundLocked())})
	}
	s.mu.Unlock()
	notify(s.work)
}

// storeAlone stores settles that nobody else's join, without the goroutines of a
// consumer, until the outcome of each is known or the settler is abandoned.
func (s *settler) storeAlone(leases []*lease) {
	w := storer{settler: s}
	for len(leases) > 0 {
		w.store(leases)
		leases = leases[:0:0]
		for _, l := range s.late {
			leases = append(leases, l.lease)
		}
		s.late = nil
		if len(leases) > 0 {
			sleep(s.abandoned, lockPause<<leases[0].locked)
		}
	}
}

// settlePiece is a part of a group: settles of one kind that one statement takes.
type settlePiece struct {
	op     settleOp
	leases []*lease
	skip   bool // leave out what is locked
	failed int  // tries that may have failed by one of the rows
	pause  backoff
	at     time.Time // not before
}

// store settles a group: one statement for each kind of settle in it, acks first,
// and repetitions until the outcome of each is known or the backlog is abandoned.
// It returns how many have one; what was locked has been handed to late.
func (w *storer) store(group []*lease) int {
	start := time.Now()
	slices.SortStableFunc(group, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(a.op, b.op), compareItems(a.item, b.item))
	})
	tally := settleTally{event: SettledEvent{Queue: w.queue.name}}
	traits := w.queue.dialect.Traits()
	var pieces []*settlePiece
	for rest := group; len(rest) > 0; {
		op := rest[0].op
		limit := [...]int{traits.AckItems, traits.NackItems, traits.ReleaseItems, traits.BuryItems}[op]
		n := 1
		for n < len(rest) && n < limit && rest[n].op == op {
			n++
		}
		pieces = append(pieces, &settlePiece{op: op, leases: rest[:n], skip: rest[0].locked > 0, pause: retries(), at: start})
		rest = rest[n:]
	}
	for len(pieces) > 0 {
		// Pieces that failed have to wait behind the others.
		p := slices.MinFunc(pieces, func(a, b *settlePiece) int { return a.at.Compare(b.at) })
		pieces = slices.DeleteFunc(pieces, func(o *settlePiece) bool { return o == p })
		if wait := time.Until(p.at); wait > 0 {
			sleep(w.abandoned, wait)
		}
		pieces = append(pieces, w.try(p, &tally)...)
	}
	if tally.locked < len(group) {
		tally.event.Took = time.Since(start)
		call(w.queue.cfg.Hooks.Settled, tally.event)
		w.stored(tally.event)
	}
	return len(group) - tally.locked
}

// settleTally is what became of a group.
type settleTally struct {
	event  SettledEvent
	locked int
}

// done counts a settle that is in the database.
func (t *settleTally) done(op settleOp) {
	*[...]*int{&t.event.Acked, &t.event.Nacked, &t.event.Released, &t.event.Dead}[op]++
}

// try runs the statement of a piece once, and returns what must be tried again.
func (w *storer) try(p *settlePiece, tally *settleTally) (again []*settlePiece) {
	began := time.Now()
	err := w.settle(p, tally)
	if err == nil {
		w.health.worked(began)
		return nil
	}
	class := classify(w.queue.dialect, err)
	if class == sqlbatch.Unknown {
		for _, l := range p.leases {
			l.unknown = true
		}
	}
	refused := class == sqlbatch.BadRow || class == sqlbatch.Duplicate
	switch {
	case w.abandoned.Err() != nil, class == sqlbatch.NoSchema, class == sqlbatch.Permanent, refused && len(p.leases) == 1:
		w.finishFailed(p, err, class)
		return nil
	case refused:
		// One row must not sink its neighbours.
		return p.halves()
	}
	if p.pause.outage(class, began) {
		w.health.failed(began, err)
	}
	p.at = time.Now().Add(p.pause.after(class))
	if class == sqlbatch.RolledBack {
		p.skip = true
	}
	if class == sqlbatch.RolledBack || ranOut(err, began, w.timeout) {
		// Nor must one keep the others waiting.
		if p.failed++; p.failed > 1 && len(p.leases) > 1 {
			return p.halves()
		}
	}
	return []*settlePiece{p}
}

// ranOut reports that a try which began then and had that much time was under way when
// it was over.
func ranOut(err error, began time.Time, timeout time.Duration) bool {
	var notRun *session.NotRunError
	return time.Since(began) >= timeout && !(errors.As(err, &notRun) && notRun.Unconnected)
}

// halves cuts a piece in two: what fails in it will be alone in the end.
func (p *settlePiece) halves() []*settlePiece {
	first, second := *p, *p
	half := len(p.leases) / 2
	first.leases, second.leases = p.leases[:half], p.leases[half:]
	return []*settlePiece{&first, &second}
}

// settle runs the statement of a piece, finishes the leases whose outcome it tells,
// and hands those that are locked to late. After an error p has the others.
func (w *storer) settle(p *settlePiece, tally *settleTally) error {
	sql := w.queue.sql
	if p.skip {
		sql = sql.SkipLocked()
	}
	ctx, cancel := context.WithTimeout(w.abandoned, w.timeout)
	defer cancel()
	changed, left, err := w.sessions.Items(ctx, w.scratch.statement(w.queue, sql, p.op, p.leases), w.scratch.changed[:0])
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
	seen, err := w.queue.look(w.abandoned, w.sessions, w.timeout, p.leases)
	if err != nil {
		return err
	}
	locked := slices.DeleteFunc(p.leases, func(l *lease) bool {
		f := l.fate(seen.of(l.item))
		if f != fateLocked {
			w.finishMissing(l, f, tally)
		}
		return f != fateLocked
	})
	if p.leases = locked; len(locked) > 0 {
		tally.locked += len(locked)
		w.addLate(locked)
	}
	return nil
}

func (x *settleScratch) statement(q *queue, sql sqlbatch.Queue, op settleOp, leases []*lease) sqlbatch.Statement {
	switch op {
	case settleNack:
		x.nacks = x.nacks[:0]
		for _, l := range leases {
			x.nacks = append(x.nacks, sqlbatch.NackItem{Item: l.item, Delay: l.delay, Error: l.text})
		}
		return sql.Nack(x.nacks)
	case settleRelease:
		x.releases = x.releases[:0]
		for _, l := range leases {
			x.releases = append(x.releases, sqlbatch.ReleaseItem{Item: l.item, Due: l.due})
		}
		return sql.Release(x.releases)
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
			tally.done(l.op)
			w.finishDone(l)
		} else {
			missing = append(missing, l)
		}
	}
	return missing
}

func (s *settler) finishDone(l *lease) {
	if l.op == settleDead {
		call(s.queue.cfg.Hooks.Dead, DeadEvent{Queue: s.queue.name, ID: l.item.ID, Attempt: l.attempt, Reason: l.reason()})
	}
	l.finish(nil)
}

// finishMissing finishes a lease that its statement did not return.
func (s *settler) finishMissing(l *lease, f fate, tally *settleTally) {
	switch f {
	case fateApplied:
		tally.done(l.op)
		s.finishDone(l)
	case fateInTx:
		l.finish(ErrSettled)
	case fateLost:
		tally.event.Lost++
		l.finish(ErrLeaseLost)
		call(s.queue.cfg.Hooks.LeaseLost, LeaseLostEvent{Queue: s.queue.name, ID: l.item.ID, Attempt: l.attempt, Confirmed: true})
	default:
		l.finish(&OpError{Op: l.op.String(), Queue: s.queue.name, ID: l.item.ID, Unknown: true, Err: errOutcomeHidden})
	}
}

// finishFailed finishes the leases of a piece that cannot be stored, or is given up.
func (s *settler) finishFailed(p *settlePiece, err error, class sqlbatch.Class) {
	abandoned := s.abandoned.Err() != nil
	for _, l := range p.leases {
		cause := err
		if abandoned && l.locked > 0 {
			cause = errLocked
		}
		l.finish(&OpError{Op: p.op.String(), Queue: s.queue.name, ID: l.item.ID, Unknown: l.unknown, Err: cause})
	}
	switch {
	case abandoned:
	case class == sqlbatch.NoSchema, class == sqlbatch.Permanent:
		s.broken(s.queue.fail(p.op.String(), err))
	default: // the database refuses what these rows would become: their leases run out
		for _, l := range p.leases {
			call(s.queue.cfg.Hooks.LeaseLost, LeaseLostEvent{Queue: s.queue.name, ID: l.item.ID, Attempt: l.attempt})
		}
	}
}

func (op settleOp) String() string {
	return [...]string{"ack", "nack", "release", "dead-letter"}[op]
}

func compareItems(a, b sqlbatch.Item) int {
	return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Fence, b.Fence))
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
