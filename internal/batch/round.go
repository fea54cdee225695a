package batch

import (
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	// lateParts is the number of parts into which a statement is cut after a timeout. It is large because each further
	// cut costs another statement that might time out.
	lateParts = 8
	// lonePause is the maximum pause before the only item of a batch is tried again, because later items wait for it.
	lonePause = time.Second
	// Healthy is longer than a statement of a healthy database takes.
	Healthy = 250 * time.Millisecond
)

// round writes one batch: it runs statements of the first items without an outcome, until all have one. Apart from
// kinds the order is kept, so the size of the statements alone finds the items that fail:
//
//	      ┌─────────── a success doubles the size, and returns to the first items ───────────┐
//	      ▼                                                                                  │
//	the first items ──▶ repeated once ──▶ halves ──▶ the first item alone ──▶ another one alone
//	                                                  │   ▲                        │
//	                   isolated: it has failed twice, ◀   └────── a pause ◀────────┘ it fails as well
//	                   and a statement has succeeded in between
//
// In an outage the first item therefore stays where it is.
type round[I Item] struct {
	worker *worker[I]
	writer *Writer[I]

	rest []I  // the items without an outcome, in order
	size Size // of statements

	failed bool  // a statement of this round has failed
	skip   bool  // leave out locked rows
	hasty  bool  // a statement timed out: the next ones have less time, so that the search ends soon
	turn   int   // statements of one item that have failed since a success: after an odd number another item is tried
	probe  int   // index in rest of that item, or 0
	denied int   // items of one kind in a row with a permanent failure of their own
	kind   uint8 // of those items
}

// write writes the batch.
func (w *worker[I]) write() {
	w.array = append(w.array[:0], w.group...)
	r := &round[I]{worker: w, writer: w.writer, rest: w.array, skip: w.late}
	byKind(r.rest)
	for items := r.next(); len(items) > 0; items = r.next() {
		r.step(items)
	}
	clear(w.array)
	w.report()
}

// count returns how many of the first items the next statement has.
func (r *round[I]) count() int {
	kind := r.rest[0].place().Kind
	most := min(len(r.rest), r.size.Of(r.writer.cfg.Full[kind]))
	n := 1
	for n < most && r.rest[n].place().Kind == kind {
		n++
	}
	if r.writer.cfg.Cut != nil {
		n = r.writer.cfg.Cut(r.rest[:n])
	}
	return n
}

// next returns the items of the next statement, or none at the end. Known outcomes are reported before a statement that
// might take long.
func (r *round[I]) next() []I {
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	for {
		r.rest = slices.DeleteFunc(r.rest, r.worker.gone)
		if len(r.rest) == 0 || r.writer.ctx.Err() != nil {
			return nil
		}
		items := r.choose()
		n := len(r.worker.out)
		if n == 0 || !r.failed && r.worker.out[n-1].Item.place().Kind == items[0].place().Kind {
			for _, item := range items {
				item.place().state = writing
			}
			return items
		}
		r.writer.mu.Unlock()
		r.worker.report()
		r.writer.mu.Lock()
	}
}

// choose returns the items of the next statement, at least one. mu is held.
func (r *round[I]) choose() []I {
	if r.turn%2 > 0 {
		if others := r.others(); len(others) > 0 {
			r.probe = others[r.turn/2%len(others)]
			return r.rest[r.probe : r.probe+1]
		}
	}
	r.probe = 0
	return r.rest[:r.count()]
}

// gone reports that an item is not to be written any more: it has its outcome, or its caller has withdrawn it. mu is
// held.
func (w *worker[I]) gone(item I) bool {
	p := item.place()
	if p.withdrawn && p.state != writing {
		w.end(item, ErrWithdrawn)
	}
	return p.state == over
}

// step runs one statement, and decides what follows.
func (r *round[I]) step(items []I) {
	n, timeout, began := len(items), r.timeout(), time.Now()
	left, f := r.worker.try(items, timeout, r.skip)
	took := time.Since(began)
	if f == nil {
		r.worker.postpone(left)
		left = nil
	}
	switch {
	case r.probe == 0:
		copy(r.rest[n-len(left):n], left)
		r.rest = r.rest[n-len(left):]
	case len(left) == 0:
		r.rest = slices.Delete(r.rest, r.probe, r.probe+1)
	}
	if f == nil {
		if r.probe == 0 {
			r.size.Worked(n, took, timeout)
		}
		r.turn, r.denied = 0, 0
		return
	}
	repeats := !r.failed
	r.failed = true
	r.skip = r.skip || f.Class == sqlbatch.RolledBack
	late := timedOut(f, took, timeout)
	r.hasty = r.hasty || late
	switch {
	case len(left) == 0: // the statement failed after it had written all
	case n == 1 && answered(f.Class):
		r.rejected(f)
	case n == 1:
		r.failedAlone(f, repeats)
	case repeats && !answered(f.Class) && !late:
		r.pause(f, forever)
	default:
		r.failedTogether(len(left), f, late)
	}
}

