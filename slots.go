package chanq

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The slots of an ordered queue, as one member sees them: which it has, which it is to
// take, and which to give back. Nothing here asks the database or knows the time:
// slots_run.go does.
//
// Once a second a member looks at all slots and counts the members. Its share is
// ⌈slots/members⌉. Who has more gives the rest back: such a slot is claimed no more, what
// waits of it is released, and once nothing of it is handed out it is nobody's. Who has
// less takes those that are nobody's, or whose owner is gone.
//
//	foreign ──look: free, or ours in the database──▶ asked ──taken──▶ ours
//	  ▲                                                ▲  ◀─doubt────  │ more than the share
//	  │                                                │               ▼
//	  └──────────given────── emptied ◀──drained── leaving
//	                            └───── below the share: taken again ──┘
//
// What keeps slots from wandering: a greater count of members counts for giving back
// only at the second look in a row that sees it, so that one who comes and goes moves
// nothing.
//
// What keeps slots from lying about: a member is counted as long as it lives, whether it
// takes slots or not (it may be ending, or standing still). So a slot that stays free for
// some seconds is taken by whoever sees it, more of them each second, whatever his share;
// and they are not given back for a while, unless the members become others.
//
// What keeps a thousand members from asking a thousand times a second: one that has no slot, as
// there are more members than slots, looks the more rarely the more there are, at a pace of
// its own. So those that wait look as often as those that have one, all together, and a slot
// that becomes free is seen at once by one of them.
//
// That two members never have one slot is the database's doing: a take succeeds only
// where the slot is free, its owner's membership is over, or it is the asker's own, and
// only while the asker's membership lasts. Here a slot counts as lost at the local end of
// the membership that it was taken in, which is never later. Each take raises the slot's
// fence, which claims and gives name: those of before that arrive late do nothing.

const (
	// slotsEvery is the time from one look to the next; half of it after the members have
	// become others, for as long as it may take until all have seen that.
	slotsEvery    = time.Second
	slotsRestless = 4 * time.Second
	// slotsPatience is the most between two looks of a member that has no slot, where there are
	// more members than slots.
	slotsPatience = 4 * time.Second
	// slotsSoon is that to one that somebody is in a hurry for.
	slotsSoon = 50 * time.Millisecond
	// slotsStarve is for how long a slot is left to those whose share it should be.
	slotsStarve = 3 * time.Second
	// slotsKeep is for how long what was taken beyond the share is kept at first;
	// it doubles up to slotsKeepMost.
	slotsKeep     = 30 * time.Second
	slotsKeepMost = 10 * time.Minute
	// mostVainTakes is how many takes in a row others may be faster than before the next look
	// has time.
	mostVainTakes = 4
)

// slotUser hears what becomes of the slots of a member. It is called by whoever calls
// tenure's methods, in the same goroutine.
type slotUser interface {
	// slotTaken: the slot is ours from now on, or again, under a new fence: no claim of
	// before leases anything of it from now on. Whatever was known of it may be
	// outdated; it is to be read from its beginning.
	slotTaken(slot int, fence int64)
	// slotLeaving: claim nothing more of it, and release what waits. Tell
	// tenure.drained once nothing of it is handed out.
	slotLeaving(slot int)
	// slotGone: the slot is not ours any more.
	slotGone(slot int)
	// handedOut is how many leases of the slot are handed out: a slot with few is given
	// back first.
	handedOut(slot int) int
}

// slotState is that of one slot, as in the diagram above.
type slotState uint8

const (
	slotForeign slotState = iota // another's, nobody's, or nobody knows whose
	slotAsked                    // to be taken, or to be taken again, before anything of it is claimed
	slotOurs                     // may be claimed
	slotLeaves                   // ours, but not claimed any more: something of it is handed out
	slotEmptied                  // ours, and to be given back
)

// slotNote is what a member knows of one slot.
type slotNote struct {
	state slotState
	told  bool  // the user has it: slotTaken, and no slotGone since
	fence int64 // where it is ours
	free  bool  // at the last look somebody might have taken it
	since time.Duration
}

// ownSlot is a slot that may be claimed.
type ownSlot struct {
	slot  int
	fence int64
}

// slotRow is a slot as a look saw it.
type slotRow struct {
	slot  int
	owner [16]byte // zero: nobody
	gone  bool     // the owner's membership is over
	fence int64
}

