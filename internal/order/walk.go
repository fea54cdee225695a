package order

import (
	"cmp"
	"slices"
	"time"
)

// walk reads slots that were taken together, in the order of numbers.
type walk struct {
	mem      *memory
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

	done    int           // events with which the walk has caught up: messages that were read after later ones wait
	from    int64         // where the next catch-up begins; None: none is needed
	catch   pass          // the catch-up that has begun
	catchAt time.Duration // no catch-up begins before: they take half of the time at most

	slow   pass          // the slow read that has begun: no row waits for it
	slowly bool          // the last read was a part of it
	slowAt time.Duration // of the next slow read
	span   int64         // numbers that a read may walk; 0: no bound
	base   time.Duration // of the last read that walked few numbers; 0: unknown
}

// pass is a read that begins below the watermark, in one part or several.
type pass struct {
	begun bool
	from  int64
	at    int64 // where its next part begins
	since time.Duration
	event int // the last one before it began
}

// pending reports whether the walk has to catch up.
func (w *walk) pending() bool { return w.catch.begun || w.from < None }

// atEnd reports whether the last read above the cursor has found no more.
func (w *walk) atEnd() bool { return w.read && !w.more }

// goesOn reports whether messages above the cursor are read. room: they are wanted. poll: although nothing indicates new ones.
func (w *walk) goesOn(room, poll bool) bool { return room && (poll || !w.atEnd()) }

// due returns when the next read is due.
func (w *walk) due(room, poll bool) time.Duration {
	at := time.Duration(None)
	switch {
	case w.goesOn(room, poll), w.slow.begun && !w.pending():
		at = 0
	case w.pending():
		at = w.catchAt
	case w.atEnd():
		at = w.slowAt
	}
	return max(at, w.readAt)
}

// begin begins a catch-up that covers all events so far.
func (w *walk) begin(now time.Duration) {
	w.catch = pass{begun: true, from: w.from, at: min(w.safe, w.from), since: now, event: w.mem.events}
	w.from = None
}

// ends notes that a catch-up or a slow read has reached the cursor, or that a slow read has failed. A catch-up from the beginning is
// a slow read as well.
func (w *walk) ends(t *Task, now time.Duration) {
	p := *t.pass
	if p.from == 0 {
		w.slow, w.slowAt = pass{}, now+max(slowEvery, slowShare*(now-p.since))
	}
	if !t.slow {
		w.catch, w.done, w.catchAt = pass{}, p.event, now+min(now-p.since, mostCatchRest)
		for _, sl := range w.slots {
			sl.change()
		}
	}
}

// failed notes that a read or a refill has brought nothing. The next one waits, longer each time in a row.
func (w *walk) failed(t *Task, now time.Duration) {
	switch {
	case t.slow:
		w.ends(t, now)
	case !t.split:
		w.readAt = now + firstPause<<w.pauses
		w.pauses = min(w.pauses+1, mostPauses)
	}
}

// took takes the answer to a read, whose rows are in memory. ready is the number that samples found safe.
func (w *walk) took(t *Task, a *Answer, ready int64, now time.Duration) {
	w.blocked, w.pauses = false, 0
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
	}
	whole, cut := behind < t.Behind, ahead >= t.Rows
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
		if upto >= t.Cursor {
			w.behind = aboveSafe
		}
	}
	if t.Rows > 0 {
		w.read, w.more = true, cut || covered < None
	}
	w.cursor = max(w.cursor, cursor, w.safe)
	if w.mem.cfg.OneWriter {
		w.safe = w.cursor
	}
	switch {
	case t.pass == nil:
	case whole:
		w.ends(t, now)
	default:
		t.pass.at = max(t.pass.at, walked)
	}
}

// tookRefill takes the answer to a refill.
func (w *walk) tookRefill(t *Task, a *Answer) {
	w.refilled = 0
	spill := int64(None)
	if upto := min(a.Upto, t.Upto); upto < t.Cursor {
		w.refilled, spill = upto, upto+1
	}
	for _, k := range t.of {
		if k.spill = min(k.spill, spill); k.spill == None {
			delete(w.mem.spilled, k)
		}
		w.mem.change(k)
	}
}

// stretch adapts the span of the walk to the time of a read. As long as a snapshot is open, the index has entries of deleted rows,
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

// split moves half of the slots to another walk.
func (w *walk) split() *walk {
	w.slow = pass{}
	half := len(w.slots) / 2
	o := *w
	o.slots, w.slots = slices.Clone(w.slots[half:]), slices.Clip(w.slots[:half])
	for _, sl := range o.slots {
		sl.walk = &o
	}
	return &o
}

// merge takes over the slots of another walk with the same cursor. No read is under way: one catch-up that begins now is later than
// all events.
func (w *walk) merge(o *walk) {
	for _, sl := range o.slots {
		sl.walk = w
	}
	w.slots = append(w.slots, o.slots...)
	slices.SortFunc(w.slots, func(a, b *slot) int { return cmp.Compare(a.Number, b.Number) })
	w.done, w.from = min(w.done, o.done), min(w.from, o.from)
	for _, c := range []pass{w.catch, o.catch} {
		if c.begun {
			w.from = min(w.from, c.from)
		}
	}
	w.catch, w.slow = pass{}, pass{}
	w.safe, w.more, w.behind = min(w.safe, o.safe), w.more || o.more, w.behind+o.behind
	w.span, w.base, w.refilled = max(w.span, o.span), max(w.base, o.base), min(w.refilled, o.refilled)
	w.slowAt, w.catchAt = min(w.slowAt, o.slowAt), max(w.catchAt, o.catchAt)
}
