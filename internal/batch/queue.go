package batch

import (
	"cmp"
	"slices"
)

// queue has the waiting items of a Writer in the order of Add. Its cost per item is constant, also for
// items that are dropped from the middle: their entries stay until they are half of all. Writer.mu guards it.
type queue[I Item] struct {
	entries []entry[I] // from head on; the first one is live
	head    int
	live    int // entries whose item still waits here
	bytes   int // of these
}

type entry[I Item] struct {
	item I
	seq  uint64
}

// live reports that the item was not dropped. One that was may be in the queue again, with another seq.
func (e entry[I]) live() bool { return e.item.place().state == waiting && e.item.place().seq == e.seq }

// push appends an item, whose state is waiting.
func (q *queue[I]) push(item I) {
	if len(q.entries) == cap(q.entries) && q.head > len(q.entries)/2 {
		q.entries = slices.Delete(q.entries, 0, q.head)
		q.head = 0
	}
	q.entries = append(q.entries, entry[I]{item, item.place().seq})
	q.live++
	q.bytes += item.place().Size
}

// first is the seq of the first item. There is one.
func (q *queue[I]) first() uint64 { return q.entries[q.head].seq }

// pop removes up to n items and appends them to into.
func (q *queue[I]) pop(into []I, n int) []I {
	for n = min(n, q.live); n > 0; q.head++ {
		if e := q.entries[q.head]; e.live() {
			into = append(into, e.item)
			q.bytes -= e.item.place().Size
			q.live--
			n--
		}
		q.entries[q.head] = entry[I]{}
	}
	q.trim()
	return into
}

// putBack inserts items that were popped where they were, and makes them wait again.
func (q *queue[I]) putBack(items []I) {
	for i := len(items) - 1; i >= 0; i-- {
		p := items[i].place()
		p.state = waiting
		q.live++
		q.bytes += p.Size
		e := entry[I]{items[i], p.seq}
		if q.head > 0 && (q.head == len(q.entries) || p.seq < q.first()) {
			q.head--
			q.entries[q.head] = e
			continue
		}
		at, _ := slices.BinarySearchFunc(q.entries[q.head:], p.seq, func(e entry[I], seq uint64) int { return cmp.Compare(e.seq, seq) })
		q.entries = slices.Insert(q.entries, q.head+at, e)
	}
}

// drop forgets an item that waits. Its state is changed here.
func (q *queue[I]) drop(item I) {
	q.live--
	q.bytes -= item.place().Size
	item.place().state = over
	if q.trim(); len(q.entries)-q.head > 2*q.live {
		kept := slices.DeleteFunc(q.entries[q.head:], func(e entry[I]) bool { return !e.live() })
		clear(q.entries[:q.head])
		q.entries = q.entries[:q.head+len(kept)]
	}
}

// trim has the first entry live.
func (q *queue[I]) trim() {
	for q.head < len(q.entries) && (q.live == 0 || !q.entries[q.head].live()) {
		q.entries[q.head] = entry[I]{}
		q.head++
	}
	if q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
	}
}