// slots is what one member knows. Only one goroutine uses it.
type slots struct {
	member [16]byte
	user   slotUser
	notes  []slotNote
	ending bool // all are given back, and none taken

	looked  bool          // there was a look, in this membership
	last    time.Duration // the last one
	next    time.Duration // of the next one
	members int           // at the last look
	fewest  int           // at the last two
	changed time.Duration // when they were others than at the look before
	turn    int           // where the search for free slots begins
	pace    time.Duration // of its looks while it has no slot, of 256: no two are in step for long
	vain    int           // takes in a row that others were faster than

	// What was taken beyond the share.
	kept     int           // so many may be kept
	keptTill time.Duration // until then
	keeping  time.Duration // for how long, the next time
	keptOf   int           // members then
}

func newSlots(n int, member [16]byte, user slotUser) *slots {
	s := &slots{member: member, user: user, notes: make([]slotNote, n)}
	for _, b := range member { // members begin at different places
		s.turn = (s.turn*31 + int(b)) % n
		s.pace = (s.pace*31 + time.Duration(b)) % 128
	}
	s.pace += 128
	return s
}

// share of each of so many members.
func (s *slots) share(members int) int { return (len(s.notes) + members - 1) / max(1, members) }

func (s *slots) count(states ...slotState) (n int) {
	for i := range s.notes {
		if slices.Contains(states, s.notes[i].state) {
			n++
		}
	}
	return n
}

// list returns the slots of a state.
func (s *slots) list(state slotState) (list []ownSlot) {
	for i := range s.notes {
		if s.notes[i].state == state {
			list = append(list, ownSlot{i, s.notes[i].fence})
		}
	}
	return list
}

// lapse: the membership is over, or another one. Whatever was ours may be another's.
func (s *slots) lapse() {
	for i := range s.notes {
		s.lose(i)
	}
	s.looked, s.members, s.next = false, 0, 0
}

// lose notes that a slot is not ours.
func (s *slots) lose(slot int) {
	n := &s.notes[slot]
	told := n.told
	*n = slotNote{}
	if told {
		s.user.slotGone(slot)
	}
}

// doubt: the outcome of a claim is unknown, so that it may lease messages yet. Nothing is
// claimed before the slots have new fences.
func (s *slots) doubt() {
	for i := range s.notes {
		if s.notes[i].state == slotOurs {
			s.notes[i].state = slotAsked
		}
	}
}

// unscanned: a claim that named this slot has not read it. It is another's, or has
// another fence, or the queue is paused.
func (s *slots) unscanned(slot int) {
	if s.notes[slot].state == slotOurs {
		s.next = min(s.next, s.last+slotsEvery/4)
	}
}

// hurry: a look soon is worth it.
func (s *slots) hurry() { s.next = min(s.next, s.last+slotsSoon) }

// drained: nothing of a slot that leaves is handed out.
func (s *slots) drained(slot int) {
	if s.notes[slot].state == slotLeaves {
		s.notes[slot].state = slotEmptied
	}
}

// end has all slots given back, and none taken any more.
func (s *slots) end() {
	s.ending = true
	for i := range s.notes {
		switch n := &s.notes[i]; {
		case n.state == slotOurs, n.state == slotAsked && n.told:
			s.leave(i)
		case n.state == slotAsked:
			s.lose(i)
		}
	}
}

// leave begins to give a slot back.
func (s *slots) leave(slot int) {
	s.notes[slot].state = slotLeaves
	s.user.slotLeaving(slot)
}

// look takes what a look saw that began at now, and decides what to do about it.
func (s *slots) look(rows []slotRow, members int, now time.Duration) {
	before := s.members
	s.members = max(1, members)
	s.fewest = s.members
	if s.looked {
		s.fewest = min(before, s.members)
	}
	if !s.looked || before != s.members {
		s.changed = now
	}
	s.looked, s.last, s.next = true, now, now+slotsEvery
	if now-s.changed < slotsRestless {
		s.next = now + slotsEvery/2
	}
	for _, row := range rows {
		if row.slot >= 0 && row.slot < len(s.notes) {
			s.see(row, now)
		}
	}
	if !s.ending {
		s.grow(now)
		s.shrink(now)
		if s.members > len(s.notes) && s.count(slotForeign) == len(s.notes) {
			s.next = now + max(slotsEvery/2, s.patience())
		}
	}
}

// patience is the time to the next look of one that has no slot.
func (s *slots) patience() time.Duration {
	return min(slotsPatience, slotsEvery*time.Duration(s.members)/time.Duration(len(s.notes))) * s.pace / 256
}

