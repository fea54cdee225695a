package order

import (
	"cmp"
	"slices"
	"time"
)

// Sequencer keeps the messages of one consumer in order. It is not safe for concurrent use.
type Sequencer struct {
	cfg      Config
	slots    map[int]*slot
	walks    []*walk
	turns    int // of reads and refills
	water    Watermark
	redriven int64
	knows    bool           // redriven
	reading  *Task          // the Read or Refill that is under way
	ended    map[name]int64 // what has ended since then: its fence
	timers   timers
	lists    [states][]*Message
	suspects []*Message // queued
	trial    trial
	spilled  map[*keyQueue]bool
	held     map[*keyQueue]bool
	heldAt   time.Duration // of the next question
	reads    bool          // the next Plan prefers a read

	busy, keys, nReady, withContents, bytes int
}

// name identifies a message: an ID might be sent again, and the database might give a number twice.
type name struct {
	id  [16]byte
	seq int64
}

// New returns a Sequencer that owns no slot.
func New(cfg Config) *Sequencer {
	return &Sequencer{
		cfg: cfg, slots: map[int]*slot{}, ended: map[name]int64{}, spilled: map[*keyQueue]bool{}, held: map[*keyQueue]bool{},
	}
}

// Take begins with slots that were taken. A slot that is owned already keeps its busy messages.
func (s *Sequencer) Take(list []Slot, now time.Duration) {
	w := &walk{slowAt: now + slowEvery}
	for _, t := range list {
		sl := &slot{Slot: t, walk: w, keys: map[keyName]*keyQueue{}}
		if was := s.slots[t.Number]; was != nil {
			s.keep(was, sl)
			s.Drop(t.Number, now)
		}
		s.slots[t.Number] = sl
		w.slots = append(w.slots, sl)
	}
	s.join(w)
}

// keep moves the busy messages of a slot to its next term: their readers have them.
func (s *Sequencer) keep(was, sl *slot) {
	for n, k := range was.keys {
		for _, m := range slices.Clone(k.all) {
			if !m.busy() {
				continue
			}
			to := s.keyOf(sl, n)
			if k.held && !to.held {
				to.held, to.note = true, k.note
				s.held[to] = true
			}
			k.remove(m)
			to.all = append(to.all, m)
			k.busy--
			to.busy++
			was.busy--
			sl.busy++
			if m.counted {
				was.atWork--
				sl.atWork++
			}
			m.key, m.gate = to, nil
		}
	}
}

// SetPolicy changes whether dead messages hold their keys, and how many keys of each slot are at work at once. Keys that are held
// open when the database answers that nothing holds them.
func (s *Sequencer) SetPolicy(holds bool, keys func(slot int) int, now time.Duration) {
	closes := holds && !s.cfg.Holds
	s.cfg.Holds = holds
	for number, sl := range s.slots {
		sl.Keys = keys(number)
		s.unqueue(sl, now)
		for _, k := range sl.keys {
			if closes { // until it is known that no dead message holds it
				s.hold(k, s.redriven, now)
			}
		}
	}
}

// Return begins to return a slot: nothing more of it is delivered, and its marks are released.
func (s *Sequencer) Return(number int, now time.Duration) {
	sl := s.slots[number]
	if sl == nil || sl.leaving {
		return
	}
	sl.leaving = true
	s.leave(sl)
	s.each(sl, func(m *Message) { s.rest(m, now) })
}

// Returned returns the slots that may be returned now. The caller returns them, and then drops them.
func (s *Sequencer) Returned() (list []Returned) {
	for _, sl := range s.slots {
		if sl.leaving && sl.busy == 0 {
			list = append(list, Returned{sl.Slot, sl.doubt})
		}
	}
	return list
}

// Drop forgets a slot that was returned or lost. What becomes of its messages has no effect here.
func (s *Sequencer) Drop(number int, now time.Duration) {
	sl := s.slots[number]
	if sl == nil {
		return
	}
	sl.leaving = true
	s.leave(sl)
	s.each(sl, func(m *Message) { s.end(m, now) })
	for _, k := range sl.keys {
		s.forget(k)
	}
	delete(s.slots, number)
}

// Lost forgets all slots: the membership has ended.
func (s *Sequencer) Lost(now time.Duration) {
	for number := range s.slots {
		s.Drop(number, now)
	}
}

func (s *Sequencer) each(sl *slot, do func(*Message)) {
	for _, k := range sl.keys {
		for _, m := range slices.Clone(k.all) {
			do(m)
		}
	}
}

// Busy returns how many messages of a slot are delivered, or are being written.
func (s *Sequencer) Busy(number int) int {
	if sl := s.slots[number]; sl != nil {
		return sl.busy
	}
	return 0
}

