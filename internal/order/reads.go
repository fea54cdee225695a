package order

import (
	"cmp"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// reads decides which numbers are read next: those after the cursor, those of a catch-up or a slow read, or those of
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
	w := &walk{mem: r.mem, slots: slots, more: true, done: r.mem.events, from: None, slowAt: now + slowEvery}
	for _, sl := range slots {
		sl.walk = w
	}
	r.walks = append(r.walks, w)
}

// leave removes a slot from its walk.
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

// split moves half of the slots of a walk to a new walk.
func (r *reads) split(w *walk) {
	o, half := *w, len(w.slots)/2
	o.slots, w.slots = slices.Clone(w.slots[half:]), slices.Clip(w.slots[:half])
	for _, sl := range o.slots {
		sl.walk = &o
	}
	r.walks = append(r.walks, &o)
}

// meet merges two walks whose cursors are equal.
func (r *reads) meet() {
	for i, a := range r.walks {
		for j, b := range r.walks[i+1:] {
			if a.cursor == b.cursor && !a.blocked && !b.blocked {
				a.merge(b)
				r.walks = slices.Delete(r.walks, i+1+j, i+2+j)
				return
			}
		}
	}
}

// bounds reports whether reads walk the index entries of deleted rows: on PostgreSQL, while a snapshot is open.
func (r *reads) bounds() bool { return !r.mem.cfg.OneWriter && !r.mem.cfg.WatermarkFirst }

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
		i := slices.Index(r.walks, t.walk) // it is the last one from now on
		r.walks = append(slices.Delete(r.walks, i, i+1), t.walk)
	}
	for _, sl := range t.walk.slots {
		t.Slots = append(t.Slots, sl.owned())
		t.Old = max(t.Old, sl.Old)
	}
	if b.Rows == 1 { // reads of more have failed: each message is to be known by its ID, and then fetched
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
	return max(0, min(b.Room, r.mem.cfg.ClaimRows))
}

// planRead returns the next read of the walk that has waited longest, or nil.
func (r *reads) planRead(b Budget, now time.Duration) *Task {
	r.meet()
	room := r.room(b)
	var w *walk
	for _, o := range r.walks {
		if o.due(room > 0 || r.mem.paused, b.Poll) <= now && w == nil {
			w = o
		}
	}
	if w == nil {
		return nil
	}
	t := &Task{Kind: Read, walk: w, ReadParams: sqlbatch.ReadParams{
		From: w.safe, Cursor: w.cursor, Upto: None, Rows: room, Behind: r.mem.cfg.Behind,
	}}
	// Without contents: most are of keys that wait. The messages of a single key are delivered one after another.
	if room > 0 && w.barren >= room && r.mem.keys > 1 {
		t.Rows, t.Old = min(2*w.barren, r.mem.cfg.ClaimRows), None
	}
	t.Rows = max(0, min(t.Rows, r.mem.cfg.Behind-w.behind))
	for _, o := range r.walks {
		if o.cursor > w.cursor {
			t.Upto = min(t.Upto, o.cursor) // where the walks meet
		}
	}
	from := w.cursor
	switch {
	case w.pending() && now >= w.catchAt:
		if w.catching() {
			t.Rows = 0
		} else {
			w.begin(now)
		}
		t.From, from = w.catch.at, w.catch.at
	case !w.more && !w.pending() && now >= w.slowAt:
		t.Slow, t.Rows, t.From, from = true, 0, w.slow, w.slow
	}
	t.bound(from)
	for k := range r.mem.spilled {
		if k.slot.walk == w {
			t.Keys = append(t.Keys, k.name.key)
		}
	}
	return t
}

// planRefill returns the read of spilled keys that have no message before their spilled number in memory. One read,
// from the smallest number on, is for all such keys of a walk.
func (r *reads) planRefill(b Budget, now time.Duration) *Task {
	if b.Room <= 0 {
		return nil
	}
	t := &Task{Kind: Refill}
	t.From = None
	for k := range r.mem.spilled {
		if w := k.slot.walk; k.refills() && now >= w.readAt && (t.walk == nil || t.walk == w) {
			t.walk, t.From = w, min(t.From, w.safe, k.spill-1)
			t.of, t.Keys = append(t.of, k), append(t.Keys, k.name.key)
		}
	}
	if t.walk == nil {
		return nil
	}
	t.Cursor, t.Upto = t.walk.cursor, t.walk.cursor
	t.bound(t.From)
	t.Rows = min(r.mem.cfg.ClaimRows, r.mem.keeps()*len(t.of)+1)
	if b.Rows > 0 {
		t.Rows = min(t.Rows, b.Rows)
	}
	return t
}

// bound ends a read at the end of its walk's span, counted from a number.
func (t *Task) bound(from int64) {
	if end := from + t.walk.span; from < end && end < t.Upto {
		t.Upto, t.bounded = end, true
	}
}

// catchUp requests a catch-up that begins after the answer that is being processed.
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
			at = min(at, w.due(r.room(b) > 0 || r.mem.paused, b.Poll))
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
		if w.more || w.pending() {
			return false
		}
	}
	return !r.mem.reading
}
