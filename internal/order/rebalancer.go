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
// Once a second, or less often while each slot has an owner, the caller reads all slots and counts the consumers: a
// look. The share is ⌈slots/consumers⌉. A consumer with fewer slots takes free ones: slots without an owner, or of an
// owner whose membership has ended. A consumer with more slots returns those with the fewest busy messages, when none
// is busy.
//
//   - Two looks: a greater number of consumers leads to a return only at the second look in a row. A consumer that
//     joins and leaves soon moves no slot.
//   - Starving: a consumer counts during its membership, whether it takes slots or not. If a slot has been free for
//     starveAfter, consumers take up to twice their share, and twice as many with each further second. Such slots are
//     kept for a while, unless the number of consumers changes.
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

	last      time.Duration // time of the last look
	next      time.Duration // time of the next look
	consumers int           // at the last look; 0: no look in this membership
	fewest    int           // lowest number of consumers at the last two looks
	changed   time.Duration // when the number of consumers changed
	turn      int           // where the search for free slots begins
	missed    int           // takes in a row that found a slot taken
	unwalked  bool          // a read was not walked since the last take or loss: there was one early look

	calm bool // see Calm

	kept     int // slots that may be kept beyond the share
	keptTill time.Duration
	keptOf   int // number of consumers then
}

const (
	lookEvery    = time.Second
	lookSettled  = 2500 * time.Millisecond // at most, while each slot has an owner
	lookCalm     = 10 * time.Second        // at most, while the caller is also notified of free slots
	lookRestless = 4 * time.Second         // time after a change with looks twice as often
	lookSoon     = 50 * time.Millisecond   // after an event
	starveAfter  = 3 * time.Second
	keepFor      = 2 * time.Minute // for slots beyond the share, which would starve otherwise
	mostMissed   = 4               // takes in a row that missed a slot and bring the next look forward
)

type slotState uint8

const (
	foreign slotState = iota // owned by another consumer, free, or unknown
	asked                    // to be taken, or to be taken again
	owned
	leaving // owned, and not read: its busy messages end
	emptied // owned, and to be returned
)

// notes has a note for each slot.
type notes []note

type note struct {
	state slotState
	fence int64
	free  bool // at the last look
	since time.Duration
}

// SlotRow is the row of a slot in a look. A zero Owner means no owner.
type SlotRow struct {
	Slot  int
	Owner [16]byte
	Gone  bool          // the owner's membership has ended
	Left  time.Duration // until the owner's membership ends unless it is prolonged
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
	r := &Rebalancer{self: self, messages: messages, notes: make(notes, slots)}
	for _, b := range self { // consumers begin at different places
		r.turn = (r.turn*31 + int(b)) % slots
	}
	return r
}

// Lost forgets all slots: the membership has ended. The consumer joins again as self.
func (r *Rebalancer) Lost(self [16]byte, now time.Duration) {
	for i := range r.notes {
		r.lose(i, now)
	}
	r.self, r.consumers, r.next = self, 0, 0
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

// Unwalked notes that a read of the slot was not walked: another consumer owns it, its fence has changed, or the queue
// is paused. The first such read brings the next look forward. If that look changes nothing, the queue is paused.
func (r *Rebalancer) Unwalked(slot int) {
	if r.notes[slot].state == owned && !r.unwalked {
		r.unwalked = true
		r.next = min(r.next, r.last+lookEvery/4)
	}
}

// Hurry brings the next look forward.
func (r *Rebalancer) Hurry() { r.next = min(r.next, r.last+lookSoon) }

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
		if n := &r.notes[i]; n.state != owned && (n.state != foreign || n.free) {
			return false
		}
	}
	return r.consumers > 0
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
			r.unwalked = false
			taken = append(taken, sl)
		}
	}
	if len(taken) > 0 {
		r.messages.Take(taken, now)
	}
	missed := 0
	for _, slot := range list {
		if r.notes[slot].state == asked { // another consumer took it
			r.lose(slot, now)
			missed = r.missed + 1
		}
	}
	if r.missed = missed; missed > 0 && missed <= mostMissed {
		r.Hurry()
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
	before := r.consumers
	r.consumers = max(1, consumers)
	r.fewest = min(r.consumers, cmp.Or(before, r.consumers))
	if r.last = now; before != r.consumers {
		r.changed = now
	}
	for _, row := range rows {
		if row.Slot >= 0 && row.Slot < len(r.notes) {
			r.see(row, now)
		}
	}
	if !r.ending {
		r.grow(now)
		r.shrink(now)
	}
	switch {
	case now-r.changed < lookRestless:
		r.next = now + lookEvery/2
	case !r.Settled():
		r.next = now + lookEvery
	default:
		if r.next = now + lookSettled; r.calm {
			r.next = now + lookCalm
		}
		for _, row := range rows {
			if row.Owner != r.self && row.Owner != [16]byte{} {
				r.next = min(r.next, now+max(row.Left, 0)+lookSoon)
			}
		}
	}
}

