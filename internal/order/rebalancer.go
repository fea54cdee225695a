package order

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Rebalancer decides which slots a consumer takes and returns. The caller runs the statements and passes their answers.
//
//	foreign ──look: free──▶ asked ──took──▶ owned
//	   ▲                      ▲  ◀─doubt──    │ more than the share
//	   │                      │               ▼
//	   └─────────gave─────────┴─below──── leaving
//	                            the share
//
// Once a second, or less often among hundreds, the caller reads all slots and counts the consumers: a look. The share
// is ⌈slots/consumers⌉. A consumer with fewer slots takes free ones: slots without an owner, or of an owner whose
// membership has ended. A consumer with more slots returns those with the fewest busy messages, when none is busy.
//
// A consumer counts during its membership, whether it takes slots or not: it might be about to end, or hang. A consumer
// therefore takes slots that starve beyond its share, as many again as it has. It keeps them, and returns one at a
// time. When another consumer has taken that one, it returns the next.
//
// The database ensures that a slot has one owner: a take succeeds only if the slot is free or the consumer's own, and
// the consumer's membership has not ended. Each take raises the slot's fence.
//
// It is not safe for concurrent use.
type Rebalancer struct {
	self     [16]byte
	messages Messages
	notes    notes
	ending   bool
	next     time.Duration // time of the next look
	kept     int           // slots beyond the share after the last take of slots that starved; 0: none
}

type slotState uint8

const (
	foreign slotState = iota // owned by another consumer, free, or unknown
	asked                    // to be taken, or to be taken again
	owned
	leaving // owned, and not read: its busy messages end
)

// notes has a note for each slot.
type notes []note

type note struct {
	state slotState
	fence int64
	free  time.Duration // the first look since it is free; another: it is not; 0: unknown
}

const another = -1 // another consumer owned the slot at the last look

// SlotRow is the row of a slot in a look. A zero Owner means no owner, or one whose membership has ended.
type SlotRow struct {
	Slot  int
	Owner [16]byte
	Fence int64
}

// Messages are the messages of the owned slots: a Sequencer.
type Messages interface {
	Busy(slot int) int
	Doubt(slot int) bool
	Take(taken []Slot, now time.Duration)
	Return(slot int, now time.Duration)
	Drop(slot int, now time.Duration) // no effect on an unknown slot
}

// NewRebalancer returns a Rebalancer that owns none of the given number of slots.
func NewRebalancer(slots int, self [16]byte, messages Messages) *Rebalancer {
	return &Rebalancer{self: self, messages: messages, notes: make(notes, slots)}
}

// Lost forgets all slots: the membership has ended. The consumer joins again as self.
func (r *Rebalancer) Lost(self [16]byte, now time.Duration) {
	for i := range r.notes {
		r.lose(i, now)
	}
	r.self, r.next = self, 0
}

// Doubt drops all owned slots, to be taken again under new fences: the database has forgotten numbers.
func (r *Rebalancer) Doubt(now time.Duration) {
	for i := range r.notes {
		if r.notes[i].state == owned {
			r.messages.Drop(i, now)
			r.notes[i].state = asked
		}
	}
}

// Hurry brings the next look forward. Looks are not more frequent than every 50 ms.
func (r *Rebalancer) Hurry(now time.Duration) { r.next = min(r.next, now+lookEvery/20) }

// End begins to return all slots. No more are taken.
func (r *Rebalancer) End(now time.Duration) {
	r.ending = true
	for i := range r.notes {
		if state := r.notes[i].state; state == owned || state == asked {
			r.leave(i, now)
		}
	}
}

// Empty reports whether no slot is owned.
func (r *Rebalancer) Empty() bool { return r.notes.count(foreign) == len(r.notes) }

// Settled reports whether each slot is owned by this consumer or by another one whose membership has not ended.
func (r *Rebalancer) Settled() bool {
	for i := range r.notes {
		if n := &r.notes[i]; n.state != owned && (n.state != foreign || n.free != another) {
			return false
		}
	}
	return true
}

// Asked returns the slots to be taken.
func (r *Rebalancer) Asked() (list []int) {
	for _, o := range r.notes.list(asked) {
		list = append(list, o.Slot)
	}
	return list
}

// Emptied returns the slots to be returned now: none of their messages is busy.
func (r *Rebalancer) Emptied() []sqlbatch.OwnedSlot {
	list := r.notes.list(leaving)
	for i, o := range list {
		list[i].Doubt = r.messages.Doubt(o.Slot)
	}
	return slices.DeleteFunc(list, func(o sqlbatch.OwnedSlot) bool { return r.messages.Busy(o.Slot) > 0 })
}

// Owned returns the slots that are read.
func (r *Rebalancer) Owned() []sqlbatch.OwnedSlot { return r.notes.list(owned) }

