package batch

import (
	"cmp"
	"slices"
)

// queue has the waiting items of a Writer in the order of Add. Its cost per item is constant, even for items
// that are dropped from the middle: their entries stay until they are half of all. Writer.mu guards it.
type queue[I Item] struct {
	entries []I // from head on; the first one waits
	head    int
	live    int // entries that wait: the others were dropped
	bytes   int // of these
}

func waits[I Item](item I) bool { return item.place().state == waiting }

// push appends an item, whose state is waiting.
func (q *queue[I]) push(item I) {
	if len(q.entries) == cap(q.entries) && q.head > len(q.entries)/2 {
		q.entries = slices.Delete(q.entries, 0, q.head)
		q.head = 0
	}
	q.entries = append(q.entries, item)
	q.live++
	q.bytes += item.place().Size
}

// first returns the seq of the first item. The queue must not be empty.
func (q *queue[I]) first() uint64 { return q.entries[q.head].place().seq }

// pop removes up to n items and appends them to into.
func (q *queue[I]) pop(into []I, n int) []I {
	for n = min(n, q.live); n > 0; q.head++ {
		if item := q.entries[q.head]; waits(item) {
			into = append(into, item)
			q.bytes -= item.place().Size
			q.live--
			n--
		}
		clear(q.entries[q.head : q.head+1])
	}
	q.trim()
	return into
}

// putBack inserts popped items at their old positions, and makes them wait again.
func (q *queue[I]) putBack(items []I) {
	for _, item := range slices.Backward(items) {
		p := item.place()
		p.state = waiting
		q.live++
		q.bytes += p.Size
		if q.head > 0 && (q.head == len(q.entries) || p.seq < q.first()) {
			q.head--
			q.entries[q.head] = item
			continue
		}
		at, _ := slices.BinarySearchFunc(q.entries[q.head:], p.seq,
			func(o I, seq uint64) int { return cmp.Compare(o.place().seq, seq) })
		q.entries = slices.Insert(q.entries, q.head+at, item)
	}
}

// drop removes an item that waited until now.
func (q *queue[I]) drop(item I) {
	q.live--
	q.bytes -= item.place().Size
	if q.trim(); len(q.entries)-q.head > 2*q.live {
		kept := slices.DeleteFunc(q.entries[q.head:], func(o I) bool { return !waits(o) })
		clear(q.entries[:q.head])
		q.entries = q.entries[:q.head+len(kept)]
	}
}

// trim removes leading entries that do not wait.
func (q *queue[I]) trim() {
	for q.head < len(q.entries) && (q.live == 0 || !waits(q.entries[q.head])) {
		clear(q.entries[q.head : q.head+1])
		q.head++
	}
	if q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
	}
}
