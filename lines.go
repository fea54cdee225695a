package chanq

import (
	"cmp"
	"slices"
	"time"
)

// Lines: the messages of an ordered queue that this consumer has to do with, each key's in
// a line of its own.
//
// A line holds leases and entries, by their numbers. An entry is a row that is known and
// not ours: not due yet, or in the hands of somebody else. Its place in the line keeps
// what is behind it from going first. One lease of a line is handed out at a time, the
// first, and the next only when what became of that one is in the database:
//
//	acked, dead, cancelled             it is over, and the next one goes
//	nacked, given back, lost, unknown  it is an entry, and the line is closed until it is
//	                                   claimed again, or a claim finds that it is gone
//
// A row that committed late is put into its place; what was handed out stays with its
// reader. lines ask nobody and know no statement: claims and outcomes are told to them
// (what to claim: lines_plan.go). They are used under one lock (dispatch.go).
type lines struct {
	config    lineConfig
	slots     []*lineSlot // those we own, by number
	ready     []*spot     // handed out, and not on the channel yet: first come first
	scans     uint64      // claims begun
	questions uint64      // for held lines, begun
	rotate    int         // number of the slot that is served first
	inTx      []*spot     // acked in transactions whose end is not known
	back      []*lease    // to be given back to the database by the caller
	lost      []*lease    // superseded by a later claim of ours, to be told so

	waiting int          // leases that wait for their line, of all slots
	held    int          // lines that the dead hold
	had     map[int]bool // slots that were ever ours, by number

	inTurn    []*lineSlot // room for turns
	freeLines []keyLine   // to be used next
	freeSpots []spot
	places    []rowPlace // room for claimed
	touched   []*keyLine // room for claimedOf

	// wanted: there may be more to claim, or a slot is drained; knew: there are new entries.
	wanted, knew bool
}

type lineConfig struct {
	prefetch int
	leaseFor time.Duration
	holds    bool // a dead message keeps its line closed
	hides    bool // claims pass over what a transaction is deleting: Traits.HidesDeletes
}

func (q *queue) lineConfig(prefetch int, leaseFor time.Duration) lineConfig {
	return lineConfig{
		prefetch: prefetch, leaseFor: leaseFor,
		holds: q.cfg.DeadKey == DeadKeyHolds, hides: q.dialect.Traits().HidesDeletes,
	}
}

// lineKey names a line within its slot: by a key, or by the ID of a message without one.
type lineKey struct {
	name  string
	keyed bool
}

// lineSlot is a slot that this consumer owns, or is about to give back.
type lineSlot struct {
	number int
	fence  int64
	most   int // lines that may have a lease handed out at a time; 0: no bound

	mark    int64 // up to where its rows are known
	sweepAt time.Duration
	mine    bool          // leases may be ours that we do not know of
	claims  time.Duration // until then a claim from before may lease something yet
	doubt   bool          // nor is it known whether somebody's transaction is deleting messages
	ours    bool          // it may be claimed now
	closing bool
	asks    bool // which keys the dead hold is to be asked before anything is handed out
	stalled bool // it was not claimed, since so much of it waits

	spots   map[int64]*spot // by number
	ended   []ID            // left the queue since the last claim was planned, which may tell of them yet
	lines   map[lineKey]*keyLine
	entries []*spot
	waiting int
	out     int
	blocked []*keyLine // whose turn it is, beyond most
}

// keyLine is the line of one key.
type keyLine struct {
	slot    *lineSlot
	key     lineKey
	spots   []*spot  // by number
	first   [1]*spot // room for those of a line of one
	busy    int      // turns that are out or aside
	held    bool     // by a dead message
	since   uint64   // the last question for held lines that began before it was
	blocked bool
}

// spot is the place of one message in its line.
type spot struct {
	line  *keyLine
	seq   int64
	lease *lease // the last that we had; nil: none
	state spotState
	// message is the *Lease[T] of one that waits or is ready, and nobody else has.
	message any

	// Of an entry.
	index   int // among the slot's
	at      time.Duration
	born    uint64 // the last claim that began before
	doubt   bool   // the lease that we had may be running yet
	absent  bool   // a claim did not tell of it, and a transaction may be deleting it
	suspect bool   // it was passed over, perhaps as a suspect
	spared  bool   // and that by a claim that left suspects out: one of it may find it free
	tries   uint8  // how often it was found in somebody's hands

	// Of one that was acked in a transaction.
	watched bool // it is in inTx
	looks   uint8
	lookAt  time.Duration
}

type spotState uint8

const (
	spotWaits spotState = iota // ours, and behind others
	spotOut                    // handed out, until its outcome is known
	spotAside                  // ours, to be set aside or given back; nobody gets it
	spotKnown                  // an entry
	spotOver                   // in no line any more
)

