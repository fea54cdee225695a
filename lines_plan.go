package chanq

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// What lines ask of claims. What they make of the answers: lines_claimed.go.
//
// A claim of a slot walks its rows by number from its mark: up to there all rows are known
// that there will ever be. It leases what may be leased, and tells of what it has passed.
// The mark follows claims no farther than the horizon was before they were sent, below
// which no row could appear any more: so one that committed late is met before those that
// were sent after it.
//
// An entry that lies where a claim has walked, and of which it told nothing, is gone; if
// that claim began after the entry was made, and if it was to tell of our own leases, too,
// where the entry may be one. Where claims do not see what a transaction is deleting, only one
// in doubt says so: any other has the entry asked for by such a one.
//
// Where claims begin below the mark: at an entry whose time has come; and once in a while
// at the beginning, for what was given back, redriven or deleted by others.

const (
	// leastWaiting is how many leases and entries of a slot may wait at least before the
	// slot is claimed no more, but for its entries. By default that is more than a claim has room
	// for in all slots together, so that those that are ahead wait for those that are behind.
	leastWaiting = 24
	// slotEnd is the end of a slot.
	slotEnd = math.MaxInt64

	retryPause  = 20 * time.Millisecond // of an entry that somebody has locked, doubled
	retryPauses = 6                     // that often

	firstLook  = 50 * time.Millisecond // after the message was acked in a transaction, doubled
	lookPauses = 4                     // that often
)

// linePlan is what to claim.
type linePlan struct {
	parts []sqlbatch.SlotPart
	mine  bool   // tell of our own leases, too
	probe bool   // the one part is of a suspect
	known int    // rows that the claim may tell of besides what it leases
	spare bool   // suspects are left out
	scan  uint64 // number of this claim

	horizon int64 // as it was before the claim was sent
}

// share is how many leases and entries of a slot may wait.
func (ls *lines) share() int {
	return max(leastWaiting, ls.config.prefetch/max(1, len(ls.slots)))
}

// used is how many do.
func (s *lineSlot) used() int { return s.waiting + len(s.entries) }

// plan says what to claim now, no part: nothing. No row appears any more up to the
// horizon. With probe, and if some messages were passed over as suspects, it is a claim of
// one that is the first of its line, or else one that leaves them out.
func (ls *lines) plan(now time.Duration, horizon int64, sweepEvery time.Duration, probe bool) (p linePlan) {
	ls.scans++
	p.scan, p.horizon = ls.scans, horizon
	for _, s := range ls.slots {
		s.ended = s.ended[:0]
	}
	if probe {
		t, any := ls.suspect(now)
		p.spare = any
		if t != nil {
			s := t.line.slot
			p.mine, p.probe, p.spare = s.mine || t.doubt, true, false
			p.parts = []sqlbatch.SlotPart{{Slot: s.number, Fence: s.fence, From: t.seq - 1, Limit: 1, Doubt: p.mine || s.doubt || t.absent}}
			return p
		}
	}
	share := ls.share()
	for _, s := range ls.turns() {
		if s.closing || !s.ours {
			continue
		}
		if part, mine, any := s.part(now, share); any {
			if part.From == 0 {
				s.sweepAt = now + sweepEvery
			}
			p.parts = append(p.parts, part)
			p.mine = p.mine || mine
		}
	}
	for i := range p.parts {
		part := &p.parts[i]
		known := ls.slot(part.Slot).known(part.From, p.mine)
		part.Limit += known
		p.known += known
	}
	return p
}

// turns are the slots in the order in which they are claimed from: those first that are behind, so
// that what was sent first comes first, and neighbours in the table at about the same time. Where
// they are equal each is first in its turn.
func (ls *lines) turns() []*lineSlot {
	first, _ := slices.BinarySearchFunc(ls.slots, ls.rotate, func(s *lineSlot, n int) int { return cmp.Compare(s.number, n) })
	ls.inTurn = append(append(ls.inTurn[:0], ls.slots[first:]...), ls.slots[:first]...)
	slices.SortStableFunc(ls.inTurn, func(a, b *lineSlot) int { return cmp.Compare(a.mark, b.mark) })
	return ls.inTurn
}

// known is how many rows a claim of the slot may tell of that take no more room.
func (s *lineSlot) known(from int64, mine bool) (n int) {
	if mine {
		return len(s.spots)
	}
	for _, t := range s.entries {
		if t.seq > from {
			n++
		}
	}
	return n
}

// own is told which slots may be claimed, by number: others are to be taken anew before.
func (ls *lines) own(list []ownSlot) {
	for _, s := range ls.slots {
		for len(list) > 0 && list[0].slot < s.number {
			list = list[1:]
		}
		s.ours = len(list) > 0 && list[0] == ownSlot{s.number, s.fence}
	}
}

