package order

import (
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// The database of the model: rows, senders, slots and memberships, and the statements as the package comment and the
// comments of Kind require them.

const (
	simSlots   = 2
	simKeys    = 3
	simRows    = 14
	simCrashes = 3
)

type simRow struct {
	n                 int // from 1
	key               int
	seq, fence        int64
	visible, released bool // of the sender: the commit, and the end of its lock
	gone, dead, died  bool
	cancelled         bool
	locked            bool // by a transaction that acks it
	by                int  // the consumer that has marked it; 0: none
	lapses            int
	due               time.Duration
	poison            bool
	before            []*simRow // rows that were sent before it
	delivered         int64     // fence of the last delivery
	deliveries        int
	guilt             int // how often in a row its holder ended, or a handler kept it for too long
}

func (*simRow) Bytes() int { return 1 }

func (r *simRow) alive() bool    { return r.visible && !r.dead && !r.gone }
func (r *simRow) slot() int      { return r.key % simSlots }
func (r *simRow) id() [16]byte   { return [16]byte{byte(r.n)} }
func (r *simRow) keyed() string  { return fmt.Sprint("k", r.key) }
func (r *simRow) sender() string { return fmt.Sprint("s", r.n) }

type simSlot struct {
	owner int // the consumer's ID; 0: none
	fence int64
	old   int64
}

// fault is a deliberate break of the database or of the caller.
type fault string

const (
	none               fault = ""
	forgetOld          fault = "a take does not set old"
	noDeadline         fault = "messages are delivered after the end of the membership"
	uncountedRedrive   fault = "a redrive is not counted"
	cleanReturn        fault = "a return ignores doubt"
	settleWithoutFence fault = "a settle does not match the fence"
	markWithoutFence   fault = "a mark does not match the fence"
	nackKeepsFence     fault = "a nack does not raise the fence"
	deadKeepsFence     fault = "a dead letter does not raise the fence above the delivery's"
	markKeepsFence     fault = "a mark does not raise the fence"
	lockedIsAbsent     fault = "a look takes a locked row for absent"
	cutRefillWhole     fault = "a refill that was cut reports that it reached its end"
	heldRowsUnreported fault = "a read does not report that a key is held"
	ownMarksCount      fault = "a mark counts an expired lease of its own consumer"
)

// Random walks find the faults in the first list soon, those in the second one after up to some ten thousand walks.
var (
	faults = []fault{
		forgetOld, noDeadline, uncountedRedrive, nackKeepsFence, deadKeepsFence, markKeepsFence, lockedIsAbsent,
		heldRowsUnreported, ownMarksCount,
	}
	rareFaults = []fault{cleanReturn, settleWithoutFence, markWithoutFence, cutRefillWhole}
)

func (s *sim) row(r *simRow, consumer int, contents bool) Row {
	row := Row{
		ID: r.id(), Seq: r.seq, Slot: r.slot(), Key: r.keyed(), Keyed: true, Fence: r.fence,
		Lapses: r.lapses, Wait: max(0, r.due-s.now),
	}
	switch r.by {
	case 0:
	case consumer:
		row.Holder = Mine
	default:
		row.Holder = Others
		row.Lapses++
	}
	row.Held = s.holds && s.fault != heldRowsUnreported && s.isHeld(r.keyed())
	if contents {
		row.Contents = r
	}
	return row
}

func (s *sim) isHeld(key string) bool {
	return slices.ContainsFunc(s.rows, func(r *simRow) bool { return r.keyed() == key && r.dead })
}

func (s *sim) walked(consumer int, slots []sqlbatch.OwnedSlot) bool {
	for _, t := range slots {
		if z := s.slots[t.Slot]; z.owner != consumer || z.fence != t.Fence || !s.alive[consumer] {
			return false
		}
	}
	return true
}

// simTask is a statement that a consumer waits for, or has stopped waiting for.
type simTask struct {
	task     *Task
	c        *simConsumer
	consumer int
	slots    map[int]int64 // fences of the consumer's slots when it began
	answer   *Answer
	applied  bool
	sampled  bool
	blocked  bool
	ids      []simItem
}

// simItem identifies a message in a statement.
type simItem struct {
	row                  *simRow
	seq, fence           int64
	slotFence, delivered int64
}

func (s *sim) begin(c *simConsumer, t *Task) *simTask {
	st := &simTask{task: t, c: c, consumer: c.consumer, slots: map[int]int64{},
		answer: &Answer{Walked: true, Upto: None}}
	for n, own := range c.own {
		st.slots[n] = own
	}
	for _, m := range t.Messages {
		st.ids = append(st.ids, simItem{s.rows[m.ID[0]-1], m.Seq, m.Fence, m.SlotFence(), m.Delivery()})
	}
	return st
}

// apply runs a statement in the database: its reads use one snapshot.
func (s *sim) apply(st *simTask) {
	st.applied = true
	t, a := st.task, st.answer
	a.Redriven = s.redriven
	switch t.Kind {
	case Read, Refill:
		if a.Walked = s.walked(st.consumer, t.Slots); a.Walked {
			st.blocked = s.blocks && slices.ContainsFunc(s.rows, func(r *simRow) bool {
				mine := slices.ContainsFunc(t.Slots, func(o sqlbatch.OwnedSlot) bool { return o.Slot == r.slot() })
				return r.alive() && r.locked && mine && r.seq > t.From && r.seq <= t.Upto
			})
			s.scan(st)
		}
		return
	case Held:
		for _, key := range t.Keys {
			a.Held = append(a.Held, s.isHeld(key))
		}
		return
	case Look, Fetch:
		a.Walked = s.walked(st.consumer, t.Slots)
	}
	for _, item := range st.ids {
		r := item.row
		matches := r.alive() && r.seq == item.seq && r.fence == item.fence
		switch {
		case t.Kind == Mark && r.alive() && !r.locked && (matches || s.fault == markWithoutFence):
			pending := r.by != 0 && r.by != st.consumer
			r.lapses += bit(pending || s.fault == ownMarksCount && r.by != 0)
			if pending && s.alive[r.by] {
				r.guilt++ // its holder has returned the slot without an answer to its mark, and that counts
			}
			r.by = st.consumer
			if s.fault != markKeepsFence {
				r.fence = max(r.fence+1, item.slotFence)
			}
			if !s.alive[st.consumer] {
				r.guilt++ // the membership ended before
			}
			s.say("c%d marks m%d: fence %d", st.c.n, r.n, r.fence)
			a.Rows = append(a.Rows, Row{ID: r.id(), Seq: r.seq, Fence: r.fence, Lapses: r.lapses, Written: true})
			continue
		case (t.Kind == Lapse || t.Kind == Release) && matches && !r.locked:
			if r.fence = GivenFence(r.fence, item.delivered); t.Kind == Lapse {
				r.lapses++
				r.guilt++
			}
			if t.Kind == Lapse || r.by == st.consumer {
				r.by = 0
			}
			s.say("c%d gives m%d back (%d): fence %d", st.c.n, r.n, t.Kind, r.fence)
			a.Rows = append(a.Rows, Row{ID: r.id(), Seq: r.seq, Fence: r.fence, Lapses: r.lapses, Written: true})
			continue
		}
		if !r.alive() || r.locked && s.fault == lockedIsAbsent {
			continue
		}
		row := s.row(r, st.consumer, t.Kind == Fetch)
		switch {
		case r.locked && s.looksAtLocks:
			row.Lock = Locked
		case !r.locked && s.looksAtLocks:
			row.Lock = Unlocked
		}
		a.Rows = append(a.Rows, row)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// simWalked is how many rows of spilled keys a read leaves out at most, plus 1.
const simWalked = 3

const simBehind = 4 // rows up to the cursor of one read

// scan is the snapshot of a read or a refill.
func (s *sim) scan(st *simTask) {
	t, a := st.task, st.answer
	var all []*simRow
	for _, r := range s.rows {
		mine := slices.ContainsFunc(t.Slots, func(o sqlbatch.OwnedSlot) bool { return o.Slot == r.slot() })
		if r.alive() && mine && r.seq > t.From && r.seq <= t.Upto &&
			(t.Kind == Read || slices.Contains(t.Keys, r.keyed())) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y *simRow) int { return int(x.seq - y.seq) })
	if s.oneWriter {
		s.sample(st) // of the same snapshot
	}
	ahead, behind, walked := 0, 0, 0
	for _, r := range all {
		switch {
		case t.Kind == Read && r.seq <= t.Cursor:
			if behind++; behind <= simBehind {
				a.Rows = append(a.Rows, s.row(r, st.consumer, false))
			}
		case t.Kind == Read && ahead < t.Rows && slices.Contains(t.Keys, r.keyed()):
			if walked++; walked == simWalked { // the read ends here
				a.Rows = append(a.Rows, s.row(r, st.consumer, false))
				ahead = t.Rows
			}
		case ahead < t.Rows:
			ahead++
			a.Rows = append(a.Rows, s.row(r, st.consumer, r.seq > t.Old))
			if t.Kind == Refill && ahead == t.Rows && s.fault != cutRefillWhole {
				a.Upto = r.seq
			}
		}
	}
}

func (s *sim) sample(st *simTask) {
	if st.sampled {
		return
	}
	st.sampled = true
	st.answer.Drawn = s.drawn
	for _, r := range s.rows {
		if !r.released {
			st.answer.Senders = append(st.answer.Senders, r.sender())
		}
	}
}

// simOp is a settle.
type simOp struct {
	c          *simConsumer
	seq        *Sequencer
	d          Delivery
	row        *simRow
	how        string
	wait       time.Duration
	applied    bool
	hit        bool
	abandoned  bool // the consumer has stopped waiting for it
	deliveries int
	stored     int64
	number     int64
}

func (s *sim) settle(c *simConsumer, d Delivery, how string) *simOp {
	r := s.rows[d.ID[0]-1]
	op := &simOp{c: c, seq: c.seq, d: d, row: r, how: how, deliveries: r.deliveries, stored: d.Message.Fence,
		number: d.Seq}
	if how == "nack" {
		op.wait = time.Duration(s.pick(1500)) * time.Millisecond
	}
	s.ops = append(s.ops, op)
	c.out = slices.DeleteFunc(c.out, func(o Delivery) bool { return o.Message == d.Message })
	return op
}

func (s *sim) applySettle(op *simOp) {
	r := op.row
	if r.locked {
		return // it waits for the lock
	}
	op.applied = true
	if !r.alive() || r.fence != op.stored && s.fault != settleWithoutFence || r.seq != op.number {
		s.say("%s of m%d matches no row", op.how, r.n)
		return
	}
	if op.deliveries != r.deliveries {
		s.fail("%s of m%d applies to a later delivery", op.how, r.n)
	}
	op.hit = true
	fence := GivenFence(r.fence, op.d.Fence)
	switch op.how {
	case "ack":
		r.gone = true
	case "tx":
		r.locked = true
	case "dead":
		if r.dead, r.died = true, true; s.fault != deadKeepsFence {
			r.fence = fence
		}
	case "nack":
		r.by, r.lapses, r.guilt, r.due = 0, 0, 0, s.now+op.wait
		if s.fault != nackKeepsFence {
			r.fence = fence
		}
	default:
		r.by, r.fence = 0, fence
	}
	s.say("%s of m%d applies: fence %d", op.how, r.n, r.fence)
}

// hear reports the outcome to the consumer.
func (s *sim) hear(op *simOp, lost bool) {
	o, until := Unknown, time.Duration(0)
	switch {
	case lost || !op.hit:
	case op.how == "ack":
		o = Acked
	case op.how == "dead":
		o = Dead
	case op.how == "tx":
		o, until = InTx, s.now+400*time.Millisecond
	default:
		o, until = Given, s.now+op.wait
	}
	op.seq.Settled(op.d.Message, op.d.Fence, o, until, s.now)
}