func newLines(config lineConfig) *lines { return &lines{config: config, had: map[int]bool{}} }

// slot returns the slot of this number, or nil.
func (ls *lines) slot(number int) *lineSlot {
	i, found := slices.BinarySearchFunc(ls.slots, number, func(s *lineSlot, n int) int { return cmp.Compare(s.number, n) })
	if !found {
		return nil
	}
	return ls.slots[i]
}

// open begins with a slot that was taken, or begins anew with one that was taken again
// after a claim of unknown outcome. most lines of it may be at work at a time; 0 is no
// bound.
func (ls *lines) open(number int, fence int64, most int, now time.Duration) {
	s := ls.slot(number)
	if s == nil {
		s = &lineSlot{number: number, spots: map[int64]*spot{}, lines: map[lineKey]*keyLine{}, asks: ls.config.holds}
		i, _ := slices.BinarySearchFunc(ls.slots, number, func(s *lineSlot, n int) int { return cmp.Compare(s.number, n) })
		ls.slots = slices.Insert(ls.slots, i, s)
	}
	s.fence, s.most, s.ours, s.closing = fence, most, true, false
	s.mark, s.sweepAt, s.doubt = 0, now, true
	if ls.had[number] {
		s.mine, s.claims = true, now+ls.config.leaseFor
	}
	ls.had[number] = true
}

// close begins to give a slot back: what waits is to be given back to the database, and
// what readers have goes on. Once it is drained, drop it.
func (ls *lines) close(number int) {
	s := ls.slot(number)
	if s == nil || s.closing {
		return
	}
	s.closing = true
	for len(s.entries) > 0 {
		ls.over(s.entries[0])
	}
	ls.giveBack(func(t *spot) bool { return t.line.slot == s })
}

// giveBack gives back the leases of which that is true and that no reader has.
func (ls *lines) giveBack(that func(*spot) bool) {
	ls.ready = slices.DeleteFunc(ls.ready, func(t *spot) bool {
		if t.state == spotOut && that(t) {
			ls.handIn(t)
			return true
		}
		return t.state != spotOut
	})
	for _, s := range ls.slots {
		for _, t := range s.spots {
			if t.state == spotWaits && that(t) {
				ls.handIn(t)
			}
		}
	}
}

// handIn has the lease of a spot given back.
func (ls *lines) handIn(t *spot) {
	ls.count(t, -1)
	t.state, t.message = spotAside, nil
	ls.count(t, +1)
	ls.back = append(ls.back, t.lease)
}

// drop ends a slot that was given back, or is another's now. What is left of it, if it
// was lost, is nobody's turn any more: leases of ours have ended, or end by themselves.
func (ls *lines) drop(number int) {
	s := ls.slot(number)
	if s == nil {
		return
	}
	ls.giveBack(func(t *spot) bool { return t.line.slot == s })
	for _, t := range s.spots {
		ls.count(t, -1)
		t.end()
	}
	for _, l := range s.lines {
		ls.release(l)
	}
	ls.slots = slices.DeleteFunc(ls.slots, func(o *lineSlot) bool { return o == s })
}

// collect returns the leases to be given back, and those to be told that they are lost.
func (ls *lines) collect() (back, lost []*lease) {
	back, lost = ls.back, ls.lost
	ls.back, ls.lost = nil, nil
	return back, lost
}

// next returns a lease for a reader, and the message that is its, or nil.
func (ls *lines) next() (l *lease, message any) {
	for len(ls.ready) > 0 {
		t := ls.ready[0]
		ls.ready[0] = nil
		ls.ready = ls.ready[1:]
		if t.state == spotOut { // it may have run out here
			message, t.message = t.message, nil
			return t.lease, message
		}
	}
	ls.ready = nil
	return nil, nil
}

// count adds to the counts what a spot is.
func (ls *lines) count(t *spot, d int) {
	s := t.line.slot
	switch t.state {
	case spotWaits:
		s.waiting += d
		ls.waiting += d
	case spotOut:
		s.out += d
		t.line.busy += d
	case spotAside:
		t.line.busy += d
	case spotKnown:
		if d > 0 {
			t.index = len(s.entries)
			s.entries = append(s.entries, t)
			return
		}
		last := s.entries[len(s.entries)-1]
		s.entries[t.index], last.index = last, t.index
		s.entries[len(s.entries)-1] = nil
		s.entries = s.entries[:len(s.entries)-1]
	}
	if d < 0 && s.stalled && s.used() <= ls.share()/2 {
		s.stalled, ls.wanted = false, true
	}
}

