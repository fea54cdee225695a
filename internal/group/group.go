// Package group is group commit: items that come one by one, from any number of
// goroutines, leave in groups that are worth their statement. It knows neither SQL nor
// messages.
//
// A Backlog gathers the items. Each goroutine that stores them has a Worker: Next waits
// for a group that is due, Done says that each item of it has an outcome, but for those
// that Late and Apart keep for later.
//
// A group is due
//
//   - when it is full, by count or by bytes;
//   - when its oldest item has lingered;
//   - where somebody waits for one of its items, also when it has half the size of the
//     group before: where items come one by one nothing waits, and where many come at
//     once a group waits to be worth its statement;
//   - at once for an item that is urgent, for Flush, and after Drain.
package group

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Item is a pointer to something that embeds a Place.
type Item interface{ place() *Place }

// Place is where an item stands in the Backlog that it was added to last.
type Place struct {
	Size int    // in bytes, as Config.Bytes counts them; set before Add
	seq  uint64 // how many were added before it; of the Backlog
}

func (p *Place) place() *Place { return p }

// Haste is how soon an item is to be stored.
type Haste uint8

// How soon an item is to be stored.
const (
	Unhurried Haste = iota // nobody waits for it
	Awaited                // somebody does
	Urgent                 // at once
)

// Config of a Backlog.
type Config[I Item] struct {
	// Full is how many items make a group, at most. Bytes makes a group due, too; 0 does
	// not. Cut says how many of the first items may share a group, at least one; nil: all.
	// It must not use the Backlog.
	Full, Bytes int
	Cut         func([]I) int
	// Linger is how long an item waits at most for others to share its group, and
	// AwaitedLinger how long one does that is awaited.
	Linger, AwaitedLinger time.Duration
	// Capacity is how many items may wait before Add does. 0 is no bound.
	Capacity int
	// Moment is for how long one Worker's group keeps the others from the next: so groups
	// grow with the time that a statement takes, and one that hangs does not hold up what
	// comes after it. 0: the others go on at once.
	Moment time.Duration
	// InTurn: while a Worker's group is under way, the others take only groups that are
	// full, and leave what came meanwhile to the one that is done first.
	InTurn bool
	// Abandoned ends when the items are given up: late ones are due then.
	Abandoned context.Context
}

// Backlog holds items until they leave in groups. It is safe for concurrent use and
// has no goroutine of its own.
type Backlog[I Item] struct {
	cfg  Config[I]
	wake chan struct{} // for one Worker: what is due may have changed
	beck chan struct{} // as wake, for the Worker that takes what is apart

	// mu guards what follows, the Places of the items, and all of a Worker but its timer.
	// Nothing is waited for under it; of the caller's only Cut and the functions given
	// to AddAll, Remove and Each are called under it.
	mu      sync.Mutex
	room    sync.Cond // there may be room again, or it was closed
	waiting []I       // from head on: in no group yet; by seq
	head    int
	bytes   int       // of waiting
	since   time.Time // when the oldest of waiting came, or the last group left
	former  int       // size of the group before
	late    []lateItem[I]
	apart   []lateItem[I]
	workers []*Worker[I]
	idle    int    // Workers that wait for a group, and for no other Worker
	taken   uint64 // count of groups, late ones apart; the next one's turn
	added   uint64 // count of items; the next one's seq
	done    uint64 // count of items that have an outcome
	urgent  uint64 // what is below this seq is due
	awaited uint64 // what is below this seq is awaited
	flushes []flush
	closed  bool
}

// lateItem is not due before at.
type lateItem[I Item] struct {
	item I
	at   time.Time
}

// flush waits for all items below a seq.
type flush struct {
	below uint64
	done  chan struct{}
}

// New makes a Backlog.
func New[I Item](cfg Config[I]) *Backlog[I] {
	b := &Backlog[I]{cfg: cfg, wake: make(chan struct{}, 1), beck: make(chan struct{}, 1)}
	b.room.L = &b.mu
	return b
}

// Add takes an item over, once there is room. It reports false after Close.
func (b *Backlog[I]) Add(item I, h Haste) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.cfg.Capacity > 0 && b.count() >= b.cfg.Capacity && !b.closed {
		b.room.Wait()
	}
	if b.closed {
		return false
	}
	before := b.count()
	b.push(item)
	b.noted(before, h)
	return true
}

// AddAll takes n items over together, in order, without waiting for room: the caller has
// bounded them. It reports false after Close, and takes none then. (Not an iter.Seq, whose
// loop body would be allocated each time.)
func (b *Backlog[I]) AddAll(n int, item func(i int) I, h Haste) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	before := b.count()
	for i := range n {
		b.push(item(i))
	}
	b.noted(before, h)
	return true
}

// push appends an item. mu is held.
func (b *Backlog[I]) push(item I) {
	p := item.place()
	p.seq = b.added
	b.added++
	b.bytes += p.Size
	if len(b.waiting) == cap(b.waiting) && b.head > len(b.waiting)/2 {
		n := copy(b.waiting, b.waiting[b.head:])
		clear(b.waiting[n:])
		b.waiting, b.head = b.waiting[:n], 0
	}
	b.waiting = append(b.waiting, item)
}

