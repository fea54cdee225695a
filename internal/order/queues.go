package order

import (
	"cmp"
	"slices"
	"time"
)

// queues has the queues of all keys, and decides the next states of their messages.
type queues struct {
	mem   *memory
	slots map[int]*slot
	held  held
}

// insertAll inserts the rows of a read or a refill, by number.
func (q *queues) insertAll(t *Task, a *Answer, now time.Duration) {
	if t.Kind == Read {
		a.Rows = slices.DeleteFunc(a.Rows, func(row Row) bool { return row.Seq > a.Upto })
	}
	slices.SortFunc(a.Rows, func(x, y Row) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, k := range t.of {
		if upto := min(a.Upto, t.Upto); upto < t.Cursor {
			k.spill = max(k.spill, upto+1)
		} else {
			k.spill = None
			delete(q.mem.spilled, k)
		}
	}
	for i := range a.Rows {
		q.insert(t.walk, &a.Rows[i], now)
	}
	for _, k := range t.of {
		q.mem.change(k)
	}
}

// insert adds a row of a read to the queue of its key.
func (q *queues) insert(w *walk, row *Row, now time.Duration) {
	sl := q.slots[row.Slot]
	if sl == nil || sl.walk != w {
		return
	}
	if fence, ended := q.mem.ended[name{row.ID, row.Seq}]; ended && row.Fence <= fence {
		return
	}
	n := keyName{row.Key, row.Keyed}
	k := sl.keys[n]
	if k == nil {
		k = &keyQueue{slot: sl, name: n, spill: None}
		sl.keys[n] = k
		q.mem.keys++
	}
	if row.Held {
		q.held.add(k, q.held.redriven)
	}
	if row.Seq >= k.spill {
		return
	}
	i := len(k.all)
	for i > 0 && k.all[i-1].Seq > row.Seq {
		i--
	}
	for j := i - 1; j >= 0 && k.all[j].Seq == row.Seq; j-- {
		known := k.all[j]
		if known.ID == row.ID {
			return
		}
		// The database assigned the number twice: this row is gone, as a fetch will find
		q.mem.setContents(known, nil)
		q.recall(known)
	}
	m := &Message{ID: row.ID, Seq: row.Seq, Slot: row.Slot, key: k, gate: q.mem.events}
	if q.adopt(m, row, now); row.Lock != Locked { // else a fetch will find it unlocked or absent
		q.mem.setContents(m, row.Contents)
	}
	if i == 0 && len(k.all) > 0 {
		q.recall(k.all[0])
	}
	k.all = slices.Insert(k.all, i, m)
	if len(k.all) > q.mem.keeps()+1 {
		q.spill(k)
	}
	q.mem.change(k)
	if q.move(now); m.state != ready && q.mem.bytes > q.mem.cfg.Bytes {
		q.mem.setContents(m, nil)
	}
}

// spill removes the last message that is neither busy nor marked from memory.
func (q *queues) spill(k *keyQueue) {
	for i := len(k.all) - 1; i >= 0; i-- {
		if m := k.all[i]; !m.busy() && !m.mine {
			q.end(m)
			k.spill = m.Seq
			q.mem.spilled[k] = true
			return
		}
	}
}

// clear ends the messages of a slot, the busy ones only if busy is set.
func (q *queues) clear(sl *slot, busy bool) {
	for _, k := range sl.keys {
		for _, m := range slices.Clone(k.all) {
			if m.gate = 0; busy || !m.busy() {
				q.end(m)
			}
		}
		k.spill = None
		if delete(q.mem.spilled, k); len(k.all) == 0 {
			q.forget(k)
		}
	}
}

// forget removes a key from memory.
func (q *queues) forget(k *keyQueue) {
	if k.slot.keys[k.name] == k {
		delete(k.slot.keys, k.name)
		q.mem.keys--
	}
	k.held = false
	delete(q.held.keys, k)
}
