package order

import (
	"slices"

	"github.com/chanq/chanq/sqlbatch"
)

// keyQueue is the queue of one key.
type keyQueue struct {
	slot  *slot
	name  keyName
	all   []*Message // by number
	spill int64      // messages from this number on are not in memory
	held  bool
	note  int64 // the queue's counter of redrives when the key became held
}

// keyName is the name of a key. A message without a key has a queue of its own.
type keyName struct {
	key   string
	keyed bool
}

// busy returns how many messages of the key are delivered or being written: at most 1, unless its slot was taken again.
func (k *keyQueue) busy() (n int) {
	for _, m := range k.all {
		if m.busy() {
			n++
		}
	}
	return n
}

// closed reports whether no message of the key may be delivered, including the first one, m.
func (k *keyQueue) closed(m *Message) bool {
	return k.busy() > 0 || k.held || k.slot.walk == nil || k.spill <= m.Seq || m.gate > k.slot.walk.done
}

// refills reports whether the messages of a spilled key must be read.
func (k *keyQueue) refills() bool {
	return !k.held && k.slot.walk != nil && (len(k.all) == 0 || k.all[0].Seq >= k.spill)
}

func (k *keyQueue) remove(m *Message) {
	if i := slices.Index(k.all, m); i >= 0 {
		k.all = slices.Delete(k.all, i, i+1)
	}
}

// slot is an owned slot. At most Keys of its messages are at work: each is due, and is the first message of an open
// key. Others are queued.
type slot struct {
	Slot
	mem    *memory
	walk   *walk // nil: it is leaving
	keys   map[keyName]*keyQueue
	atWork int
	line   []*Message // queued
	doubt  bool
}

func (s *slot) owned() sqlbatch.OwnedSlot { return sqlbatch.OwnedSlot{Slot: s.Number, Fence: s.Fence} }

// change notes that the keys of the slot have changed.
func (s *slot) change() {
	for _, k := range s.keys {
		s.mem.change(k)
	}
}

// busy returns how many messages of the slot are delivered or being written.
func (s *slot) busy() (n int) {
	for _, k := range s.keys {
		n += k.busy()
	}
	return n
}

func (s *slot) full() bool { return s.Keys > 0 && s.atWork >= s.Keys }

// enter reports whether a message may be at work. If it may not, enter queues it.
func (s *slot) enter(m *Message) bool {
	switch {
	case m.counted:
	case s.full():
		s.mem.set(m, queued)
		s.line = append(s.line, m)
	default:
		m.counted = true
		s.atWork++
	}
	return m.counted
}

// leave removes a message from the messages at work.
func (s *slot) leave(m *Message) {
	if m.counted {
		m.counted = false
		s.atWork--
		s.fill()
	}
}

// fill moves queued messages to free places.
func (s *slot) fill() {
	for len(s.line) > 0 && !s.full() {
		m := s.line[0]
		s.line = s.line[1:]
		if m.state == queued {
			s.enter(m)
			s.mem.set(m, idle)
		}
	}
}
