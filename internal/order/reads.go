package order

import (
	"cmp"
	"slices"
	"time"
)

// reads decides which numbers are read next: those that follow, those from where a catch-up or a slow read begins, or those of
// spilled keys.
type reads struct {
	mem   *memory
	walks []*walk
	turns int
	water Watermark
}

// add adds a walk for slots that were taken.
func (r *reads) add(slots []*slot, now time.Duration) {
	slices.SortFunc(slots, func(a, b *slot) int { return cmp.Compare(a.Number, b.Number) })
	w := &walk{mem: r.mem, slots: slots, done: r.mem.events, from: None, slowAt: now + slowEvery}
	for _, sl := range slots {
		sl.walk = w
	}
	r.walks = append(r.walks, w)
}

// leave takes a slot out of its walk.
func (r *reads) leave(sl *slot) {
	w := sl.walk
	if w == nil {
		return
	}
	sl.walk = nil
	w.slots = slices.DeleteFunc(w.slots, func(o *slot) bool { return o == sl })
	if len(w.slots) == 0 {
		r.walks = slices.DeleteFunc(r.walks, func(o *walk) bool { return o == w })
	}
}

// meet makes one of two walks whose cursors are equal.
func (r *reads) meet() {
	for i, a := range r.walks {
		for j, b := range r.walks[i+1:] {
			if a.cursor == b.cursor && a.read && b.read && !a.blocked && !b.blocked {
				a.merge(b)
				r.walks = slices.Delete(r.walks, i+1+j, i+2+j)
				return
			}
		}
	}
}

// bounds reports whether reads walk what is left of rows that were deleted: on PostgreSQL, while a snapshot is open.
func (r *reads) bounds() bool { return !r.mem.cfg.OneWriter && !r.mem.cfg.SampleIsFirst }

// plan returns the next Read or Refill, or nil.
func (r *reads) plan(b Budget, now time.Duration) *Task {
	if r.mem.reading {
		return nil
	}
	t := r.planRefill(b, now)
	if t == nil || r.turns%2 == 0 {
		if main := r.planRead(b, now); main != nil {
			t = main
		}
	}
	if t == nil {
		return nil
	}
	r.turns++
	if t.Kind == Read {
		t.walk.turn = r.turns
	}
	for _, sl := range t.walk.slots {
		t.Slots = append(t.Slots, sl.owned())
		t.Old = max(t.Old, sl.Old)
	}
	if b.Bare {
		t.Old = None
	}
	clear(r.mem.ended)
	r.mem.reading, t.began = true, now
	return t
}

// room returns how many messages may be read ahead.
func (r *reads) room(b Budget) int {
	if r.mem.blocked() >= r.mem.cfg.Blocked {
		return 0
	}
	return max(0, min(b.Room, r.mem.cfg.Rows))
}

// planRead returns the next read of the walk that has waited longest, or nil.
func (r *reads) planRead(b Budget, now time.Duration) *Task {
	r.meet()
	room := r.room(b)
	var w *walk
	for _, o := range r.walks {
		if o.due(room > 0, b.Poll) <= now && (w == nil || o.turn < w.turn) {
			w = o
		}
	}
	if w == nil {
		return nil
	}
	t := &Task{Kind: Read, From: w.safe, Cursor: w.cursor, Upto: None, Behind: r.mem.cfg.Behind, Rows: room, walk: w}
	if !r.mem.cfg.OneWriter {
		t.Rows = max(0, min(t.Rows, r.mem.cfg.Behind-w.behind))
	}
	for _, o := range r.walks {
		if o.cursor > w.cursor {
			t.Upto = min(t.Upto, o.cursor) // where the walks meet
		}
	}
	if now >= w.slowAt && w.atEnd() && !w.pending() && !w.slow.begun {
		w.slow = pass{begun: true, since: now}
	}
	switch {
	case w.pending() && now >= w.catchAt:
		if t.pass = &w.catch; t.pass.begun {
			t.Rows = 0
		} else {
			w.begin(now)
		}
	case w.slow.begun && !(w.slowly && w.goesOn(room > 0, b.Poll)):
		t.pass, t.slow, t.Rows = &w.slow, true, 0
	}
	w.slowly = t.slow
	from := w.cursor
	if t.pass != nil {
		t.From, from = t.pass.at, t.pass.at
	}
	t.bound(from)
	for k := range r.mem.spilled {
		if k.slot.walk == w {
			t.Keys = append(t.Keys, k.name.key)
		}
	}
	return t
}

// planRefill returns the read of spilled keys that have no message before their spilled number in memory. All such keys
// of a walk share it. It begins where the refill before has ended, so that keys far behind are read in turn.
func (r *reads) planRefill(b Budget, now time.Duration) *Task {
	if b.Room <= 0 {
		return nil
	}
	var w *walk
	var due []*keyQueue
	for k := range r.mem.spilled {
		if k.refills() && now >= k.slot.walk.readAt && (w == nil || k.slot.walk == w) {
			w = k.slot.walk
			due = append(due, k)
		}
	}
	if w == nil {
		return nil
	}
	slices.SortFunc(due, func(a, b *keyQueue) int { return cmp.Compare(a.refillsFrom(), b.refillsFrom()) })
	next := slices.IndexFunc(due, func(k *keyQueue) bool { return k.refillsFrom() >= w.refilled })
	due = due[max(0, next):]
	t := &Task{Kind: Refill, From: due[0].refillsFrom(), Cursor: w.cursor, Upto: w.cursor, walk: w, of: due}
	t.bound(t.From)
	for _, k := range due {
		t.Keys = append(t.Keys, k.name.key)
	}
	t.Rows = min(r.mem.cfg.Rows, r.mem.keeps()*len(t.of)+1)
	if b.Rows > 0 {
		t.Rows = min(t.Rows, b.Rows)
	}
	return t
}

// bound ends a read where the span of its walk ends, counted from a number.
func (t *Task) bound(from int64) {
	if end := from + t.walk.span; from < end && end < t.Upto {
		t.Upto, t.bounded = end, true
	}
}

// catchUp asks for a catch-up that begins after the answer that is being taken.
func (r *reads) catchUp(from int64) {
	r.mem.events++
	for _, w := range r.walks {
		w.from = min(w.from, from)
	}
}

// due returns when a read is due.
func (r *reads) due(b Budget) time.Duration {
	at := time.Duration(None)
	for _, w := range r.walks {
		if !r.mem.reading {
			at = min(at, w.due(r.room(b) > 0, b.Poll))
		}
	}
	return at
}

// rests reports whether each walk was read to its end.
func (r *reads) rests() bool {
	for k := range r.mem.spilled {
		if k.refills() {
			return false
		}
	}
	for _, w := range r.walks {
		if !w.atEnd() || w.pending() {
			return false
		}
	}
	return !r.mem.reading
}
