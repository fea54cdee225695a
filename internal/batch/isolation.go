package batch

import (
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
)

const (
	// mostIsolated and mostBehind are the maximum numbers of isolated items, and of items that wait behind them because
	// of their keys. Further items get an error as their outcome.
	mostIsolated = 100
	mostBehind   = 1000
	// longestTimeout is the default of Config.Longest.
	longestTimeout = 2 * time.Minute
	// The pauses before an isolated item is tried again.
	isolatedLow  = ShortPause
	isolatedHigh = HighPause
)

// isolation is an item that fails alone while others are written. Writer.mu guards it.
type isolation[I Item] struct {
	item    I
	err     error
	at      time.Time // of the next try
	pause   Backoff
	timeout time.Duration
	behind  []I // items of its key, in order
}

// isolate takes the first item out of the round, with the items behind it that have its key.
func (r *round[I]) isolate(err error) {
	item := r.rest[0]
	r.rest, r.turn = r.rest[1:], 0
	r.writer.mu.Lock()
	p := item.place()
	if r.worker.gone(item) {
		r.writer.mu.Unlock()
		return
	}
	if len(r.writer.isolated) >= mostIsolated {
		r.worker.end(item, err)
		r.writer.mu.Unlock()
		return
	}
	in := &isolation[I]{
		item: item, err: err, timeout: r.writer.cfg.Loop.Timeout,
		pause: Backoff{Low: r.worker.loop.atMost(isolatedLow), High: r.worker.loop.atMost(isolatedHigh)},
	}
	in.at = time.Now().Add(in.pause.Pause())
	p.state = isolated
	r.writer.isolated = append(r.writer.isolated, in)
	r.writer.isolatedChanged(in.err)
	if key := r.writer.keyOf(item); key != "" {
		r.writer.keys[key] = in
		r.rest = slices.DeleteFunc(r.rest, func(item I) bool { return r.worker.gone(item) || r.worker.follows(item) })
	}
	r.writer.mu.Unlock()
	base.Signal(r.writer.beck)
}

// follows moves an item behind the isolated item of its key. It returns false if there is none. mu is held.
func (w *worker[I]) follows(item I) bool {
	if len(w.writer.keys) == 0 {
		return false
	}
	in := w.writer.keys[w.writer.keyOf(item)]
	switch {
	case in == nil:
		return false
	case w.writer.followers() >= mostBehind:
		w.end(item, fmt.Errorf("behind an item of the same key that is not written: %w", in.err))
	default:
		item.place().state = behind
		in.behind = append(in.behind, item)
	}
	return true
}

// runIsolated writes isolated items, each by itself, one after another. No other worker waits for it.
func (w *worker[I]) runIsolated() {
	defer w.timer.Stop()
	for {
		w.writer.mu.Lock()
		in, wait := w.nextIsolated(time.Now())
		over := w.writer.over()
		w.writer.mu.Unlock()
		w.report() // withdrawn items
		switch {
		case in != nil:
			w.tryIsolated(in)
		case over:
			w.writer.notifyAll()
			return
		default:
			w.timer.Reset(wait)
			select {
			case <-w.writer.beck:
			case <-w.timer.C:
			}
		}
	}
}

// nextIsolated returns the isolated item with the earliest time, or the time until one is due. It releases items whose
// callers have given up. mu is held.
func (w *worker[I]) nextIsolated(now time.Time) (first *isolation[I], wait time.Duration) {
	for _, in := range slices.Clone(w.writer.isolated) {
		in.behind = slices.DeleteFunc(in.behind, w.gone)
		if w.gone(in.item) {
			w.writer.release(in)
		} else if first == nil || in.at.Before(first.at) {
			first = in
		}
	}
	if first == nil {
		return nil, forever
	}
	if wait = first.at.Sub(now); wait > 0 {
		return nil, wait
	}
	first.item.place().state = writing
	return first, 0
}

// tryIsolated runs one statement of an isolated item.
func (w *worker[I]) tryIsolated(in *isolation[I]) {
	w.began = time.Now()
	left, f := w.try([]I{in.item}, in.timeout, true)
	took := time.Since(w.began)
	if f != nil && len(left) > 0 && answered(f.Class) {
		w.finish(in.item, f.Err)
		left = nil
	}
	w.report() // before the items behind it continue; Done might add it again
	p := in.item.place()
	if f != nil && len(left) > 0 && !answered(f.Class) && !w.blamed(p) { // the database might be the cause
		_ = w.loop.Failed(w.writer.ctx, f)
	}
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	if len(left) == 0 || p.state == over {
		w.writer.release(in)
		return
	}
	p.state = isolated
	if f == nil { // its row is locked
		in.at = time.Now().Add(w.pauseLocked(p))
		return
	}
	in.at, in.err = time.Now().Add(in.pause.Pause()), f.Err
	if timedOut(f, took, in.timeout) {
		in.timeout = max(in.timeout, min(2*in.timeout, w.writer.cfg.Longest))
		rests := time.Now().Add(took) // if all share one connection, the others have it for as long
		for _, in := range w.writer.isolated {
			if in.timeout > w.writer.cfg.Loop.Timeout && in.at.Before(rests) {
				in.at = rests
			}
		}
	}
}

// followers returns how many items are behind isolated ones. mu is held.
func (w *Writer[I]) followers() (n int) {
	for _, in := range w.isolated {
		n += len(in.behind)
	}
	return n
}

// isolatedChanged reports the number of isolated items, and the error of a newly isolated one. mu is held.
func (w *Writer[I]) isolatedChanged(err error) {
	if w.cfg.Isolated != nil {
		w.cfg.Isolated(len(w.isolated), err)
	}
}

// release ends an isolation, and returns the items behind it to the waiting ones. mu is held.
func (w *Writer[I]) release(in *isolation[I]) {
	w.isolated = slices.DeleteFunc(w.isolated, func(o *isolation[I]) bool { return o == in })
	w.isolatedChanged(nil)
	if len(in.behind) > 0 {
		before := w.waiting.live
		w.waiting.putBack(in.behind)
		w.arrived(before, Now)
	}
	if key := w.keyOf(in.item); w.keys[key] == in {
		delete(w.keys, key)
	}
}
