package chanq

import (
	"cmp"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// What lines make of the answer to a claim. What they ask, and what a mark is: lines_plan.go.

// lineRow is a row of a claim.
type lineRow struct {
	id    ID
	slot  int
	seq   int64
	key   lineKey
	lease *lease        // nil: it was passed
	wait  time.Duration // of one that was passed, until it may be claimed

	message any // of the lease
}

// lineEnd says up to where a slot was walked.
type lineEnd struct {
	slot int
	seq  int64
}

// claimed is told what a claim found. Leases that are in state settling are to be set
// aside by the caller.
func (ls *lines) claimed(p linePlan, rows []lineRow, ends []lineEnd, now time.Duration) {
	ls.places = placesOfRows(ls.places[:0], rows)
	reached := make(map[int]int64, len(ends))
	for _, e := range ends {
		reached[e.slot] = e.seq
	}
	served := true
	for i, part := range p.parts {
		end, walked := reached[part.Slot]
		if (!walked || end == part.From) && served && !p.probe {
			ls.rotate, served = part.Slot, false // the next claim begins with it
		}
		if i == len(p.parts)-1 && served && !p.probe {
			ls.rotate = part.Slot + 1
		}
		first, _ := slices.BinarySearchFunc(ls.places, part.Slot, func(at rowPlace, slot int) int { return cmp.Compare(int(at.slot), slot) })
		own := ls.places[first:]
		n := 0
		for n < len(own) && int(own[n].slot) == part.Slot {
			n++
		}
		ls.claimedOf(p, part, rows, own[:n], end, walked, now)
	}
}

// rowPlace is where in a claim's answer a row is. It is sorted in the place of the row, which is large.
type rowPlace struct {
	slot, at int32
	seq      int64
}

// placesOfRows appends the places of rows, by slot and number.
func placesOfRows(places []rowPlace, rows []lineRow) []rowPlace {
	for i := range rows {
		places = append(places, rowPlace{int32(rows[i].slot), int32(i), rows[i].seq})
	}
	slices.SortFunc(places, func(a, b rowPlace) int {
		if a.slot != b.slot {
			return cmp.Compare(a.slot, b.slot)
		}
		return cmp.Compare(a.seq, b.seq)
	})
	return places
}

// claimedOf is claimed for one slot.
func (ls *lines) claimedOf(p linePlan, part sqlbatch.SlotPart, rows []lineRow, places []rowPlace, end int64, walked bool, now time.Duration) {
	s := ls.slot(part.Slot)
	if s == nil || s.closing || s.fence != part.Fence {
		for _, place := range places {
			if l := rows[place.at].lease; l != nil {
				ls.back = append(ls.back, l)
			}
		}
		return
	}
	last := part.From
	touched := ls.touched[:0]
	for _, place := range places {
		r := &rows[place.at]
		last = max(last, r.seq)
		t := ls.found(s, r, p, now)
		if p.probe && r.seq > part.From+1 && t != nil && t.state == spotWaits {
			ls.handIn(t) // the suspect is gone, and who knows what lies before this one
		}
		if t != nil {
			touched = append(touched, t.line)
		}
	}
	if !walked { // paused, or not ours any more, which the next look tells
		again := now + slotsSoon
		if part.From == 0 {
			s.sweepAt = again
		}
		for _, t := range s.entries {
			t.at = max(t.at, again)
		}
	} else {
		ls.walked(s, p, part, end, now)
		switch {
		case part.From > s.mark: // a probe
		case end == slotEnd:
			s.mark = max(s.mark, min(last, p.horizon))
			s.mine = s.mine && !(p.mine && now >= s.claims) // every claim since was told of ours
			s.doubt = s.doubt && !part.Doubt
		case part.From == 0:
			s.mark = min(end, p.horizon) // there is more than was known: the next claim goes on from here
		default:
			s.mark = max(s.mark, min(end, p.horizon))
		}
	}
	for _, l := range touched {
		ls.advance(l)
		ls.giveBackSuspects(l)
	}
	clear(touched)
	ls.touched = touched[:0]
}

// found puts a row of a claim into its line. It returns nil where that changes nothing.
func (ls *lines) found(s *lineSlot, r *lineRow, p linePlan, now time.Duration) *spot {
	t := s.spots[r.seq]
	if t != nil && (r.lease != nil || t.line.key != r.key || t.state != spotKnown && t.lease.item.ID != r.id) {
		// We had it before, or knew of it; or the database gives its number to another.
		ls.replace(t)
		t = nil
	}
	switch {
	case r.lease != nil:
		return ls.take(s, r, now)
	case t == nil && slices.Contains(s.ended, r.id):
		return nil // the claim saw it before it went
	case t == nil:
		t = ls.insert(s, r, spotKnown)
	case t.state != spotKnown:
		return nil // its outcome tells
	}
	pauses := t.suspect && t.at > now // this claim was for others
	t.born, t.doubt, t.absent, t.suspect, t.spared = p.scan, p.mine, false, r.wait <= 0, p.spare
	switch {
	case !t.suspect:
		t.at, t.tries = now+r.wait+time.Millisecond, 0
	case !pauses:
		t.pause(now)
	}
	return t
}

// pause has an entry wait for its next try, longer each time.
func (t *spot) pause(now time.Duration) {
	t.at = now + retryPause<<t.tries
	t.tries = min(t.tries+1, retryPauses)
}

// replace ends a spot whose place another takes.
func (ls *lines) replace(t *spot) {
	if t.state != spotKnown {
		ls.lost = append(ls.lost, t.lease)
	}
	ls.count(t, -1)
	t.end()
	l := t.line
	l.spots = slices.DeleteFunc(l.spots, func(o *spot) bool { return o == t })
	delete(l.slot.spots, t.seq)
	if len(l.spots) == 0 && !l.held {
		delete(l.slot.lines, l.key)
	}
}

// take puts a lease into its line.
func (ls *lines) take(s *lineSlot, r *lineRow, now time.Duration) *spot {
	state := spotWaits
	if r.lease.state.Load() == leaseSettling {
		state = spotAside
	}
	t := ls.insert(s, r, state)
	// What became of it before it had a spot was told to nobody.
	ls.moved(r.lease, now)
	return t
}

// walked takes note that a claim has told of all rows of a slot behind the beginning of its
// part up to a number. The entries that it told of were born with it.
func (ls *lines) walked(s *lineSlot, p linePlan, part sqlbatch.SlotPart, end int64, now time.Duration) {
	if part.Doubt && end == part.From { // something there is locked, or there was no room
		for _, t := range s.entries {
			if t.at <= now && t.seq > part.From {
				t.pause(now)
			}
		}
		return
	}
	for i := len(s.entries) - 1; i >= 0; i-- { // what takes the place of one that is over was seen
		t := s.entries[i]
		switch {
		case t.seq <= part.From, t.seq > end, t.born >= p.scan, t.doubt && !(p.mine && part.Doubt):
		case ls.config.hides && !part.Doubt:
			if !t.absent {
				t.absent, t.at = true, now
			}
		default:
			if ls.config.holds {
				s.asks = s.asks || t.line.key.keyed // it may be dead
			}
			ls.over(t)
		}
	}
}
