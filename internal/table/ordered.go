package table

import (
	"database/sql"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Ordered has the statements of a consumer of an ordered queue. One goroutine uses it.
type Ordered struct {
	Claims
	Within     time.Duration // timeout of a statement
	LookWithin time.Duration // timeout of a read: while it hangs, a database with one connection extends no lease
}

func (o *Ordered) do(st sqlbatch.Statement, scan session.Scan) error {
	return o.run(o.Within, st, scan)
}

// look is do for a read whose failure is not blamed on a message.
func (o *Ordered) look(st sqlbatch.Statement, scan session.Scan) error {
	return o.run(o.LookWithin, st, scan)
}

// Do runs the statements of a task.
func (o *Ordered) Do(t *order.Task, a *Answer) error {
	switch t.Kind {
	case order.Read:
		err := o.look(o.SQL.Read(t.ReadParams), a.scan)
		if err == nil && !t.Slow {
			o.busy = a.Contents > 0
		}
		return err
	case order.Refill:
		return o.look(o.SQL.Refill(t.ReadParams), a.scan)
	case order.Held:
		return o.held(t, a)
	case order.Fetch:
		return o.find(o.do, o.SQL.Fetch, t, t.Messages, a)
	case order.Mark, order.Lapse, order.Release:
		missing, err := o.write(t, a)
		if err != nil || len(missing) == 0 {
			return err
		}
		return o.find(o.look, o.SQL.LookOrdered, t, missing, a)
	default:
		return o.find(o.look, o.SQL.LookOrdered, t, t.Messages, a)
	}
}

// held queries which keys are held by dead messages.
func (o *Ordered) held(t *order.Task, a *Answer) error {
	a.Walked, a.Held = true, make([]bool, len(t.Keys))
	return o.look(o.SQL.HeldKeys(t.KeySlots(), t.Keys), func(rows *sql.Rows) error {
		var place int
		var isHeld int64
		if err := rows.Scan(&place, &isHeld, &a.Redriven); err != nil {
			return err
		}
		a.Held[place-1] = isHeld != 0
		return nil
	})
}

// find looks up messages, or fetches them. For a locked row the database might know only the ID: the rest is filled in
// from messages.
func (o *Ordered) find(run func(sqlbatch.Statement, session.Scan) error,
	st func([16]byte, []sqlbatch.OwnedSlot, [][16]byte) sqlbatch.Statement, t *order.Task,
	messages []*order.Message, a *Answer) error {
	ids := make([][16]byte, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	err := run(st(t.Consumer, t.Slots, ids), a.scan)
	for i := range a.Rows {
		row := &a.Rows[i]
		if row.Lock != order.Locked || row.Seq != 0 {
			continue
		}
		for _, m := range messages {
			if m.ID == row.ID {
				row.Seq, row.Slot, row.Fence = m.Seq, m.Slot, m.Fence
			}
		}
	}
	return err
}

// write marks messages, releases them, or records that their leases expired. It returns the messages that it did not
// change.
func (o *Ordered) write(t *order.Task, a *Answer) (missing []*order.Message, err error) {
	var st sqlbatch.Statement
	if t.Kind == order.Mark {
		items := make([]sqlbatch.MarkItem, len(t.Messages))
		for i, m := range t.Messages {
			items[i] = sqlbatch.MarkItem{Item: sqlbatch.Item{ID: m.ID, Fence: m.Fence}, SlotFence: m.SlotFence()}
		}
		st = o.SQL.MarkOrdered(t.Consumer, items)
	} else {
		items := make([]sqlbatch.ReleaseItem, len(t.Messages))
		for i, m := range t.Messages {
			items[i] = sqlbatch.ReleaseItem{Item: sqlbatch.Item{ID: m.ID, Fence: m.Fence}, Delivery: m.Delivery()}
		}
		st = o.SQL.ReleaseOrdered(t.Consumer, items, t.Kind == order.Lapse)
	}
	changed := make(map[[16]byte]order.Row, len(t.Messages))
	err = o.do(st, func(rows *sql.Rows) error {
		var id []byte
		row := order.Row{Written: true}
		err := rows.Scan(&id, &row.Fence, &row.Lapses)
		copy(row.ID[:], id)
		changed[row.ID] = row
		return err
	})
	if err != nil {
		return nil, err
	}
	a.Walked = true
	for _, m := range t.Messages {
		if row, ok := changed[m.ID]; ok {
			row.Seq = m.Seq
			a.Rows = append(a.Rows, row)
		} else {
			missing = append(missing, m)
		}
	}
	return missing, nil
}

// Slots returns all slots, and the number of consumers.
func (o *Ordered) Slots() (list []order.SlotRow, consumers int, err error) {
	err = o.look(o.SQL.Slots(), func(rows *sql.Rows) error {
		var row order.SlotRow
		var owner []byte
		var left sql.NullInt64
		err := rows.Scan(&row.Slot, &owner, &left, &row.Fence, &consumers)
		if left.Int64 > 0 { // its membership has not ended
			copy(row.Owner[:], owner)
		}
		list = append(list, row)
		return err
	})
	return list, consumers, err
}

// Take takes slots, and returns the slots that it got.
func (o *Ordered) Take(consumer [16]byte, salt int64, slots []int) (got []order.Slot, err error) {
	err = o.do(o.SQL.TakeSlots(consumer, salt, slots), func(rows *sql.Rows) error {
		var sl order.Slot
		err := rows.Scan(&sl.Number, &sl.Fence, &sl.Old)
		got = append(got, sl)
		return err
	})
	return got, err
}

// Give returns slots.
func (o *Ordered) Give(consumer [16]byte, slots []sqlbatch.OwnedSlot) error {
	return o.do(o.SQL.GiveSlots(consumer, slots), nil)
}

// Paused reports whether the queue is paused. After an error it is not.
func (o *Ordered) Paused() bool {
	var found Stored
	return o.look(o.SQL.Version(), found.Scan) == nil && found.Paused
}

// Answer collects the rows of a read, a look-up or a fetch. It must not be used before the statement has succeeded.
type Answer struct {
	order.Answer
	Contents int // rows with contents
	Bytes    int // of bodies
	Last     Row // the last row, without its contents

	columns
	orderKey                                     sql.RawBytes
	slot, seq, wait, holder, held, given, locked number
	lives                                        sql.NullInt64
}

// scan reads one row. The last one has no ID: see sqlbatch's Read.
func (a *Answer) scan(rows *sql.Rows) error {
	if err := a.columns.scan(rows, &a.slot, &a.seq, &a.orderKey, &a.wait, &a.lives, &a.holder, &a.held, &a.given,
		&a.locked); err != nil {
		return err
	}
	if a.id == nil {
		a.Walked, a.Redriven, a.Drawn, a.Upto = a.priority != 0, int64(a.enqueued), int64(a.fence), int64(a.due)
		a.Senders = strings.Fields(string(a.body))
		return nil
	}
	row := order.Row{
		Seq: int64(a.seq), Slot: int(a.slot), Fence: int64(a.fence), Wait: time.Duration(a.wait) * time.Millisecond,
		Lives: time.Duration(a.lives.Int64) * time.Millisecond,
		Held:  a.held != 0, Holder: order.Holder(a.holder), Attempts: int(a.attempts), Lapses: int(a.lapses),
		Lock: order.Lock(a.locked),
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
	in := a.row()
	if row.Keyed {
		in.OrderKey = row.Key
	}
	if a.Last = in; a.given != 0 {
		a.keep(&in)
		row.Contents = &in
		a.Contents++
		a.Bytes += len(in.Body)
	}
	a.Rows = append(a.Rows, row)
	return nil
}