// Leaving reports whether the slot of a message is being returned, or is not owned any more.
func (s *Sequencer) Leaving(m *Message) bool { return m.state == over || m.key.slot.leaving }

// Awaited reports whether other messages wait for the end of a delivery.
func (s *Sequencer) Awaited(m *Message) bool {
	k := m.key
	return m.given && m.busy() && (len(k.all) > 1 || k.spill < None || len(k.slot.line) > 0 || len(s.suspects) > 0)
}

// Plan returns the next task, or nil. Each task must be passed to Answer, one Read or Refill before the next.
func (s *Sequencer) Plan(b Budget, now time.Duration) *Task {
	s.wake(now)
	s.reads = !s.reads
	var t *Task
	if !s.reads {
		t = s.planMessages(b, now)
	}
	if t == nil && s.reading == nil {
		if t = s.planRefill(b, now); t == nil || s.turns%2 == 0 {
			if main := s.planRead(b, now); main != nil {
				t = main
			}
		}
		if t != nil {
			if t.Kind == Refill {
				s.turns++
			}
			return s.begin(t, now)
		}
	}
	if t == nil {
		t = s.planMessages(b, now)
	}
	return t
}

// begin notes that a read is under way.
func (s *Sequencer) begin(t *Task, now time.Duration) *Task {
	clear(s.ended)
	s.reading, t.began = t, now
	for _, sl := range t.walk.slots {
		t.Slots = append(t.Slots, sl.Slot)
		t.Old = max(t.Old, sl.Old)
	}
	return t
}

// Answer takes the answer to a task. A nil answer is unknown: the statement failed, or the term, the consumer's ID or
// the membership is not that of the request. It reports whether the database forgot numbers: then all slots must be
// dropped and taken again.
func (s *Sequencer) Answer(t *Task, a *Answer, now time.Duration) (forgotten bool) {
	isRead := t.Kind == Read || t.Kind == Refill
	if isRead {
		s.reading = nil
	}
	if isRead && s.bounds() {
		t.walk.stretch(t, a, s.water.drawn, now)
	}
	isNew, ready := false, s.water.Ready()
	if a != nil && a.Walked {
		isNew = !s.knows || a.Redriven != s.redriven
		if forgotten = s.event(a, isRead, now); forgotten {
			return true
		}
		if s.cfg.SampleIsFirst {
			ready = s.water.Ready()
		}
	}
	switch {
	case !isRead && t.Kind != Held:
		s.answered(t, a, now)
	case isRead && (a == nil || !a.Walked):
		switch {
		case t.slow != nil && t.slow == t.walk.slow:
			t.walk.endsSlowly(t.slow, now)
		case !t.split && t.slow == nil:
			t.walk.rest(now)
		}
	case a == nil || !a.Walked: // changes nothing
	case t.Kind == Held:
		s.holds(t, a, isNew, now)
	default:
		slices.SortFunc(a.Rows, func(x, y Row) int { return cmp.Compare(x.Seq, y.Seq) })
		if t.Kind == Refill {
			s.refill(t, a, now)
		} else {
			s.read(t, a, ready, now)
		}
	}
	return false
}

// event takes what an answer reports in addition to its rows.
func (s *Sequencer) event(a *Answer, sampled bool, now time.Duration) (forgotten bool) {
	from := int64(None)
	if sampled && a.Drawn >= 0 {
		from, forgotten = s.water.Sample(a.Drawn, a.Senders, a.Renamed, now)
	}
	if s.knows && a.Redriven != s.redriven {
		from = 0
	}
	s.redriven, s.knows = a.Redriven, true
	if from < None {
		s.catchUp(from)
	}
	return forgotten
}

func (s *Sequencer) catchUp(from int64) {
	for _, w := range s.walks {
		w.catchUp(from)
	}
}

// Redriven returns the queue's counter of redrives, as far as it is known.
func (s *Sequencer) Redriven() int64 { return s.redriven }

// Reread has all messages read again before rows of later answers are delivered: after a session was lost, the database
// might give numbers again that it gave before.
func (s *Sequencer) Reread() { s.catchUp(0) }

// Deliver returns up to n messages whose turn it is, in order. Each of them is delivered until Settled.
func (s *Sequencer) Deliver(n int, now time.Duration) (list []Delivery) {
	for _, m := range s.take(ready, out, n, func(m *Message) bool { return !s.stopped(m) }) {
		m.delivery, m.given, m.redriven = DeliveryFence(m.Fence, m.key.slot.Fence), true, s.redriven
		list = append(list, Delivery{
			Message: m, Fence: m.delivery, Contents: m.contents,
			Expired: m.diesAt > 0 && m.diesAt <= now, Crashed: s.crashed(m),
		})
		s.setContents(m, nil, 0)
	}
	return list
}

