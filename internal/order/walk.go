package order

import (
	"cmp"
	"slices"
	"time"
)

// walk reads slots that were taken together, in the order of numbers.
type walk struct {
	mem    *memory
	slots  []*slot // by number
	safe   int64   // the watermark
	cursor int64
	more   bool // the last answer was cut, or there was none yet
	behind int  // rows above safe and up to the cursor, in the last read
	barren int  // rows of the last read, if it was cut and brought no deliverable message: the next one asks for more

	blocked bool          // the last read waited for a lock: the walk is not merged until a read succeeds
	pauses  uint8         // after reads without an answer, in a row
	readAt  time.Duration // no read begins earlier

	done    int           // events with which the walk has caught up: messages that were read after later events wait
	from    int64         // where the next catch-up begins; None: none is needed
	catch   catchUp       // the last catch-up that has begun
	catchAt time.Duration // no catch-up begins earlier: they take at most half of the time

	slow   int64         // where the next part of a slow read begins: no message waits for it
	slowAt time.Duration // no part begins earlier
	span   int64         // numbers that a read may walk; 0: no bound
}

// catchUp is a read that begins below the watermark, in one part or several.
type catchUp struct {
	from, at int64 // where it and its next part begin
	since    time.Duration
	event    int // the last event before it began
}

// pending reports whether the walk has to catch up with an event.
func (w *walk) pending() bool { return w.done < w.mem.events }

// catching reports whether a catch-up has begun and not ended.
func (w *walk) catching() bool { return w.done < w.catch.event }

// goesOn reports whether messages above the cursor are read: if there is room, and either more are known or poll is
// set.
func (w *walk) goesOn(room, poll bool) bool { return room && (poll || w.more) }

// due returns when the next read is due.
func (w *walk) due(room, poll bool) time.Duration {
	at := time.Duration(None)
	switch {
	case w.goesOn(room, poll):
		at = 0
	case w.pending():
		at = w.catchAt
	case !w.more:
		at = w.slowAt
	}
	return max(at, w.readAt)
}

// begin begins a catch-up that covers all events so far.
func (w *walk) begin(now time.Duration) {
	w.catch = catchUp{from: w.from, at: min(w.safe, w.from), since: now, event: w.mem.events}
	w.from = None
}

// caughtUp notes that a catch-up has reached the cursor. A catch-up from 0 is also a slow read.
func (w *walk) caughtUp(now time.Duration) {
	took := now - w.catch.since
	if w.catch.from == 0 {
		w.rest(0, took, now)
	}
	w.done, w.catchAt = w.catch.event, now+min(took, lookEvery)
	for _, sl := range w.slots {
		sl.change()
	}
}

// rest notes that a slow read continues at a number, or begins again at 0.
func (w *walk) rest(at int64, took, now time.Duration) {
	w.slow, w.slowAt = at, now+slowShare*took
	if at == 0 {
		w.slowAt = max(w.slowAt, now+slowEvery)
	}
}

// failed notes that a read or a refill has no valid answer. The next one waits, longer each time in a row.
func (w *walk) failed(t *Task, now time.Duration) {
	switch {
	case t.Slow:
		w.rest(0, now-t.began, now)
	case !w.blocked || len(t.Slots) == 1:
		w.readAt = now + firstPause<<w.pauses
		w.pauses = min(w.pauses+1, mostPauses)
	}
}

// took applies the answer to a read. Its rows are in memory, by number, and brought of them are deliverable. ready is
// the watermark of the samples.
func (w *walk) took(t *Task, a *Answer, brought int, ready int64, now time.Duration) {
	w.blocked, w.pauses = false, 0
	end := min(t.Upto, a.Upto)
	if t.bounded && a.Drawn >= 0 && t.Upto >= a.Drawn {
		end = a.Upto // there are no numbers after the bound
	}
	ahead, behind, last, walked := 0, 0, t.Cursor, t.From
	for i := range a.Rows {
		if seq := a.Rows[i].Seq; seq > t.Cursor {
			ahead, last = ahead+1, seq
		} else {
			behind, walked = behind+1, seq
		}
	}
	if i := len(a.Rows) - 1; ahead > 0 && slices.Contains(t.Keys, a.Rows[i].Key) { // the last row that was walked
		end = min(end, last)
	}
	cut := ahead >= t.Rows
	if t.Rows > 0 {
		w.more, w.barren = cut || end < None, 0
	}
	if cut && brought == 0 {
		w.barren = t.Rows
	}
	switch {
	case cut:
		end = min(end, last)
	case end < None:
		last = end
	}
	w.cursor = max(w.cursor, last)
	if behind >= w.mem.cfg.Behind {
		end = walked
	}
	if w.mem.cfg.OneWriter { // the number and the rows are of one snapshot
		ready = max(w.cursor, a.Drawn)
	}
	if t.From <= w.safe { // all numbers up to end are known
		w.safe = max(w.safe, min(ready, end))
		w.cursor = max(w.cursor, w.safe)
	}
	switch whole := end >= t.Cursor; {
	case t.Slow && whole:
		w.rest(0, now-t.began, now)
	case t.Slow:
		w.rest(end, now-t.began, now)
	case !w.catching():
		w.behind = behind
	case whole:
		w.caughtUp(now)
	default:
		w.catch.at = max(w.catch.at, end)
	}
}

// stretch adapts the span of the walk to the duration of a read. While a snapshot is open, the index has entries of
// deleted rows, and a read walks them: it might exceed the statement timeout. drawn is the last number; 0: unknown.
func (w *walk) stretch(t *Task, a *Answer, drawn int64, now time.Duration) {
	end := min(t.Upto, cmp.Or(drawn, firstSpan))
	if t.Rows == 0 {
		end = min(end, t.Cursor)
	}
	took, walked := now-t.began, end-t.From
	full := a != nil && t.Rows > 0 && len(a.Rows) >= t.Rows // the time was spent on its rows
	switch {
	case took > longRead && walked > leastSpan && !full:
		w.span = max(leastSpan, min(cmp.Or(w.span, walked), walked)/spanFactor)
	case took < longRead/2 && walked >= w.span && a != nil:
		w.span *= 2
	}
}

// merge takes over the slots of another walk with the same cursor. No read is running: one catch-up that begins now is
// later than all events.
func (w *walk) merge(o *walk) {
	for _, sl := range o.slots {
		sl.walk = w
	}
	w.slots = append(w.slots, o.slots...)
	slices.SortFunc(w.slots, func(a, b *slot) int { return cmp.Compare(a.Number, b.Number) })
	for _, v := range []*walk{w, o} {
		if v.catching() {
			v.from = min(v.from, v.catch.from)
		}
	}
	w.done, w.from, w.catch = min(w.done, o.done), min(w.from, o.from), catchUp{}
	w.safe, w.more, w.behind = min(w.safe, o.safe), w.more || o.more, w.behind+o.behind
	w.slow, w.slowAt, w.catchAt = min(w.slow, o.slow), min(w.slowAt, o.slowAt), max(w.catchAt, o.catchAt)
	w.span = max(w.span, o.span)
}