// insert puts a message that was found into its line.
func (ls *lines) insert(s *lineSlot, row *lineRow, state spotState) *spot {
	l := s.lines[row.key]
	if l == nil {
		l = oneOf(&ls.freeLines)
		l.slot, l.key, l.spots = s, row.key, l.first[:0]
		s.lines[row.key] = l
	}
	t := oneOf(&ls.freeSpots)
	t.line, t.seq, t.lease, t.state = l, row.seq, row.lease, state
	if state == spotWaits {
		t.message = row.message
	}
	i := len(l.spots)
	for i > 0 && l.spots[i-1].seq > t.seq {
		i--
	}
	l.spots = slices.Insert(l.spots, i, t)
	s.spots[t.seq] = t
	if t.lease != nil {
		t.lease.spot = t
	}
	ls.count(t, +1)
	return t
}

// end parts a spot from its lease: who keeps the one is not to keep the other in memory, nor
// its neighbours, with which it was made.
func (t *spot) end() {
	if t.lease != nil {
		t.lease.spot = nil
	}
	t.state, t.lease, t.message = spotOver, nil, nil
}

// lineSlab is how many spots, or lines, are made at once.
const lineSlab = 16

// oneOf returns one of a slab, which is nobody's yet.
func oneOf[V any](slab *[]V) *V {
	if len(*slab) == 0 {
		*slab = make([]V, lineSlab)
	}
	v := &(*slab)[0]
	*slab = (*slab)[1:]
	return v
}

// over takes a spot out of its line.
func (ls *lines) over(t *spot) {
	if t.state != spotKnown {
		t.line.slot.ended = append(t.line.slot.ended, t.lease.item.ID)
	}
	ls.count(t, -1)
	t.end()
	l := t.line
	l.spots = slices.DeleteFunc(l.spots, func(o *spot) bool { return o == t })
	delete(l.slot.spots, t.seq)
	ls.wanted = ls.wanted || l.slot.closing && len(l.slot.spots) == 0
	ls.advance(l)
}

// know makes an entry of a spot.
func (ls *lines) know(t *spot, at time.Duration, doubt bool) {
	if t.line.slot.closing {
		ls.over(t)
		return
	}
	ls.count(t, -1)
	t.state, t.message, t.at, t.doubt, t.absent, t.born = spotKnown, nil, at, doubt, false, ls.scans
	ls.count(t, +1)
	ls.knew = true
	ls.advance(t.line)
}

// advance hands out the first lease of a line, if it may go, and those of other lines that
// had to wait for one to end.
func (ls *lines) advance(l *keyLine) {
	s := l.slot
	for len(s.blocked) > 0 && s.out < s.most {
		first := s.blocked[0]
		s.blocked = s.blocked[1:]
		first.blocked = false
		ls.handOut(first)
	}
	ls.handOut(l) // behind those, so that one key does not keep the others from work
	if len(l.spots) == 0 && !l.held && s.lines[l.key] == l {
		delete(s.lines, l.key)
	}
}

func (ls *lines) handOut(l *keyLine) {
	s := l.slot
	if l.busy > 0 || l.held || s.closing || s.asks || len(l.spots) == 0 || l.spots[0].state != spotWaits {
		return
	}
	if s.most > 0 && s.out >= s.most {
		if !l.blocked {
			l.blocked = true
			s.blocked = append(s.blocked, l)
		}
		return
	}
	t := l.spots[0]
	ls.count(t, -1)
	t.state = spotOut
	ls.count(t, +1)
	ls.ready = append(ls.ready, t)
}

// moved is told of every change of the state of a lease that was claimed for a line.
func (ls *lines) moved(l *lease, now time.Duration) {
	t := l.spot
	if t == nil || t.lease != l {
		return
	}
	switch l.state.Load() {
	case leaseInTx:
		if t.state == spotOut {
			t.lookAt, t.looks = now+firstLook, 0
			if !t.watched { // not by a transaction before, which was rolled back
				t.watched = true
				ls.inTx = append(ls.inTx, t)
			}
		}
	case leaseExpired, leaseLost:
		if t.state != spotKnown {
			ls.know(t, now, true)
		}
	case leaseSettled:
		ls.concluded(t, l, now)
	}
}

// concluded is told of a settle that has an outcome. It may be that of a lease that had
// run out here.
func (ls *lines) concluded(t *spot, l *lease, now time.Duration) {
	if l.err != nil && l.err != ErrSettled { // which a commit of the caller's has acked
		ls.know(t, now, true)
		return
	}
	switch {
	case l.err != nil || l.op == settleAck:
		ls.over(t)
	case l.op == settleDead:
		if ls.config.holds && t.line.key.keyed {
			ls.hold(t.line)
		}
		ls.over(t)
	default:
		t.suspect = l.suspect
		ls.know(t, now+l.delay, false)
	}
}
