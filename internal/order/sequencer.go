package order

import (
	"slices"
	"time"
)

// Sequencer keeps the messages of one consumer in order. It is not safe for concurrent use.
type Sequencer struct {
	mem    memory
	queues queues
	reads  reads
	first  bool // the next Plan prefers a read
}

// New returns a Sequencer that owns no slot.
func New(cfg Config) *Sequencer {
	s := &Sequencer{mem: memory{cfg: &cfg, spilled: map[*keyQueue]bool{}, ended: map[name]int64{}}}
	s.reads = reads{mem: &s.mem}
	s.queues = queues{
		mem: &s.mem, slots: map[int]*slot{},
		held: held{mem: &s.mem, redriven: -1, keys: map[*keyQueue]bool{}},
	}
	return s
}

// Take adds slots that were taken. A slot that is already owned keeps its busy messages: their readers have them.
func (s *Sequencer) Take(list []Slot, now time.Duration) {
	var taken []*slot
	for _, t := range list {
		sl := s.queues.slots[t.Number]
		if sl == nil {
			sl = &slot{mem: &s.mem, keys: map[keyName]*keyQueue{}}
			s.queues.slots[t.Number] = sl
		}
		s.reads.leave(sl)
		s.queues.clear(sl, false)
		sl.Slot, sl.doubt = t, false
		taken = append(taken, sl)
	}
	s.reads.add(taken, now)
	s.queues.move(now)
}

// SetPolicy changes whether dead messages hold their keys, and how many keys of each slot are at work at once. Held
// keys open when the database answers that nothing holds them.
func (s *Sequencer) SetPolicy(holds bool, keys func(slot int) int, now time.Duration) {
	h := &s.queues.held
	closes := holds && !s.mem.cfg.Holds
	s.mem.cfg.Holds = holds
	for number, sl := range s.queues.slots {
		sl.Keys = keys(number)
		sl.fill()
		for _, k := range sl.keys {
			if closes { // until it is known that no dead message holds it
				h.add(k, h.redriven)
			}
		}
	}
	s.queues.move(now)
}

// Return begins to return a slot: no more of its messages are delivered, and its marks are released. When none of its
// messages is busy, the caller returns it, and then drops it.
func (s *Sequencer) Return(number int, now time.Duration) {
	if sl := s.queues.slots[number]; sl != nil && sl.walk != nil {
		s.reads.leave(sl)
		sl.change()
		s.queues.move(now)
	}
}

// Doubt reports whether an outcome of a slot is unknown. When such a slot is returned, its Old becomes the last number
// drawn.
func (s *Sequencer) Doubt(number int) bool {
	sl := s.queues.slots[number]
	return sl != nil && sl.doubt
}

// Drop forgets a slot that was returned or lost. Later outcomes of its messages have no effect here.
func (s *Sequencer) Drop(number int, now time.Duration) {
	if sl := s.queues.slots[number]; sl != nil {
		s.reads.leave(sl)
		s.queues.clear(sl, true)
		delete(s.queues.slots, number)
		s.queues.move(now)
	}
}

// Busy returns how many messages of a slot are delivered or being written.
func (s *Sequencer) Busy(number int) int {
	if sl := s.queues.slots[number]; sl != nil {
		return sl.busy()
	}
	return 0
}

// Leaving reports whether the slot of a message is being returned, or is not owned any more.
func (s *Sequencer) Leaving(m *Message) bool { return m.state == over || m.key.slot.walk == nil }

// Awaited reports whether other messages wait for the end of the message's delivery.
func (s *Sequencer) Awaited(m *Message) bool {
	k := m.key
	return m.given && m.busy() && (len(k.all) > 1 || k.spill < None || len(k.slot.line) > 0)
}

// Plan returns the next task, or nil. Each task must be passed to Answer. Only one Read or Refill runs at a time.
func (s *Sequencer) Plan(b Budget, now time.Duration) *Task {
	s.mem.wake(now)
	s.queues.move(now)
	var t *Task
	if s.first = !s.first; s.first {
		t = s.reads.plan(b, now)
	}
	if t == nil {
		t = s.queues.plan(b, now)
	}
	if t == nil {
		t = s.reads.plan(b, now)
	}
	return t
}

// Blocked notes, before Answer, that a read has waited for a lock until its timeout. Its walk is split in two, until
// the slot of the locked row is read alone: then only that slot waits. Blocked reports whether the walk was split.
// PostgreSQL's reads never wait for row locks: there the statement itself has timed out, and Answer bounds the next
// reads.
func (s *Sequencer) Blocked(t *Task) (split bool) {
	if s.reads.bounds() || t.Slow { // Answer ends a slow read
		return false
	}
	t.walk.blocked = true
	split = len(t.walk.slots) > 1 // else Answer delays its next read
	if split {
		s.reads.split(t.walk)
	}
	return split
}