// suspect is the one to be tried next, nil if there is none yet; any says that some are known.
func (ls *lines) suspect(now time.Duration) (best *spot, any bool) {
	for _, s := range ls.slots {
		if s.closing || !s.ours {
			continue
		}
		for _, t := range s.entries {
			if !t.suspect {
				continue
			}
			any = true
			if t.first() && (t.at <= now || t.spared) && (best == nil || cmp.Or(cmp.Compare(t.tries, best.tries), cmp.Compare(t.at, best.at)) < 0) {
				best = t
			}
		}
	}
	return best, any
}

// first: nothing but its own state keeps the message from being handed out.
func (t *spot) first() bool { return t.line.spots[0] == t && !t.line.held && t.line.busy == 0 }

// part is what to claim of a slot, if anything. Its Limit is without the rows that are known.
func (s *lineSlot) part(now time.Duration, share int) (p sqlbatch.SlotPart, mine, any bool) {
	from := s.mark
	room := share - s.used()
	any = s.used() <= share/2 // not a row at a time
	s.stalled = !any
	mine = s.mine
	doubt := s.doubt
	if now >= s.sweepAt {
		from, any = 0, true
	}
	for _, t := range s.entries {
		if t.at <= now && !t.line.held {
			from, any = min(from, t.seq-1), true
			mine, doubt = mine || t.doubt, doubt || t.absent
		}
	}
	if !any {
		return p, false, false
	}
	return sqlbatch.SlotPart{Slot: s.number, Fence: s.fence, From: from, Limit: max(1, room), Doubt: mine || doubt}, mine, true
}

// forget has all slots walked from the beginning: the database may have lost what it had
// confirmed, so numbers below the marks may come again, those of suspects too: a claim of one
// alone might find another message there, and not the one before that.
func (ls *lines) forget(now time.Duration) {
	for _, s := range ls.slots {
		s.mark, s.sweepAt, s.mine, s.claims = 0, now, true, now+ls.config.leaseFor
		for _, t := range s.entries {
			t.suspect = false
		}
	}
}

// view is what a look is to tell the due time of: what the next claims would begin with.
func (ls *lines) view(now time.Duration) (parts []sqlbatch.SlotPart) {
	share := ls.share()
	for _, s := range ls.slots {
		if s.closing || s.used() > share/2 {
			continue
		}
		part := sqlbatch.SlotPart{Slot: s.number, Fence: s.fence, From: s.mark, Limit: share}
		if now >= s.sweepAt {
			part.From = 0
		}
		parts = append(parts, part)
	}
	return parts
}

// postpone is told how long the next look from the beginning has time, after a claim that
// looked from there.
func (ls *lines) postpone(p linePlan, until time.Duration) {
	for _, part := range p.parts {
		if s := ls.slot(part.Slot); s != nil && part.From == 0 {
			s.sweepAt = max(s.sweepAt, until)
		}
	}
}

// viewed is told that a look found nothing to claim there. It does instead of a claim
// from the beginning, where there are no entries that may be gone.
func (ls *lines) viewed(parts []sqlbatch.SlotPart, now, sweepEvery time.Duration) {
	for _, p := range parts {
		if s := ls.slot(p.Slot); s != nil && p.From == 0 && len(s.entries) == 0 && !s.mine {
			s.sweepAt = now + sweepEvery
		}
	}
}

// leaving are the slots that are being given back, and drained.
func (ls *lines) leaving() (drained []int) {
	for _, s := range ls.slots {
		if s.closing && len(s.spots) == 0 {
			drained = append(drained, s.number)
		}
	}
	return drained
}

// due is when an entry, or a look from the beginning where there are entries, is due.
func (ls *lines) due() (at time.Duration, any bool) {
	at = math.MaxInt64
	for _, s := range ls.slots {
		if s.closing || !s.ours {
			continue
		}
		for _, t := range s.entries {
			if !t.line.held {
				at = min(at, t.at)
			}
		}
		if len(s.entries) > 0 {
			at = min(at, s.sweepAt)
		}
	}
	return at, at < math.MaxInt64
}

// sweep has the slots looked through from the beginning by the next claim.
func (ls *lines) sweep(now time.Duration) {
	for _, s := range ls.slots {
		s.sweepAt = min(s.sweepAt, now)
	}
}

// stalled is how many slots are claimed no more but for their entries.
func (ls *lines) stalled() (n int) {
	share := ls.share()
	for _, s := range ls.slots {
		if s.used() > share/2 {
			n++
		}
	}
	return n
}
