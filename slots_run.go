package chanq

import (
	"context"
	"database/sql"
	"math"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// How a member learns of the slots of an ordered queue, and takes them and gives them
// back: see slots.go for what, and why.

// membership is until when this process counts as a member, by the local clock: from
// before the heartbeat that says so, so never longer than the database counts it.
// It is safe for concurrent use; one goroutine beats.
type membership struct {
	now  func() time.Duration // monotonic, but for tests
	ends atomic.Int64
	term atomic.Int64 // of times that it began anew: what was held before is lost
}

// joined notes a heartbeat that began at a time, for d. It reports that the membership
// began by it, or again.
func (m *membership) joined(began, d time.Duration) (anew bool) {
	if m.now() >= m.until() {
		m.term.Add(1)
		anew = true
	}
	m.ends.Store(max(m.ends.Load(), int64(deadlineAfter(began, d))))
	return anew
}

// until is when it ends, as things stand. Ask before a statement is sent: what that
// leases ends then at the latest.
func (m *membership) until() time.Duration { return time.Duration(m.ends.Load()) }

// current reports whether the membership lasts, and in which term.
func (m *membership) current() (term int64, lasts bool) {
	until := m.until() // before the term, which is raised before it
	return m.term.Load(), m.now() < until
}

// slotTable is what the database knows of the slots of a queue.
type slotTable interface {
	look(ctx context.Context, parts []sqlbatch.SlotPart) (slotLook, error)
	take(ctx context.Context, list []ownSlot) (got []ownSlot, err error)
	give(ctx context.Context, list []ownSlot) error
}

// slotLook is what a look saw.
type slotLook struct {
	rows    []slotRow
	members int
	// due is how long until something may be claimed behind the parts of the look; any says
	// that there is something.
	due time.Duration
	any bool
}

// tenure has the slots of one member. But for until and alive, which anybody may call,
// only one goroutine uses it: that which claims.
type tenure struct {
	here  *membership
	table slotTable
	slots *slots
	given func()       // slots are free for others
	term  atomic.Int64 // of the membership in which the slots are held
}

func newTenure(n int, member [16]byte, here *membership, table slotTable, user slotUser, given func()) *tenure {
	return &tenure{here: here, table: table, slots: newSlots(n, member, user), given: given}
}

// until is when the membership ends, as things stand: see membership.
func (t *tenure) until() time.Duration { return t.here.until() }

// alive says that the membership lasts in which the slots were taken: without it nothing
// is handed out.
func (t *tenure) alive() bool {
	term, lasts := t.here.current()
	return lasts && term == t.term.Load()
}

// check has the slots lost if the membership is over, and reports whether it lasts.
func (t *tenure) check() bool {
	term, lasts := t.here.current()
	if !lasts || term != t.term.Load() {
		t.slots.lapse()
		t.term.Store(term)
	}
	return lasts
}

// tend does what is due: a look, a give and a take, one of each at most, and none while
// this is no member. parts are what the look is to tell the due time of. It returns the look, if
// there was one. After an error what was to be done is done at the next call. What it has done
// while the membership ended is lost at the next call of anything here, and alive knows before.
func (t *tenure) tend(ctx context.Context, parts []sqlbatch.SlotPart) (*slotLook, error) {
	if !t.check() {
		return nil, nil
	}
	var seen *slotLook
	if began := t.here.now(); !t.slots.ending && began >= t.slots.next {
		l, err := t.table.look(ctx, parts)
		if err != nil {
			return nil, err
		}
		t.slots.look(l.rows, l.members, began)
		seen = &l
	}
	if list := t.slots.list(slotEmptied); len(list) > 0 {
		if err := t.table.give(ctx, list); err != nil {
			return seen, err
		}
		t.slots.gave(list)
		t.given()
	}
	if list := t.slots.list(slotAsked); len(list) > 0 {
		got, err := t.table.take(ctx, list)
		if err != nil {
			return seen, err
		}
		t.slots.took(list, got)
	}
	return seen, nil
}

// wait is for how long tend has nothing to do. The heartbeat that begins a membership ends
// it.
func (t *tenure) wait() time.Duration {
	if !t.check() {
		return math.MaxInt64
	}
	return t.slots.wait(t.here.now())
}

// owned are the slots that may be claimed.
func (t *tenure) owned() []ownSlot {
	if !t.check() {
		return nil
	}
	return t.slots.list(slotOurs)
}

func (t *tenure) doubt()             { t.slots.doubt() }
func (t *tenure) unscanned(slot int) { t.slots.unscanned(slot) }
func (t *tenure) hurry()             { t.slots.hurry() }
func (t *tenure) drained(slot int)   { t.slots.drained(slot) }

// leave has all slots given back, by tend, as they are drained.
func (t *tenure) leave() { t.slots.end() }

// empty says that no slot is held any more.
func (t *tenure) empty() bool { return !t.check() || t.slots.count(slotForeign) == len(t.slots.notes) }

// slotStatements is the slotTable of a queue and a member. run runs a statement, with its
// deadline.
type slotStatements struct {
	queue  *queue
	member [16]byte
	run    func(context.Context, sqlbatch.Statement, func(*sql.Rows) error) error
}

func (s slotStatements) look(ctx context.Context, parts []sqlbatch.SlotPart) (slotLook, error) {
	l := slotLook{due: math.MaxInt64}
	err := s.run(ctx, s.queue.sql.Slots(parts), func(rows *sql.Rows) error {
		var row slotRow
		var owner []byte
		var left, due sql.NullInt64
		if err := rows.Scan(&row.slot, &owner, &left, &row.fence, &l.members, &due); err != nil {
			return err
		}
		copy(row.owner[:], owner)
		row.gone = left.Int64 <= 0
		l.rows = append(l.rows, row)
		if due.Valid {
			l.any, l.due = true, min(l.due, time.Duration(due.Int64)*time.Millisecond)
		}
		return nil
	})
	return l, err
}

func (s slotStatements) take(ctx context.Context, list []ownSlot) (got []ownSlot, err error) {
	numbers := make([]int, len(list))
	for i, own := range list {
		numbers[i] = own.slot
	}
	err = s.run(ctx, s.queue.sql.TakeSlots(s.member, newSalt(), numbers), func(rows *sql.Rows) error {
		var own ownSlot
		var old int64
		err := rows.Scan(&own.slot, &own.fence, &old)
		got = append(got, own)
		return err
	})
	return got, err
}

func (s slotStatements) give(ctx context.Context, list []ownSlot) error {
	slots := make([]sqlbatch.OwnedSlot, len(list))
	for i, own := range list {
		slots[i] = sqlbatch.OwnedSlot{Slot: own.slot, Fence: own.fence}
	}
	return s.run(ctx, s.queue.sql.GiveSlots(s.member, slots), nil)
}
