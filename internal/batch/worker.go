package batch

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// forever is longer than any wait.
const forever = time.Duration(math.MaxInt64)

// Pauses before an item whose row is locked is tried again. They double, to about a second.
const (
	lockPause  = 20 * time.Millisecond
	lockPauses = 6
)

// worker takes batches from the Writer and writes them, one after another, on one goroutine.
type worker[I Item] struct {
	writer *Writer[I]
	loop   Loop
	timer  *time.Timer
	room   []Outcome[I] // the reusable array of out
	array  []I          // the reusable array of round.rest

	// Guarded by mu. Only the worker's goroutine writes these fields, except that GiveUp takes the contents of out.
	out   []Outcome[I] // not passed to Done yet
	group []I          // has no item twice, and is not reordered; the array is reused
	began time.Time    // when the batch left the backlog; of an isolated item: when its statement began
	late  bool         // its batch was deferred
}

func (w *worker[I]) run() {
	defer w.timer.Stop()
	for w.next() {
		w.write()
		w.done()
	}
}

// next waits for a due batch. It returns false when the Writer is finished.
func (w *worker[I]) next() bool {
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	for {
		wait, idle := w.gather(time.Now())
		switch {
		case len(w.group)+len(w.out) > 0:
			if w.writer.idle > 0 && w.writer.waiting.live+len(w.writer.deferred) > 0 {
				base.Signal(w.writer.wake) // for another worker, to wait in place of this one
			}
			return true
		case w.writer.over():
			w.writer.notifyAll() // the others end as well
			return false
		}
		w.writer.idle += idle
		w.writer.mu.Unlock()
		w.timer.Reset(wait)
		select {
		case <-w.writer.wake:
		case <-w.timer.C:
		}
		w.writer.mu.Lock()
		w.writer.idle -= idle
	}
}

// gather makes a batch of due items, or returns the maximum time until it is to be called again. idle is 0 if another
// worker still has a moment for the waiting items, otherwise 1. mu is held.
func (w *worker[I]) gather(now time.Time) (wait time.Duration, idle int) {
	wait = w.takeDeferred(now)
	if left := w.momentLeft(now); left > 0 {
		return min(wait, left), 0
	}
	if len(w.group)+len(w.out) == 0 && w.writer.waiting.live > 0 {
		due, left := w.writer.due(now)
		if due {
			left = 0
			w.take(now)
		}
		wait = min(wait, left)
	}
	return wait, 1
}

// arrived wakes a worker if the items that were pushed matter to it. mu is held.
func (w *Writer[I]) arrived(before int, u Urgency) {
	n := w.waiting.live
	if n == 0 {
		return
	}
	if before == 0 {
		w.since = time.Now()
	}
	sooner := u == Now
	switch u {
	case Now:
		w.urgent = max(w.urgent, w.added)
	case Awaited:
		sooner = w.awaited <= w.waiting.first() // the first awaited item among the waiting ones: it lingers less
		w.awaited = max(w.awaited, w.added)
	}
	if w.idle == 0 {
		return
	}
	full := before < w.groups.Of(w.most) && w.full()
	if before == 0 || full || sooner || w.awaited > w.waiting.first() && n >= w.former/2 {
		base.Signal(w.wake)
	}
}

// due reports whether a batch is due, and otherwise the maximum time until it is. Items must be waiting. mu is held.
func (w *Writer[I]) due(now time.Time) (bool, time.Duration) {
	first, full := w.waiting.first(), w.full()
	if first < w.awaited && w.waiting.live >= w.former/2 {
		return true, 0
	}
	left := w.cfg.Linger - now.Sub(w.since)
	return full || left <= 0 || first < w.urgent, left
}

// full reports whether the waiting items fill a batch. mu is held.
func (w *Writer[I]) full() bool {
	return w.waiting.live >= w.groups.Of(w.most) || w.cfg.Bytes > 0 && w.waiting.bytes >= w.cfg.Bytes
}

// momentLeft returns how long the waiting items are still left to the busy workers. mu is held.
func (w *worker[I]) momentLeft(now time.Time) (left time.Duration) {
	for _, o := range w.writer.workers {
		if len(o.group) > 0 && !o.late && o != w {
			left = max(left, w.writer.cfg.Moment-now.Sub(o.began))
		}
	}
	return left
}

// Next returns the full batch that follows when items, which are being written, and the first of the waiting ones have
// their outcomes; nil if there is none, or if items are only a part of their batch. It may be called by Write, if there
// is one worker. Later items may still be withdrawn.
func (w *Writer[I]) Next(items []I, behind int) []I {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, bytes := w.groups.Of(w.most), 0
	fills := w.waiting.live-behind >= n || w.cfg.Bytes > 0 && w.waiting.bytes >= w.cfg.Bytes
	if len(items) < len(w.workers[0].group) || len(w.keys) > 0 || !fills {
		return nil
	}
	next, first := make([]I, 0, n), w.waiting.head
	if len(w.waiting.entries)-first == w.waiting.live { // none was dropped
		first, behind = first+behind, 0
	}
	for i := first; i < len(w.waiting.entries) && len(next) < n; i++ {
		switch item := w.waiting.entries[i]; {
		case !waits(item):
		case behind > 0:
			behind--
		default:
			next, bytes = append(next, item), bytes+item.place().Size
		}
	}
	if len(next) < n && (w.cfg.Bytes == 0 || bytes < w.cfg.Bytes) {
		return nil
	}
	return next[:w.cfg.Cut(next)]
}