// Calm notes whether the caller calls Hurry when a consumer joins or returns slots. If it does, looks are less frequent
// while each slot has an owner. In any case the next look is not later than lookSoon after the end of another owner's
// membership.
func (r *Rebalancer) Calm(calm bool) {
	if r.calm && !calm {
		r.next = min(r.next, r.last+lookSettled)
	}
	r.calm = calm
}

func (r *Rebalancer) see(row SlotRow, now time.Duration) {
	n := &r.notes[row.Slot]
	mine := row.Owner == r.self
	free := row.Owner == [16]byte{} || row.Gone && !mine
	switch {
	case mine && n.state == foreign: // the answer to its take was lost
		n.state, n.fence = leaving, row.Fence
	case mine:
		if n.state == owned && n.fence != row.Fence { // a take was applied late: reads match only the new fence
			n.state = asked
		}
		n.fence = row.Fence
	case n.state == foreign:
	case n.state == asked && free:
		r.messages.Drop(row.Slot, now)
	default:
		r.lose(row.Slot, now)
	}
	if free && !n.free {
		n.since = now
	}
	n.free = free
}

// grow marks slots to be taken, up to the share.
func (r *Rebalancer) grow(now time.Duration) {
	had, share := r.notes.count(owned, asked), r.notes.share(r.consumers)
	wanted := r.notes.starving(r.consumers, now) - had
	for _, state := range []slotState{leaving, foreign} {
		for range r.notes {
			if wanted <= 0 {
				break
			}
			r.turn = (r.turn + 1) % len(r.notes)
			if n := &r.notes[r.turn]; n.state == state && (state != foreign || n.free) {
				n.state = asked
				wanted--
			}
		}
	}
	if have := r.notes.count(owned, asked); have > share && have > had {
		r.kept, r.keptTill, r.keptOf = have, now+keepFor, r.consumers
	}
}

// shrink begins to return the slots beyond the share.
func (r *Rebalancer) shrink(now time.Duration) {
	keep := r.notes.share(r.fewest)
	if now < r.keptTill && r.consumers == r.keptOf {
		keep = max(keep, r.kept)
	}
	excess := r.notes.count(owned, asked) - keep
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
	r.unwalked = false
	r.messages.Drop(slot, now)
}

// share returns the number of slots per consumer.
func (l notes) share(consumers int) int { return (len(l) + consumers - 1) / consumers }

// starving returns the share, or, if some slots stay free, a greater one: that of fewer consumers.
func (l notes) starving(consumers int, now time.Duration) int {
	fewest := consumers
	for _, n := range l {
		if n.free && n.state == foreign {
			few := consumers
			for over := now - n.since - starveAfter; over >= 0 && few > 1; over -= time.Second {
				few = (few + 1) / 2
			}
			fewest = min(fewest, few)
		}
	}
	return l.share(fewest)
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