// timedOut reports that a statement timed out. A statement that waited for a connection did not run.
func timedOut(f *Failure, took, timeout time.Duration) bool {
	return timeout > 0 && took >= timeout && !f.Waited
}

// timeout returns the timeout of the next statement.
func (r *round[I]) timeout() time.Duration {
	t := r.writer.cfg.Loop.Timeout
	if r.hasty {
		t = max(min(t, Healthy), t/8)
	}
	return t
}

// failedTogether decides what follows the failure of n items.
func (r *round[I]) failedTogether(n int, f *Failure, late bool) {
	r.size.Failed(n)
	if answered(f.Class) {
		return
	}
	if late {
		r.size.part(n, lateParts)
		r.writer.mu.Lock()
		r.writer.groups.Failed(n)
		r.writer.mu.Unlock()
	}
	r.pause(f, ShortPause)
}

// rejected gives the item of a statement its error, because the database does not take it.
func (r *round[I]) rejected(f *Failure) {
	item := r.rest[r.probe]
	r.rest = slices.Delete(r.rest, r.probe, r.probe+1)
	r.turn = 0
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	r.worker.end(item, f.Err)
	r.writer.successes++ // the database works
	if f.Class == sqlbatch.BadRow || f.Class == sqlbatch.Duplicate {
		return
	}
	if kind := item.place().Kind; kind != r.kind {
		r.denied, r.kind = 0, kind
	}
	if r.denied++; r.denied == 2 { // two in a row: every item of the kind would meet it
		for _, o := range r.rest {
			if o.place().Kind == r.kind {
				r.worker.end(o, f.Err)
			}
		}
	}
}

// failedAlone decides what follows the failure of one item, alone in its statement.
func (r *round[I]) failedAlone(f *Failure, repeats bool) {
	r.denied = 0
	p := r.rest[r.probe].place()
	again := p.blame > 0
	blamed := r.worker.blamed(p)
	switch {
	case r.probe > 0:
		r.turn++
		r.hasty = false
		r.pause(f, forever)
		return
	case blamed:
		r.isolate(f.Err)
		return
	case repeats:
		r.pause(f, forever)
		return
	}
	r.turn++
	if tried := len(r.others()); r.turn/2 >= tried { // all have failed
		if r.drawMore(); len(r.others()) > tried {
			r.turn = 2*tried + 1
		}
	}
	switch {
	case len(r.others()) > 0: // the next one of them is tried immediately
	case again && r.mayIsolate():
		r.isolate(f.Err)
	default:
		r.turn++
		r.hasty = false
		r.pause(f, lonePause)
	}
}

// blamed records that an item has failed alone. It reports that a statement of the Writer has succeeded since it first
// did: the item is the cause, and not the database.
func (w *worker[I]) blamed(p *Place) bool {
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	if p.blame == 0 {
		p.blame = w.writer.successes + 1
	}
	return p.blame <= w.writer.successes
}

// answered reports that the database rejects the statement because of its contents: repeating it, for one item, cannot
// help.
func answered(c sqlbatch.Class) bool {
	return c == sqlbatch.BadRow || c == sqlbatch.Duplicate || c == sqlbatch.NoSchema || c == sqlbatch.Permanent
}

// others returns the indices of the items to try in place of the first one, in order. An item must not be written
// before an earlier one of its key.
func (r *round[I]) others() (indices []int) {
	keys := map[string]bool{}
	for i, item := range r.rest {
		key := r.writer.keyOf(item)
		if i > 0 && !keys[key] {
			indices = append(indices, i)
		}
		keys[key] = key != ""
	}
	return indices
}

// drawMore adds waiting items to the round, to compare the first one with them.
func (r *round[I]) drawMore() {
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	old := len(r.worker.group)
	r.worker.draw(r.writer.most)
	r.rest = append(r.rest, r.worker.group[old:]...)
}

// mayIsolate reports whether an item that has nothing to be compared with may be isolated: its order does not matter,
// and nothing else is isolated.
func (r *round[I]) mayIsolate() bool {
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	return (!r.writer.cfg.InTurn || r.writer.keyOf(r.rest[0]) != "") && len(r.writer.isolated) == 0
}

// pause reports the outcomes so far, and waits before the next statement.
func (r *round[I]) pause(f *Failure, most time.Duration) {
	r.worker.report()
	Sleep(r.writer.ctx, min(most, r.worker.loop.Failed(r.writer.ctx, f)))
}

// postpone defers items whose rows are locked.
func (w *worker[I]) postpone(items []I) {
	if len(items) == 0 {
		return
	}
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	now := time.Now()
	for _, item := range items {
		if p := item.place(); !w.gone(item) {
			p.state = deferred
			w.writer.deferred = append(w.writer.deferred, deferral[I]{item, now.Add(w.pauseLocked(p))})
		}
	}
	base.Signal(w.writer.wake)
}
