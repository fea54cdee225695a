package group

import (
	"slices"
	"time"
)

// What is apart: an item that takes so long that no other is to share its fate. It leaves
// alone, for a Worker of its own, which keeps no other Worker waiting.

// Aside makes a Worker that takes what is apart, and nothing else: groups of one item. There is
// one at most, and without it nothing may be put apart.
func (b *Backlog[I]) Aside() *Worker[I] {
	return b.hire(&Worker[I]{backlog: b, timer: time.NewTimer(forever), aside: true})
}

// Apart keeps an item of the group for the Worker that Aside made, when that time has passed: it
// has no outcome yet. Those whose time comes first leave first.
func (w *Worker[I]) Apart(item I, after time.Duration) {
	b := w.backlog
	b.mu.Lock()
	b.apart = append(b.apart, lateItem[I]{item, time.Now().Add(after)})
	w.later++
	b.mu.Unlock()
	call(b.beck)
}

// nextApart is Next of the Worker that Aside made.
func (w *Worker[I]) nextApart() (items []I, open bool) {
	b := w.backlog
	for {
		b.mu.Lock()
		wait := w.takeApart(time.Now())
		if len(w.items) > 0 {
			items := w.items
			b.mu.Unlock()
			return items, true
		}
		if b.closed && b.added == b.done {
			w.end()
			b.mu.Unlock()
			return nil, false
		}
		var abandoned <-chan struct{}
		if len(b.apart) > 0 {
			abandoned = b.cfg.Abandoned.Done()
		}
		b.mu.Unlock()
		w.timer.Reset(wait)
		select {
		case <-b.beck:
		case <-w.timer.C:
		case <-abandoned:
		}
	}
}

// takeApart makes a group of what is apart and comes first, if its time has come or all is
// given up, or says in what time that is. mu is held.
func (w *Worker[I]) takeApart(now time.Time) (wait time.Duration) {
	b := w.backlog
	if len(b.apart) == 0 {
		return forever
	}
	first := 0
	for i, l := range b.apart {
		if l.at.Before(b.apart[first].at) {
			first = i
		}
	}
	l := b.apart[first]
	if l.at.After(now) && b.cfg.Abandoned.Err() == nil {
		return l.at.Sub(now)
	}
	b.apart = slices.Delete(b.apart, first, first+1)
	w.items = append(w.items, l.item)
	w.oldest, w.began = l.item.place().seq, now
	return 0
}