// take makes a batch of the first waiting items. mu is held.
func (w *worker[I]) take(now time.Time) {
	w.began = now
	w.draw(w.writer.groups.Of(w.writer.most))
	if n := len(w.group); w.writer.cfg.Cut != nil && n > 0 {
		n = w.writer.cfg.Cut(w.group)
		w.writer.waiting.putBack(w.group[n:])
		w.group = w.group[:n]
	}
	w.writer.since, w.writer.former = now, len(w.group)
}

// draw appends up to n waiting items to the batch, except items that are withdrawn, or have to wait behind an isolated
// one. mu is held.
func (w *worker[I]) draw(n int) {
	old := len(w.group)
	w.group = w.writer.waiting.pop(w.group, n)
	fresh := slices.DeleteFunc(w.group[old:], func(item I) bool { return w.gone(item) || w.follows(item) })
	w.group = w.group[:old+len(fresh)]
	for _, item := range fresh {
		item.place().state = held
	}
	w.writer.room.Broadcast()
}

// takeDeferred makes a batch of deferred items that are due, by one worker at a time, or returns the time until one is
// due. mu is held.
func (w *worker[I]) takeDeferred(now time.Time) (wait time.Duration) {
	wait = forever
	if slices.ContainsFunc(w.writer.workers, func(o *worker[I]) bool { return o.late }) {
		return wait
	}
	w.writer.deferred = slices.DeleteFunc(w.writer.deferred, func(d deferral[I]) bool {
		switch {
		case w.gone(d.item):
		case d.at.After(now):
			wait = min(wait, d.at.Sub(now))
			return false
		case len(w.group) == w.writer.most:
			return false
		default:
			d.item.place().state = held
			w.group = append(w.group, d.item)
		}
		return true
	})
	if len(w.group)+len(w.out) > 0 {
		w.began, w.late = now, true
	}
	return wait
}

// done ends a batch. Each of its items has its outcome or is kept elsewhere.
func (w *worker[I]) done() {
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	clear(w.group)
	w.group, w.late = w.group[:0], false
}

// report passes the outcomes so far to Done.
func (w *worker[I]) report() {
	w.writer.mu.Lock()
	out := w.out
	if len(out) == 0 { // or GiveUp has taken them
		w.writer.mu.Unlock()
		return
	}
	w.out = w.room[:0]
	w.writer.ending(out)
	w.writer.mu.Unlock()
	w.writer.callDone(w.began, out)
	clear(out)
	w.room = out
}

// end records the outcome of an item that was not written. mu is held.
func (w *worker[I]) end(item I, err error) {
	w.know(Outcome[I]{Item: item, Err: err, Unknown: item.place().Unknown})
}

// finish calls end with the lock held.
func (w *worker[I]) finish(item I, err error) {
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	w.end(item, err)
}

// know records an outcome, unless the item has one. mu is held.
func (w *worker[I]) know(o Outcome[I]) {
	if p := o.Item.place(); p.state != over {
		p.state = over
		w.out = append(w.out, o)
	}
}

// try runs one statement of items of one kind, and looks up the items that it neither returned nor failed for. It
// records the outcomes that it gets. left are the items without one: after a failure they are to be tried again,
// otherwise they are locked.
func (w *worker[I]) try(items []I, timeout time.Duration, skipLocked bool) (left []I, f *Failure) {
	w.loop.Timeout = timeout
	began := time.Now()
	var written []I
	asked := true
	f = w.loop.Try(w.writer.ctx, func(ctx context.Context) (err error) {
		written, err = w.writer.cfg.Write(ctx, items, skipLocked)
		asked = err != ErrNotAsked
		return err
	})
	if f == nil && w.writer.cfg.Absent == nil {
		written = items
	}
	w.writer.mu.Lock()
	for _, item := range written {
		w.know(Outcome[I]{Item: item})
	}
	left = slices.DeleteFunc(items, ended[I])
	if f == nil && asked {
		w.writer.successes++
		w.writer.groups.Worked(len(items), time.Since(began), w.writer.cfg.Loop.Timeout)
	}
	for _, item := range left {
		if p := item.place(); p.state == writing {
			p.state = held
			p.Unknown = p.Unknown || f != nil && f.Class == sqlbatch.Unknown
		}
	}
	w.writer.mu.Unlock()
	if f != nil || len(left) == 0 {
		return left, f
	}
	var found []Outcome[I]
	if f = w.loop.Try(w.writer.ctx, func(ctx context.Context) (err error) {
		found, err = w.writer.cfg.Absent(ctx, left)
		return err
	}); f != nil {
		return left, f
	}
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	for _, o := range found {
		w.know(o)
	}
	return slices.DeleteFunc(left, ended[I]), nil
}

// ended reports that an item has its outcome. mu is held.
func ended[I Item](item I) bool { return item.place().state == over }

// pauseLocked records that the row of an item was locked once more, and returns the pause before the next try.
func (w *worker[I]) pauseLocked(p *Place) time.Duration {
	pause := w.loop.atMost(lockPause << p.Locked)
	p.Locked = min(p.Locked+1, lockPauses)
	return pause
}

// byKind sorts items so that those of one kind share statements.
func byKind[I Item](items []I) {
	compare := func(a, b I) int { return cmp.Compare(a.place().Kind, b.place().Kind) }
	if !slices.IsSortedFunc(items, compare) { // almost always
		slices.SortStableFunc(items, compare)
	}
}