// Answer applies the answer to a task. A nil answer is unknown: the statement failed, or the term, the consumer's ID or
// the membership has changed since the request. Answer reports whether the database forgot numbers: then all slots must
// be dropped and taken again.
func (s *Sequencer) Answer(t *Task, a *Answer, now time.Duration) (forgotten bool) {
	isRead, walked := t.Kind == Read || t.Kind == Refill, a != nil && a.Walked
	if isRead {
		s.mem.reading = false
	}
	if a != nil && (isRead || t.Kind == Look || t.Kind == Fetch) { // the kinds that check whether the queue is paused
		s.mem.paused = !a.Walked
	}
	if isRead && s.reads.bounds() {
		t.walk.stretch(t, a, s.reads.water.drawn, now)
	}
	ready, redriven := s.reads.water.Ready, s.queues.held.redriven
	if walked && s.hear(a, isRead, now) {
		return true
	}
	if s.mem.cfg.WatermarkFirst {
		ready = s.reads.water.Ready
	}
	switch {
	case t.Kind == Held && walked:
		s.open(s.queues.held.opens(t, a), a, redriven)
	case t.Kind == Held:
	case !isRead:
		s.queues.answered(t, a, now)
	case !walked:
		t.walk.failed(t, now)
	default:
		coming := s.mem.coming()
		s.queues.insertAll(t, a, now)
		if t.Kind == Read {
			t.walk.took(t, a, s.mem.coming()-coming, ready, now)
		}
	}
	s.queues.move(now)
	return false
}

// open opens keys that a check has found free. If there was a redrive since a key was closed, what it brought back is
// read first: by a catch-up that the answer has caused, because it was the first to report that redrive, or by one
// more.
func (s *Sequencer) open(keys []*keyQueue, a *Answer, redriven int64) {
	if a.Redriven == redriven && slices.ContainsFunc(keys, func(k *keyQueue) bool { return k.note != redriven }) {
		s.reads.catchUp(0)
	}
	for _, k := range keys {
		s.queues.held.open(k)
	}
}

// hear applies what an answer reports in addition to its rows.
func (s *Sequencer) hear(a *Answer, sampled bool, now time.Duration) (forgotten bool) {
	h, from := &s.queues.held, int64(None)
	if sampled && a.Drawn >= 0 {
		from, forgotten = s.reads.water.Sample(a.Drawn, a.Senders, now)
	}
	if a.Redriven >= 0 && a.Redriven != h.redriven {
		if h.redriven >= 0 {
			from = 0
		}
		h.redriven = a.Redriven
	}
	if from < None {
		s.reads.catchUp(from)
	}
	return forgotten
}

// Reread makes all messages be read again before rows of later answers are delivered: after a session was lost, the
// database might assign numbers again.
func (s *Sequencer) Reread() { s.reads.catchUp(0) }

// Deliver returns up to n messages that may be delivered, in order. Each of them is busy until Settled.
func (s *Sequencer) Deliver(n int, now time.Duration) (list []Delivery) {
	s.mem.take(ready, n, nil, func(m *Message) {
		s.mem.set(m, out)
		m.delivery, m.given, m.redriven = DeliveryFence(m.Fence, m.key.slot.Fence), true, s.queues.held.redriven
		list = append(list, Delivery{
			Message: m, Fence: m.delivery, Contents: m.contents,
			Expired: m.diesAt > 0 && m.diesAt <= now, Crashed: s.queues.crashed(m),
		})
		s.mem.setContents(m, nil)
	})
	return list
}

// Settled notes the outcome of the delivery of a message under a fence. until is the time of Given and InTx.
func (s *Sequencer) Settled(m *Message, fence int64, o Outcome, until, now time.Duration) {
	if !m.given || m.delivery != fence || !m.busy() {
		return
	}
	switch o {
	case Acked:
		s.queues.end(m)
	case Dead:
		s.queues.held.add(m.key, m.redriven)
		s.queues.end(m)
	case Given:
		s.queues.released(m, GivenFence(m.Fence, m.delivery))
		m.dueAt = until
	case InTx:
		switch m.state {
		case out:
			m.until, m.pauses, m.returned = until, 0, false
			s.mem.pause(m, inTx, now)
		case inTx: // an extension that was sent before was answered
			m.until = max(m.until, until)
		}
	case Returned:
		if m.returned = true; m.state == inTx && m.task == nil {
			m.pauses = 0
			s.mem.list(m, inTx)
		}
	case Unknown:
		if m.state == out || m.state == inTx {
			s.mem.list(m, toUndo)
		}
	}
	s.queues.move(now)
}

// Unreadable notes, before the Answer to its Fetch, that the contents of a message cannot be read. It is delivered with
// the given contents instead.
func (s *Sequencer) Unreadable(m *Message, contents Contents, now time.Duration) {
	if m.state == toFetch && m.task != nil {
		s.mem.set(m, idle)
		s.mem.setContents(m, contents)
		s.queues.move(now)
	}
}

// Due returns the time at which Plan might return a task for the budget.
func (s *Sequencer) Due(b Budget, now time.Duration) time.Duration {
	at := min(s.mem.due(b.Room > 0, now), s.reads.due(b))
	if len(s.queues.held.keys) > 0 {
		at = min(at, s.queues.held.at)
	}
	return max(at, now)
}

// Rests reports whether no task is running or due, and each walk was read to its end.
func (s *Sequencer) Rests(now time.Duration) bool {
	for _, sl := range s.queues.slots {
		if sl.walk == nil {
			return false
		}
	}
	return s.mem.rests(now) && s.reads.rests()
}

// Counts returns what is in memory.
func (s *Sequencer) Counts() Counts {
	ready := s.mem.counts[ready]
	return Counts{Slots: len(s.queues.slots), Blocked: s.mem.blocked(), Ready: ready,
		Unread: max(0, s.mem.contents-ready)}
}