// Took applies the answer to a take.
func (r *Rebalancer) Took(list []int, got []Slot, now time.Duration) {
	var taken []Slot
	for _, sl := range got {
		if n := &r.notes[sl.Number]; n.state == asked {
			*n = note{state: owned, fence: sl.Fence}
			taken = append(taken, sl)
		}
	}
	if len(taken) > 0 {
		r.messages.Take(taken, now)
	}
	for _, slot := range list {
		if r.notes[slot].state == asked { // another consumer took it
			r.lose(slot, now)
			if len(taken) > 0 { // else its row might be locked
				r.Hurry(now)
			}
		}
	}
}

// Gave applies the answer to a return. A slot that was not returned belonged to another consumer.
func (r *Rebalancer) Gave(list []sqlbatch.OwnedSlot, now time.Duration) {
	for _, o := range list {
		if r.notes[o.Slot].state == leaving {
			r.lose(o.Slot, now)
		}
	}
}

// Due reports whether a look is due, and if not, for how long there is nothing to do.
func (r *Rebalancer) Due(now time.Duration) (look bool, wait time.Duration) {
	switch {
	case !r.ending && now >= r.next:
		return true, 0
	case r.notes.count(asked) > 0 || len(r.Emptied()) > 0:
		return false, 0
	case r.ending:
		return false, math.MaxInt64
	}
	return false, r.next - now
}

// Look applies the answer to a look that began at now.
func (r *Rebalancer) Look(rows []SlotRow, consumers int, now time.Duration) {
	r.next = now + lookEvery*time.Duration(1+consumers/100) // of a thousand consumers, some hundred a second
	for _, row := range rows {
		if row.Slot >= 0 && row.Slot < len(r.notes) {
			r.see(row, now)
		}
	}
	if !r.ending {
		share := (len(r.notes)-1)/max(1, consumers) + 1
		r.grow(share, now)
		r.shrink(share, now)
	}
}

func (r *Rebalancer) see(row SlotRow, now time.Duration) {
	n := &r.notes[row.Slot]
	mine := row.Owner == r.self
	free := row.Owner == [16]byte{}
	switch {
	case mine && n.state == foreign: // the answer to its take was lost
		n.state, n.fence = leaving, row.Fence
	case mine:
		if n.state == owned && n.fence != row.Fence { // a take was applied late: reads match only the new fence
			n.state = asked
		}
		n.fence = row.Fence
	case n.state == foreign:
	default:
		r.lose(row.Slot, now)
	}
	switch {
	case !free:
		n.free = another
	case n.free <= 0:
		n.free = now
	}
}

// grow marks slots to be taken, up to the share, or more if they starve. Each consumer tries them in another order.
func (r *Rebalancer) grow(share int, now time.Duration) {
	had := r.notes.count(owned, asked)
	have := had
	for _, i := range random(r.self, int64(now)).Perm(len(r.notes)) {
		n := &r.notes[i]
		free := n.state == foreign && n.free > 0
		starves := free && now-n.free >= 2*lookEvery
		if have < share && (free || n.state == leaving) || have < 2*had && starves {
			n.state = asked
			have++
		}
	}
	switch {
	case have <= share:
		r.kept = 0
	case have > had:
		r.kept = have
	}
}

// shrink begins to return the slots beyond the share.
func (r *Rebalancer) shrink(share int, now time.Duration) {
	have, keep := r.notes.count(owned, asked), r.kept
	free := func(n note) bool { return n.state == leaving || n.state == foreign && n.free > 0 }
	if !slices.ContainsFunc(r.notes, free) {
		if keep > have {
			r.kept = have // another consumer has taken the one that this one returned
		}
		keep = r.kept - 1
	}
	excess := have - max(share, keep)
	if excess <= 0 {
		return
	}
	list := r.notes.list(owned)
	slices.SortStableFunc(list, func(a, b sqlbatch.OwnedSlot) int {
		return cmp.Compare(r.messages.Busy(a.Slot), r.messages.Busy(b.Slot))
	})
	for _, o := range list[:min(excess, len(list))] {
		r.leave(o.Slot, now)
	}
}

func (r *Rebalancer) leave(slot int, now time.Duration) {
	r.notes[slot].state = leaving
	r.messages.Return(slot, now)
}

func (r *Rebalancer) lose(slot int, now time.Duration) {
	r.notes[slot] = note{}
	r.messages.Drop(slot, now)
}

func (l notes) count(states ...slotState) (n int) {
	for i := range l {
		if slices.Contains(states, l[i].state) {
			n++
		}
	}
	return n
}

func (l notes) list(state slotState) (list []sqlbatch.OwnedSlot) {
	for i := range l {
		if l[i].state == state {
			list = append(list, sqlbatch.OwnedSlot{Slot: i, Fence: l[i].fence})
		}
	}
	return list
}
