package order

import (
	"cmp"
	"slices"
	"time"
)

// walk reads slots that were taken together, in the order of numbers.
type walk struct {
	slots    []*slot // by number
	safe     int64   // the watermark
	cursor   int64
	read     bool  // an answer has come
	more     bool  // the last answer was cut
	behind   int   // rows above safe and up to the cursor, in the last answer
	refilled int64 // where the last refill has ended; 0: at its end
	turn     int   // of the last read

	blocked bool          // the last read waited for a lock: it stays apart until one succeeds
	pauses  uint8         // after reads without an answer, in a row
	readAt  time.Duration // no read begins before

	pending, next *catchUp      // next: an event after pending has begun
	catchAt       time.Duration // no catch-up begins before: they take half of the time at most

	slow   *catchUp      // the slow read that has begun: no row waits for it
	slowly bool          // the last read was a part of it
	slowAt time.Duration // of the next slow read
	span   int64         // numbers that a read may walk; 0: no bound
	base   time.Duration // of the last read that walked few numbers; 0: unknown
}

// catchUp is a read that begins below the watermark, in one part or several.
type catchUp struct {
	from  int64 // where it begins
	at    int64 // where its next part begins
	begun bool
	since time.Duration // of its first part
	over  bool
	into  *catchUp    // it has become a part of this one
	keys  []*keyQueue // have messages that wait for its end
}

func (c *catchUp) done() bool { return c == nil || c.over || c.into != nil && c.into.done() }

// now returns what has become of a catch-up that another one has taken over.
func (c *catchUp) now() *catchUp {
	for c != nil && c.into != nil {
		c = c.into
	}
	return c
}

// split returns a catch-up of the same rows for other slots.
func (c *catchUp) split() *catchUp {
	if c == nil {
		return nil
	}
	return &catchUp{from: c.from, at: c.at, begun: c.begun, since: c.since}
}

// catchUp asks for a catch-up that begins after the answer that is being taken.
func (w *walk) catchUp(from int64) {
	c := &w.pending
	if *c != nil && (*c).begun {
		c = &w.next
	}
	if *c == nil {
		*c = &catchUp{from: from, at: from}
	}
	(*c).from, (*c).at = min((*c).from, from), min((*c).at, from)
}

// gate returns the catch-up that rows of the answer that is being taken wait for.
func (w *walk) gate() *catchUp {
	if w.next != nil {
		return w.next
	}
	return w.pending
}

// ends notes that a catch-up has reached the cursor.
func (s *Sequencer) ends(w *walk, c *catchUp, now time.Duration) {
	c.over = true
	w.catchAt = now + min(now-c.since, mostCatchRest)
	if c.from == 0 {
		w.endsSlowly(c, now)
	}
	w.pending, w.next = w.next, nil
	for _, k := range c.keys {
		s.advance(k, now)
	}
}

// endsSlowly notes that a slow read, or a catch-up that was one as well, has ended or failed.
func (w *walk) endsSlowly(c *catchUp, now time.Duration) {
	w.slow, w.slowAt = nil, now+max(slowEvery, slowShare*(now-c.since))
}

// stretch adapts the span of a walk to the time of a read. As long as a snapshot is open, the index has entries of deleted rows,
// and a read walks them: it might take longer than a statement may. What a read takes however little it walks, does not count.
// drawn is the last number; 0: unknown.
func (w *walk) stretch(t *Task, a *Answer, drawn int64, now time.Duration) {
	if drawn == 0 {
		drawn = firstSpan
	}
	end := min(t.Upto, drawn)
	if t.Rows == 0 {
		end = min(end, t.Cursor)
	}
	took, walked := now-t.began, end-t.From
	if a != nil && walked <= leastSpan {
		w.base = took
	}
	took -= w.base
	long := took > longRead/spanFactor // of a read that failed, perhaps because its time was over
	if a != nil {
		long = took > longRead && (t.Rows == 0 || len(a.Rows) < t.Rows)
	}
	switch {
	case long && walked > leastSpan:
		if w.span == 0 || w.span > walked {
			w.span = walked
		}
		w.span = max(leastSpan, w.span/spanFactor)
	case a != nil && t.bounded && walked >= w.span && took < longRead/spanFactor:
		w.span *= spanFactor
	}
}

