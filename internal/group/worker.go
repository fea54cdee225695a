package group

import (
	"math"
	"slices"
	"time"
)

// forever is no time at all.
const forever = time.Duration(math.MaxInt64)

// Worker takes groups from a Backlog, one after another. Each belongs to one goroutine.
type Worker[I Item] struct {
	backlog *Backlog[I]
	timer   *time.Timer
	items   []I       // of the group that is under way; the array is used again
	turn    uint64    // of the group: how many were taken before it
	oldest  uint64    // the least seq of items, when they left
	began   time.Time // when they left
	late    bool      // items had been late
	later   int       // how many of items have become late, or are apart
	aside   bool      // it takes what is apart, and nothing else
}

// Worker makes another one. Its goroutine calls Next until that reports the end.
func (b *Backlog[I]) Worker() *Worker[I] {
	return b.hire(&Worker[I]{backlog: b, timer: time.NewTimer(forever)})
}

func (b *Backlog[I]) hire(w *Worker[I]) *Worker[I] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers = append(b.workers, w)
	return w
}

// Next waits for a group that is due, and returns it. It is the Worker's to reorder
// until Done, which must be called before Next is called again. Late items make groups
// of their own, one at a time. open is false at the end: the Backlog is closed, and
// every item has an outcome.
func (w *Worker[I]) Next() (items []I, open bool) {
	if w.aside {
		return w.nextApart()
	}
	b := w.backlog
	for {
		b.mu.Lock()
		now := time.Now()
		wait := w.takeLate(now)
		busy := b.busy(now)
		if busy > 0 {
			wait = min(wait, busy)
		} else if len(w.items) == 0 && b.count() > 0 {
			due, left := b.due(now)
			if due {
				w.take(now)
			}
			wait = min(wait, left)
		}
		if len(w.items) > 0 {
			if b.idle > 0 && b.count()+len(b.late) > 0 {
				b.notify() // for another Worker: what this one waited for is left to it
			}
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
		if len(b.late) > 0 && b.cfg.Abandoned.Err() == nil {
			abandoned = b.cfg.Abandoned.Done()
		}
		idle := busy == 0
		if idle {
			b.idle++
		}
		b.mu.Unlock()
		var timer <-chan time.Time
		if wait != forever {
			w.timer.Reset(wait)
			timer = w.timer.C
		}
		select {
		case <-b.wake:
		case <-timer:
		case <-abandoned:
		}
		if idle {
			b.mu.Lock()
			b.idle--
			b.mu.Unlock()
		}
	}
}

// end has the other Workers end, too. mu is held.
func (w *Worker[I]) end() {
	w.backlog.notify()
	call(w.backlog.beck)
	w.timer.Stop()
}

// Done says that every item of the group has an outcome, save those that have become
// late, or are apart.
func (w *Worker[I]) Done() {
	b := w.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += uint64(len(w.items) - w.later)
	clear(w.items)
	w.items, w.later = w.items[:0], 0
	b.endFlushes()
}

// Turn is how many groups were taken before the one that Next returned last, which was
// not one of late items.
func (w *Worker[I]) Turn() uint64 { return w.turn }

// Late keeps an item of the group for later: it has no outcome yet, comes back in a
// group of late ones when that time has passed, and no other waits for it.
func (w *Worker[I]) Late(item I, after time.Duration) {
	b := w.backlog
	b.mu.Lock()
	b.late = append(b.late, lateItem[I]{item, time.Now().Add(after)})
	w.later++
	b.mu.Unlock()
	b.notify()
}

// take makes a group of the first that wait. mu is held.
func (w *Worker[I]) take(now time.Time) {
	b := w.backlog
	w.oldest, w.began, w.late, w.turn = b.left(), now, false, b.taken
	b.taken++
	w.cut(append(w.items, b.waiting[b.head:b.head+min(b.count(), b.cfg.Full)]...))
	n := len(w.items)
	clear(b.waiting[b.head : b.head+n])
	if b.head += n; b.head == len(b.waiting) {
		b.waiting, b.head = b.waiting[:0], 0
	}
	for _, item := range w.items {
		b.bytes -= item.place().Size
	}
	b.since, b.former = now, n
	b.room.Broadcast()
}

// cut keeps what may share a group.
func (w *Worker[I]) cut(items []I) {
	n := len(items)
	if w.backlog.cfg.Cut != nil {
		n = w.backlog.cfg.Cut(items)
	}
	clear(items[n:])
	w.items = items[:n]
}

// takeLate makes a group of late items whose time has come, or says in what time that
// is. mu is held.
func (w *Worker[I]) takeLate(now time.Time) (wait time.Duration) {
	b := w.backlog
	wait = forever
	if len(b.late) == 0 || slices.ContainsFunc(b.workers, func(o *Worker[I]) bool { return o.late && len(o.items) > 0 }) {
		return wait
	}
	abandoned := b.cfg.Abandoned.Err() != nil
	ripe := func(l lateItem[I]) bool { return abandoned || !l.at.After(now) }
	items := w.items
	for _, l := range b.late {
		if !ripe(l) {
			wait = min(wait, l.at.Sub(now))
		} else if len(items) < b.cfg.Full {
			items = append(items, l.item)
		}
	}
	if len(items) == 0 {
		return wait
	}
	w.cut(items)
	w.oldest, w.began, w.late = w.items[0].place().seq, now, true
	for _, item := range w.items {
		w.oldest = min(w.oldest, item.place().seq)
	}
	n := len(w.items)
	b.late = slices.DeleteFunc(b.late, func(l lateItem[I]) bool {
		if n == 0 || !ripe(l) {
			return false
		}
		n--
		return true
	})
	return wait
}

// busy is for how long yet what waits is left to the Workers that are under way. mu is
// held.
func (b *Backlog[I]) busy(now time.Time) time.Duration {
	var wait time.Duration
	for _, w := range b.workers {
		if len(w.items) > 0 && !w.late && !w.aside {
			wait = max(wait, b.cfg.Moment-now.Sub(w.began))
		}
	}
	return wait
}
