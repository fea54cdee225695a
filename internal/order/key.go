package order

import (
	"slices"
	"time"
)

// keyQueue is the queue of one key.
type keyQueue struct {
	slot  *slot
	name  keyName
	all   []*Message // by number
	busy  int
	spill int64 // messages from this number on are not in memory
	held  bool
	note  int64 // the queue's counter of redrives when the key became held, or was asked about
}

// keyName is the name of a key. A message without a key has a queue of its own.
type keyName struct {
	key   string
	keyed bool
}

// slot is an owned slot.
type slot struct {
	Slot
	walk    *walk // nil: it is leaving
	keys    map[keyName]*keyQueue
	busy    int
	atWork  int
	line    []*Message // queued, as MaxKeys is reached
	leaving bool
	doubt   bool
}

func (k *keyQueue) remove(m *Message) {
	if i := slices.Index(k.all, m); i >= 0 {
		k.all = slices.Delete(k.all, i, i+1)
	}
}

// keyOf returns the queue of a key.
func (s *Sequencer) keyOf(sl *slot, n keyName) *keyQueue {
	k := sl.keys[n]
	if k == nil {
		k = &keyQueue{slot: sl, name: n, spill: None}
		sl.keys[n] = k
		s.keys++
	}
	return k
}

// forget takes a key out of memory.
func (s *Sequencer) forget(k *keyQueue) {
	if k.slot.keys[k.name] == k {
		delete(k.slot.keys, k.name)
		s.keys--
	}
	delete(s.spilled, k)
	delete(s.held, k)
}

// insert takes a row of a read into the queue of its key.
func (s *Sequencer) insert(w *walk, row *Row, redriven int64, now time.Duration) {
	sl := s.slots[row.Slot]
	if sl == nil || sl.walk != w {
		return
	}
	if fence, ended := s.ended[name{row.ID, row.Seq}]; ended && row.Fence <= fence {
		return
	}
	k := s.keyOf(sl, keyName{row.Key, row.Keyed})
	if row.Held {
		s.hold(k, redriven, now)
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
		s.setContents(known, nil, 0) // the database gave the number twice: this row is gone, which a fetch finds
		s.recall(known, now)
	}
	m := &Message{ID: row.ID, Seq: row.Seq, Slot: row.Slot, key: k, gate: w.gate()}
	s.adopt(m, row, now)
	k.all = slices.Insert(k.all, i, m)
	if m.gate != nil {
		m.gate.keys = append(m.gate.keys, k)
	}
	if i == 0 && len(k.all) > 1 {
		s.recall(k.all[1], now)
	}
	if len(k.all) > s.unread()+1 {
		s.spill(k, now)
	}
	s.advance(k, now)
	if m.state != ready && s.bytes > s.cfg.Bytes {
		s.setContents(m, nil, 0)
	}
}

// spill takes the last message out of memory that is neither busy nor marked.
func (s *Sequencer) spill(k *keyQueue, now time.Duration) {
	for i := len(k.all) - 1; i >= 0; i-- {
		if m := k.all[i]; !m.busy() && !m.mine {
			s.recall(m, now)
			s.set(m, over)
			s.setContents(m, nil, 0)
			k.remove(m)
			k.spill = m.Seq
			s.spilled[k] = true
			return
		}
	}
}

// unread returns how many messages a key keeps.
func (s *Sequencer) unread() int {
	return max(s.cfg.Unread, min(s.cfg.MostUnread, s.cfg.Unread*s.cfg.Blocked/max(1, s.keys)))
}