// bound ends a read where the span of its walk ends, counted from a number.
func (t *Task) bound(from int64) {
	if end := from + t.walk.span; from < end && end < t.Upto {
		t.Upto, t.bounded = end, true
	}
}

// join adds a walk for slots that were taken.
func (s *Sequencer) join(w *walk) {
	slices.SortFunc(w.slots, func(a, b *slot) int { return cmp.Compare(a.Number, b.Number) })
	s.walks = append(s.walks, w)
}

// leave takes a slot out of its walk.
func (s *Sequencer) leave(sl *slot) {
	w := sl.walk
	if w == nil {
		return
	}
	sl.walk = nil
	w.slots = slices.DeleteFunc(w.slots, func(o *slot) bool { return o == sl })
	if len(w.slots) == 0 {
		s.walks = slices.DeleteFunc(s.walks, func(o *walk) bool { return o == w })
	}
}

// meet makes one of two walks whose cursors are equal. No read is under way, so that one catch-up that begins now is
// later than all events.
func (s *Sequencer) meet() {
	for i, a := range s.walks {
		for j, b := range s.walks[i+1:] {
			if a.cursor != b.cursor || !a.read || !b.read || a.blocked || b.blocked {
				continue
			}
			var all *catchUp
			for _, c := range []*catchUp{a.pending, a.next, b.pending, b.next} {
				if c == nil {
					continue
				}
				if all == nil {
					all = &catchUp{from: None, at: None}
				}
				all.from, all.at = min(all.from, c.from), min(all.at, c.from)
				all.keys, c.keys, c.into = append(all.keys, c.keys...), nil, all
			}
			a.pending, a.next = all, nil
			s.walks = slices.Delete(s.walks, i+1+j, i+2+j)
			s.walks = slices.Delete(s.walks, i, i+1)
			for _, sl := range b.slots {
				sl.walk = a
			}
			a.slots = append(a.slots, b.slots...)
			a.safe, a.more, a.behind = min(a.safe, b.safe), a.more || b.more, a.behind+b.behind
			a.slow, a.span, a.base = nil, max(a.span, b.span), max(a.base, b.base)
			a.refilled, a.slowAt, a.catchAt = min(a.refilled, b.refilled), min(a.slowAt, b.slowAt), max(a.catchAt, b.catchAt)
			s.join(a)
			return
		}
	}
}

// rest has a walk wait after a read without an answer, longer each time in a row.
func (w *walk) rest(now time.Duration) {
	w.readAt = now + firstPause<<w.pauses
	w.pauses = min(w.pauses+1, mostPauses)
}

// Blocked notes, before Answer, that a read has waited for a lock until its time was over. Its walk is split in two, until the slot
// of the locked row is read alone: then it is the only one that waits. It reports whether the walk was split. PostgreSQL's reads wait
// for no row: there the time of the statement was over, and Answer bounds the next reads.
func (s *Sequencer) Blocked(t *Task, now time.Duration) (split bool) {
	w := t.walk
	if s.bounds() || t.slow != nil { // Answer ends a slow read
		return false
	}
	w.blocked = true
	if len(w.slots) <= 1 {
		return false // Answer has it wait
	}
	t.split, w.slow = true, nil
	half := len(w.slots) / 2
	o := *w
	o.slots, w.slots = slices.Clone(w.slots[half:]), slices.Clip(w.slots[:half])
	o.pending, o.next = w.pending.split(), w.next.split()
	for _, sl := range o.slots {
		sl.walk = &o
		for _, k := range sl.keys {
			for _, m := range k.all {
				switch g := m.gate.now(); {
				case g == nil:
				case g == w.pending:
					m.gate = o.pending
				case g == w.next:
					m.gate = o.next
				}
				if m.gate != nil {
					m.gate.keys = append(m.gate.keys, k)
				}
			}
		}
	}
	s.walks = append(s.walks, &o)
	return true
}