// Settled notes what became of the delivery of a message under a fence.
func (s *Sequencer) Settled(m *Message, fence int64, e Settle, now time.Duration) {
	if !m.given || m.delivery != fence || !m.busy() {
		return
	}
	switch e.Outcome {
	case Acked, Dead:
		if e.Outcome == Dead {
			s.hold(m.key, m.redriven, now)
		}
		s.end(m, now)
	case Given:
		s.giveBack(m, GivenFence(m.Fence, m.delivery), now)
		m.dueAt = now + e.Wait
	case InTx:
		if m.state == out {
			m.until, m.pauses, m.returned = e.Until, 0, false
			s.pause(m, inTx, now)
		}
		return
	case Unknown:
		if m.state == out || m.state == inTx || m.state == toAsk || m.state == asking {
			s.list(m, toUndo)
		}
		return
	}
	s.advance(m.key, now)
	s.rest(m, now)
}

// Unreadable notes, before the Answer to its Fetch, that the contents of a message cannot be read. It is delivered with others in
// their place.
func (s *Sequencer) Unreadable(m *Message, contents any, now time.Duration) {
	if m.state != fetching {
		return
	}
	s.set(m, idle)
	s.setContents(m, contents, 0)
	s.advance(m.key, now)
}

// Ended has the row of a message in a transaction looked at now: its handler has returned. If the transaction was rolled back,
// the message is delivered again. Until then, or until the end of the lease, the handler may settle it.
func (s *Sequencer) Ended(m *Message, fence int64) {
	if m.delivery != fence {
		return
	}
	m.returned = true
	if m.state == inTx {
		m.pauses = 0
		s.list(m, toAsk)
	}
}

// Due returns the time at which Plan might return a task for the budget.
func (s *Sequencer) Due(b Budget, now time.Duration) time.Duration {
	at := time.Duration(None)
	for _, state := range []state{toLook, toAsk, toUndo, toFetch, toMark} {
		if bounded := state >= toFetch && state <= toMark; len(s.lists[state]) > 0 && (!bounded || b.Room > 0 && !s.trial.alone) {
			return now
		}
	}
	if t := s.trial.m; t != nil && (t.state == toMark || t.state == toFetch) {
		return now
	}
	if len(s.timers) > 0 {
		at = s.timers[0].at
	}
	if len(s.held) > 0 {
		at = min(at, s.heldAt)
	}
	if len(s.suspects) > 0 && !s.trial.begun {
		at = min(at, now+firstPause)
	}
	for _, w := range s.walks {
		switch {
		case s.reading != nil:
		case w.readAt > now:
			at = min(at, w.readAt)
		case b.Room > 0 && (!w.read || w.more || b.Poll) && s.blocked() < s.cfg.Blocked:
			at = now
		case w.pending != nil:
			at = min(at, w.catchAt)
		case w.slow != nil:
			at = now
		case w.read && !w.more:
			at = min(at, w.slowAt)
		}
	}
	return max(at, now)
}

// bounds reports whether reads walk what is left of rows that were deleted: on PostgreSQL, while a snapshot is open.
func (s *Sequencer) bounds() bool { return !s.cfg.OneWriter && !s.cfg.SampleIsFirst }

// Rests reports whether nothing is under way or due, and each walk was read to its end.
func (s *Sequencer) Rests(now time.Duration) bool {
	if s.busy > 0 || s.nReady > 0 || s.reading != nil || len(s.suspects) > 0 {
		return false
	}
	for k := range s.spilled {
		if k.refills() {
			return false
		}
	}
	for _, list := range s.lists {
		if len(list) > 0 {
			return false
		}
	}
	for _, t := range s.timers {
		if t.m.state == waiting && t.m.wakeAt == t.at && t.m.dueAt <= now { // it is locked
			return false
		}
	}
	for _, sl := range s.slots {
		if sl.leaving || len(sl.line) > 0 {
			return false
		}
	}
	for _, w := range s.walks {
		if !w.read || w.more || w.pending != nil {
			return false
		}
	}
	return true
}

// blocked returns how many keys in memory have no deliverable message.
func (s *Sequencer) blocked() int { return s.keys - s.nReady }

// Counts returns what is in memory.
func (s *Sequencer) Counts() Counts {
	c := Counts{
		Slots: len(s.slots), Keys: s.keys, Blocked: s.blocked(), Spilled: len(s.spilled),
		Ready: s.nReady, Unread: max(0, s.withContents-s.nReady), Bytes: s.bytes,
	}
	for _, w := range s.walks {
		c.Cursor, c.Safe = max(c.Cursor, w.cursor), max(c.Safe, w.safe)
	}
	return c
}