// see takes what a look saw of one slot.
func (s *slots) see(row slotRow, now time.Duration) {
	n := &s.notes[row.slot]
	ours := row.owner == s.member
	free := row.owner == [16]byte{} || row.gone && !ours
	switch {
	case ours && n.state == slotForeign: // a take whose answer was lost, or of an earlier membership
		n.state, n.fence = slotEmptied, row.fence
	case ours:
		if n.state == slotOurs && n.fence != row.fence {
			n.state = slotAsked // a take has come late: taken again, so that claims have its fence
		}
		n.fence = row.fence
	case n.state == slotAsked && !n.told && free:
	case n.state != slotForeign:
		s.lose(row.slot)
	}
	if free && !n.free {
		n.since = now
	}
	n.free = free
}

// grow asks for slots up to the share.
func (s *slots) grow(now time.Duration) {
	share := s.share(s.members)
	wanted := max(share, s.starving(now)) - s.count(slotOurs, slotAsked)
	had := s.count(slotOurs, slotAsked)
	for _, state := range []slotState{slotEmptied, slotLeaves, slotForeign} {
		for range s.notes {
			if wanted <= 0 {
				break
			}
			s.turn = (s.turn + 1) % len(s.notes)
			if n := &s.notes[s.turn]; n.state == state && (state != slotForeign || n.free) {
				n.state = slotAsked
				wanted--
			}
		}
	}
	if have := s.count(slotOurs, slotAsked); have > share && have > had {
		s.keep(have, now)
	}
}

// starving is how many slots to have where some stay free: as if there were fewer
// members, half as many each second.
func (s *slots) starving(now time.Duration) int {
	members := s.members
	for i := range s.notes {
		if n := &s.notes[i]; n.free && n.state == slotForeign {
			few := s.members
			for over := now - n.since - slotsStarve; over >= 0 && few > 1; over -= time.Second {
				few = (few + 1) / 2
			}
			members = min(members, few)
		}
	}
	if members == s.members {
		return 0
	}
	return s.share(members)
}

// keep notes that there are more than the share now, and for how long that is right.
func (s *slots) keep(n int, now time.Duration) {
	if s.keptOf != s.members {
		s.keeping = slotsKeep
	} else if now >= s.keptTill {
		s.keeping = min(2*s.keeping, slotsKeepMost)
	}
	s.kept, s.keptTill, s.keptOf = n, now+s.keeping, s.members
}

// shrink begins to give back what is more than the share. A slot of which least is handed
// out goes first: it is another's soonest.
func (s *slots) shrink(now time.Duration) {
	keep := s.share(s.fewest)
	if now < s.keptTill && s.members == s.keptOf {
		keep = max(keep, s.kept)
	}
	excess := s.count(slotOurs, slotAsked) - keep
	if excess <= 0 {
		return
	}
	list := s.list(slotOurs)
	busy := make(map[int]int, len(list))
	for _, own := range list {
		busy[own.slot] = s.user.handedOut(own.slot)
	}
	slices.SortStableFunc(list, func(a, b ownSlot) int { return cmp.Compare(busy[a.slot], busy[b.slot]) })
	for _, own := range list[:min(excess, len(list))] {
		s.leave(own.slot)
	}
}

// took takes the answer of a take of the slots that were asked for.
func (s *slots) took(asked []ownSlot, got []ownSlot) {
	for _, own := range got {
		if n := &s.notes[own.slot]; n.state == slotAsked {
			n.state, n.told, n.fence, n.free = slotOurs, true, own.fence, false
			s.user.slotTaken(own.slot, own.fence)
		}
	}
	short := false
	for _, own := range asked {
		if s.notes[own.slot].state == slotAsked { // others were faster
			s.lose(own.slot)
			short = true
		}
	}
	if s.vain++; !short {
		s.vain = 0
	} else if s.vain <= mostVainTakes {
		s.hurry()
	}
}

// gave takes the answer of a give: a slot that was not ours is not ours either.
func (s *slots) gave(asked []ownSlot) {
	for _, own := range asked {
		if s.notes[own.slot].state == slotEmptied {
			s.lose(own.slot)
		}
	}
}

// wait is for how long there is nothing to do.
func (s *slots) wait(now time.Duration) time.Duration {
	switch {
	case s.count(slotAsked, slotEmptied) > 0:
		return 0
	case s.ending:
		return math.MaxInt64
	}
	return max(0, s.next-now)
}