// planRefill returns the read of spilled keys that have no message before their spilled number in memory. All such keys
// of a walk share it. It begins where the refill before has ended, so that keys far behind are read in turn.
func (s *Sequencer) planRefill(b Budget, now time.Duration) *Task {
	if b.Room <= 0 {
		return nil
	}
	var due []*keyQueue
	var w *walk
	first, next := int64(None), int64(None)
	for k := range s.spilled {
		if !k.refills() || w != nil && k.slot.walk != w || now < k.slot.walk.readAt {
			continue
		}
		w = k.slot.walk
		due = append(due, k)
		first = min(first, refillFrom(k))
		if refillFrom(k) >= w.refilled {
			next = min(next, refillFrom(k))
		}
	}
	if w == nil {
		return nil
	}
	if next == None {
		next = first
	}
	t := &Task{Kind: Refill, From: next, Cursor: w.cursor, Upto: w.cursor, walk: w}
	t.bound(next)
	for _, k := range due {
		if refillFrom(k) >= next {
			t.refill, t.Keys = append(t.refill, k), append(t.Keys, k.name.key)
		}
	}
	t.Rows = min(s.cfg.Rows, s.unread()*len(t.refill)+1)
	if b.Rows > 0 {
		t.Rows = min(t.Rows, b.Rows)
	}
	if b.Bare {
		t.Old = None
	}
	return t
}

// refills reports whether the messages of a spilled key are to be read.
func (k *keyQueue) refills() bool {
	return !k.held && !k.slot.leaving && (len(k.all) == 0 || k.all[0].Seq >= k.spill)
}

func refillFrom(k *keyQueue) int64 { return min(k.slot.walk.safe, k.spill-1) }

// refill takes the answer to a refill.
func (s *Sequencer) refill(t *Task, a *Answer, now time.Duration) {
	for _, k := range t.refill {
		k.spill = None
	}
	for i := range a.Rows {
		s.insert(t.walk, &a.Rows[i], a.Redriven, now)
	}
	upto := min(a.Upto, t.Upto)
	if upto >= t.Cursor {
		upto = None
	}
	for _, k := range t.refill {
		if upto < None {
			k.spill = min(k.spill, upto+1)
		}
		if k.spill == None {
			delete(s.spilled, k)
		}
		s.advance(k, now)
	}
	if t.walk.refilled = upto; upto == None {
		t.walk.refilled = 0
	}
}

// hold closes a key until it is known that no dead message holds it.
func (s *Sequencer) hold(k *keyQueue, redriven int64, now time.Duration) {
	if !s.cfg.Holds || !k.name.keyed || k.held {
		return
	}
	k.held, k.note = true, redriven
	s.held[k] = true
	if len(k.all) > 0 {
		s.recall(k.all[0], now)
	}
}

// planHeld returns the question about held keys.
func (s *Sequencer) planHeld(n int, now time.Duration) *Task {
	if len(s.held) == 0 || now < s.heldAt {
		return nil
	}
	s.heldAt = now + heldEvery
	t := &Task{Kind: Held}
	for k := range s.held {
		if k.busy == 0 && !k.slot.leaving && len(t.refill) < n {
			t.refill = append(t.refill, k)
			t.Keys, t.KeySlots = append(t.Keys, k.name.key), append(t.KeySlots, k.slot.Number)
		}
	}
	if len(t.Keys) == 0 {
		return nil
	}
	return t
}

// holds takes the answer. A key opens if no redrive is later than its note, and no catch-up is pending.
func (s *Sequencer) holds(t *Task, a *Answer, isNew bool, now time.Duration) {
	asked := map[*walk]bool{}
	for i, k := range t.refill {
		w := k.slot.walk
		if !k.held || k.busy > 0 || w == nil || k.slot.keys[k.name] != k {
			continue
		}
		switch {
		case a.Held[i]:
			if len(k.all) == 0 && k.spill == None && a.Redriven == k.note && s.reading == nil {
				s.forget(k) // later reads report that it is held
			}
		case a.Redriven == k.note && w.pending == nil:
			k.held = false
			delete(s.held, k)
			s.advance(k, now)
		case a.Redriven != k.note:
			if k.note = a.Redriven; !isNew && !asked[w] {
				w.catchUp(0)
				asked[w] = true
			}
		}
	}
}