// noted wakes a Worker if what was pushed makes a difference to it. Those that are not
// idle look by themselves. mu is held.
func (b *Backlog[I]) noted(before int, h Haste) {
	n := b.count()
	if before == 0 {
		b.since = time.Now()
	}
	sooner := h == Urgent
	switch h {
	case Urgent:
		b.urgent = max(b.urgent, b.added)
	case Awaited:
		sooner = b.awaited <= b.left() // the first one of those that wait: it lingers less
		b.awaited = max(b.awaited, b.added)
	}
	if b.idle == 0 {
		return
	}
	full := before < b.cfg.Full && n >= b.cfg.Full || b.cfg.Bytes > 0 && b.bytes >= b.cfg.Bytes
	if b.cfg.InTurn && b.underWay() {
		if full {
			b.notify()
		}
		return
	}
	if before == 0 || full || sooner || b.awaited > b.left() && n >= b.former/2 {
		b.notify()
	}
}

func (b *Backlog[I]) notify() { call(b.wake) }

func call(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// count is how many items wait. mu is held.
func (b *Backlog[I]) count() int { return len(b.waiting) - b.head }

// left is the seq up to which items have left waiting. mu is held.
func (b *Backlog[I]) left() uint64 {
	if b.count() == 0 {
		return b.added
	}
	return b.waiting[b.head].place().seq
}

// due reports whether a group is due, and otherwise in what time it is at the latest.
// Something waits. mu is held.
func (b *Backlog[I]) due(now time.Time) (bool, time.Duration) {
	n, first := b.count(), b.left()
	full := b.full()
	if b.cfg.InTurn && !full && b.underWay() {
		return false, forever
	}
	linger := b.cfg.Linger
	if first < b.awaited {
		if n >= b.former/2 {
			return true, 0
		}
		linger = min(linger, b.cfg.AwaitedLinger)
	}
	left := linger - now.Sub(b.since)
	return full || left <= 0 || first < b.urgent, left
}

// full reports whether what waits fills a group. mu is held.
func (b *Backlog[I]) full() bool {
	return b.count() >= b.cfg.Full || b.cfg.Bytes > 0 && b.bytes >= b.cfg.Bytes
}

// Full reports whether what waits fills a group.
func (b *Backlog[I]) Full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full()
}

// underWay reports whether a Worker has a group. mu is held.
func (b *Backlog[I]) underWay() bool {
	for _, w := range b.workers {
		if len(w.items) > 0 {
			return true
		}
	}
	return false
}

// Hurry has nothing that was added before linger for long: somebody waits.
func (b *Backlog[I]) Hurry() {
	b.mu.Lock()
	b.awaited = max(b.awaited, b.added)
	b.mu.Unlock()
	b.notify()
}

// Drain ends lingering for good.
func (b *Backlog[I]) Drain() {
	b.mu.Lock()
	b.urgent = math.MaxUint64
	b.mu.Unlock()
	b.notify()
}

// Close lets Next end when every item has an outcome, without lingering. Later items
// are refused.
func (b *Backlog[I]) Close() {
	b.mu.Lock()
	b.closed, b.urgent = true, math.MaxUint64
	b.room.Broadcast()
	b.mu.Unlock()
	b.notify()
	call(b.beck)
}

// Flush waits until all items that were added before have an outcome, or ctx ends,
// whose cause it returns. They do not linger.
func (b *Backlog[I]) Flush(ctx context.Context) error {
	b.mu.Lock()
	if b.done == b.added {
		b.mu.Unlock()
		return nil
	}
	f := flush{below: b.added, done: make(chan struct{})}
	b.flushes = append(b.flushes, f)
	b.urgent = max(b.urgent, b.added)
	b.mu.Unlock()
	b.notify()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.flushes = slices.DeleteFunc(b.flushes, func(o flush) bool { return o == f })
		return context.Cause(ctx)
	}
}

// endFlushes ends those of whose items each has an outcome. mu is held.
func (b *Backlog[I]) endFlushes() {
	if len(b.flushes) == 0 {
		return
	}
	oldest := b.left()
	for _, w := range b.workers {
		if len(w.items) > 0 {
			oldest = min(oldest, w.oldest)
		}
	}
	for _, kept := range [][]lateItem[I]{b.late, b.apart} {
		for _, l := range kept {
			oldest = min(oldest, l.item.place().seq)
		}
	}
	b.flushes = slices.DeleteFunc(b.flushes, func(f flush) bool {
		if f.below > oldest {
			return false
		}
		close(f.done)
		return true
	})
}

// Waiting is how many items are in no group, those that are late or apart included.
func (b *Backlog[I]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count() + len(b.late) + len(b.apart)
}

// Open is how many items have no outcome: those that wait, and those of groups that
// are under way.
func (b *Backlog[I]) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.added - b.done)
}

// Remove takes back what is in no group and of which gone is true.
func (b *Backlog[I]) Remove(gone func(I) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := slices.DeleteFunc(b.waiting[b.head:], func(item I) bool {
		if !gone(item) {
			return false
		}
		b.bytes -= item.place().Size
		b.done++
		return true
	})
	b.waiting = b.waiting[:b.head+len(rest)]
	b.room.Broadcast()
	b.endFlushes()
}

// Each calls f for all items without an outcome, but for those that are late or apart, in order,
// and says which are in a group that is under way. The Workers must not reorder their groups.
func (b *Backlog[I]) Each(f func(item I, underWay bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	workers := slices.Clone(b.workers)
	slices.SortFunc(workers, func(a, b *Worker[I]) int { return cmp.Compare(a.oldest, b.oldest) })
	for _, w := range workers {
		for _, item := range w.items {
			f(item, true)
		}
	}
	for _, item := range b.waiting[b.head:] {
		f(item, false)
	}
}