// planRead returns the next read of the walk that has waited longest, or nil.
func (s *Sequencer) planRead(b Budget, now time.Duration) *Task {
	s.meet()
	room := min(b.Room, s.cfg.Rows)
	if s.blocked() >= s.cfg.Blocked {
		room = 0
	}
	var w *walk
	ahead := false
	for _, o := range s.walks {
		if o.slow == nil && o.pending == nil && now >= o.slowAt && o.read && !o.more {
			o.slow = &catchUp{since: now}
		}
		reads := room > 0 && (b.Poll || o.more || !o.read)
		catches := o.pending != nil && now >= o.catchAt
		if now >= o.readAt && (catches || reads || o.slow != nil) && (w == nil || o.turn < w.turn) {
			w, ahead = o, reads
		}
	}
	if w == nil {
		return nil
	}
	s.turns++
	w.turn = s.turns
	t := &Task{Kind: Read, From: w.safe, Cursor: w.cursor, Upto: None, Behind: s.cfg.Behind, Rows: max(0, room), walk: w}
	if !s.cfg.OneWriter {
		t.Rows = max(0, min(t.Rows, s.cfg.Behind-w.behind))
	}
	for _, o := range s.walks {
		if o.cursor > w.cursor {
			t.Upto = min(t.Upto, o.cursor) // where the walks meet
		}
	}
	base := w.cursor
	switch c := w.pending; {
	case c != nil && c.begun:
		t.catch, t.Rows, t.From, base = c, 0, c.at, c.at
	case c != nil && now >= w.catchAt:
		c.begun, c.since, t.From = true, now, min(w.safe, c.from)
		t.catch, base = c, t.From
	case w.slow != nil && !(ahead && w.slowly):
		t.slow, t.Rows, t.From, base = w.slow, 0, w.slow.at, w.slow.at
	}
	w.slowly = t.slow != nil
	t.bound(base)
	if b.Bare {
		t.Old = None
	}
	for k := range s.spilled {
		if k.slot.walk == w {
			t.Keys = append(t.Keys, k.name.key)
		}
	}
	return t
}

// read takes the answer to a read. ready is the number that earlier answers found safe.
func (s *Sequencer) read(t *Task, a *Answer, ready int64, now time.Duration) {
	w := t.walk
	w.blocked, w.pauses = false, 0
	a.Rows = slices.DeleteFunc(a.Rows, func(row Row) bool { return row.Seq > a.Upto })
	upto := min(t.Upto, a.Upto)
	if t.bounded && a.Drawn >= 0 && t.Upto >= a.Drawn {
		upto = a.Upto // no number is behind the bound
	}
	ahead, behind, aboveSafe := 0, 0, 0
	cursor, walked := t.Cursor, t.From
	for i := range a.Rows {
		switch seq := a.Rows[i].Seq; {
		case seq > t.Cursor:
			ahead++
			cursor = max(cursor, seq)
		default:
			behind++
			walked = max(walked, seq)
			if seq > w.safe {
				aboveSafe++
			}
		}
		s.insert(w, &a.Rows[i], a.Redriven, now)
	}
	whole, cut, reached := behind < t.Behind, ahead >= t.Rows, upto >= t.Cursor
	covered := upto
	if cut {
		covered = cursor
	} else if covered < None {
		cursor = covered
	}
	if whole && upto < t.Cursor {
		whole, walked = false, upto
	}
	if !whole {
		covered = walked
	}
	if t.From <= w.safe {
		w.safe = max(w.safe, min(ready, covered))
		if reached {
			w.behind = aboveSafe
		}
	}
	if t.Rows > 0 {
		w.read, w.more = true, cut || covered < None
	}
	w.cursor = max(w.cursor, cursor, w.safe)
	if s.cfg.OneWriter {
		w.safe = w.cursor
	}
	if c := t.catch; c != nil && c == w.pending {
		if c.at = max(c.at, walked); whole {
			s.ends(w, c, now)
		}
	}
	if c := t.slow; c != nil && c == w.slow {
		if c.at = max(c.at, walked); whole {
			w.endsSlowly(c, now)
		}
	}
}
