package table

import (
	"database/sql"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Ordered has the statements of a consumer of an ordered queue. One goroutine uses it.
type Ordered struct {
	Claims
	SQL    sqlbatch.Queue
	Within time.Duration // the time of a statement
}

func (o *Ordered) do(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	return o.run(o.Within, st, scan)
}

// look is do for a read that blames no message when it fails.
func (o *Ordered) look(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	return o.run(min(o.Within, o.MaxLook), st, scan)
}

// Read reads messages that follow each other, and Refill those of certain keys.
func (o *Ordered) Read(p sqlbatch.ReadParams, a *Answer) error { return o.look(o.SQL.Read(p), a.scan) }
func (o *Ordered) Refill(p sqlbatch.RefillParams, a *Answer) error {
	return o.look(o.SQL.Refill(p), a.scan)
}

// Fetch reads the contents of messages, and Look how their rows are.
func (o *Ordered) Fetch(member [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte, a *Answer) error {
	return o.do(o.SQL.Fetch(member, slots, ids), a.scan)
}

func (o *Ordered) Look(member [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte, a *Answer) error {
	return o.look(o.SQL.LookOrdered(member, slots, ids), a.scan)
}

// Mark leases messages by ID, and Release gives some back, or notes that their leases expired. Both return the rows that they have
// changed.
func (o *Ordered) Mark(member [16]byte, items []sqlbatch.MarkItem, alone sqlbatch.Alone) (changed []order.Row, err error) {
	return o.written(o.SQL.MarkOrdered(member, items, alone))
}

func (o *Ordered) Release(member [16]byte, items []sqlbatch.ReleaseItem, lapsed bool) (changed []order.Row, err error) {
	return o.written(o.SQL.ReleaseOrdered(member, items, lapsed))
}

func (o *Ordered) written(st sqlbatch.Statement) (changed []order.Row, err error) {
	err = o.do(st, func(rows *sql.Rows) error {
		var id []byte
		row := order.Row{Written: true}
		err := rows.Scan(&id, &row.Fence, &row.Lapses, &row.Crashes)
		copy(row.ID[:], id)
		changed = append(changed, row)
		return err
	})
	return changed, err
}

// Held returns which keys are held by dead messages.
func (o *Ordered) Held(slots []int, keys []string) (held []bool, redriven int64, err error) {
	held = make([]bool, len(keys))
	err = o.look(o.SQL.HeldKeys(slots, keys), func(rows *sql.Rows) error {
		var place int
		var isHeld int64
		if err := rows.Scan(&place, &isHeld, &redriven); err != nil {
			return err
		}
		held[place-1] = isHeld != 0
		return nil
	})
	return held, redriven, err
}

// Slots returns all slots, and how many consumers there are.
func (o *Ordered) Slots() (list []order.SlotRow, consumers int, err error) {
	err = o.look(o.SQL.Slots(), func(rows *sql.Rows) error {
		var row order.SlotRow
		var owner []byte
		var left sql.NullInt64
		err := rows.Scan(&row.Slot, &owner, &left, &row.Fence, &consumers)
		copy(row.Owner[:], owner)
		row.Gone, row.Left = left.Int64 <= 0, time.Duration(left.Int64)*time.Millisecond
		list = append(list, row)
		return err
	})
	return list, consumers, err
}

// Taken is a slot that a consumer has taken.
type Taken struct {
	order.OwnedSlot
	Old int64 // the last number that was drawn before
}

// Take takes slots, and returns those that it got.
func (o *Ordered) Take(member [16]byte, salt int64, slots []int) (got []Taken, err error) {
	err = o.do(o.SQL.TakeSlots(member, salt, slots), func(rows *sql.Rows) error {
		var t Taken
		err := rows.Scan(&t.Slot, &t.Fence, &t.Old)
		got = append(got, t)
		return err
	})
	return got, err
}

// Give returns slots.
func (o *Ordered) Give(member [16]byte, slots []sqlbatch.OwnedSlot) error {
	return o.do(o.SQL.GiveSlots(member, slots), nil)
}

// Answer collects the rows of a read, a look or a fetch. Nothing of it may be used before the statement has succeeded.
type Answer struct {
	order.Answer
	Bytes int // of bodies
	Last  Row // the last row, without what is read of it
	arena Arena

	columns                                            []any
	id, key, kind, headers, body, orderKey             sql.RawBytes
	priority, fence, attempts, lapses, crashes         int64
	expired, enqueued, due                             int64
	size, slot, seq, wait, holder, held, given, locked int64
	expires, lives                                     sql.NullInt64
}

// scan reads one row. The last one has no ID: see sqlbatch's Read.
func (a *Answer) scan(rows *sql.Rows) error {
	if a.columns == nil {
		a.columns = []any{
			&a.id, &a.priority, &a.fence, &a.attempts, &a.lapses, &a.expired, &a.enqueued, &a.due, &a.expires, &a.key, &a.kind, &a.headers, &a.body,
			&a.size, &a.slot, &a.seq, &a.orderKey, &a.wait, &a.lives, &a.holder, &a.held, &a.crashes, &a.given, &a.locked,
		}
	}
	if err := rows.Scan(a.columns...); err != nil {
		return err
	}
	if a.id == nil {
		a.Walked, a.Redriven, a.Drawn, a.Upto = a.priority != 0, a.enqueued, a.fence, a.due
		for _, sender := range strings.Fields(string(a.body)) {
			if sender == sqlbatch.UnknownSender {
				a.Renamed = true
			} else {
				a.Senders = append(a.Senders, sender)
			}
		}
		return nil
	}
	row := order.Row{
		Seq: a.seq, Slot: int(a.slot), Fence: a.fence, Wait: time.Duration(a.wait) * time.Millisecond, Lives: time.Duration(a.lives.Int64) * time.Millisecond,
		Held: a.held != 0, Holder: order.Holder(a.holder), Lapses: int(a.lapses), Crashes: int(a.crashes), Lock: order.Lock(a.locked),
	}
	if a.expired != 0 {
		row.Lives = -1
	}
	copy(row.ID[:], a.id)
	if row.Keyed = a.orderKey != nil; row.Keyed {
		row.Key = string(a.orderKey)
	} else {
		row.Key = string(a.id)
	}
	in := Row{
		Priority: int8(a.priority), Attempts: int(a.attempts), Lapses: int(a.lapses), Enqueued: a.enqueued, Due: a.due, Expires: a.expires,
	}
	if row.Keyed {
		in.OrderKey = row.Key
	}
	if a.Last = in; a.given != 0 {
		in.Key, in.Type, in.Headers, in.Body = a.arena.Keep(a.key), a.arena.Keep(a.kind), a.arena.Keep(a.headers), a.arena.Keep(a.body)
		row.Contents, row.Bytes = &in, len(in.Body)+len(in.Headers)
		a.Bytes += len(in.Body)
	}
	a.Rows = append(a.Rows, row)
	return nil
}
