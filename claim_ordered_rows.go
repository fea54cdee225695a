package chanq

import (
	"database/sql"
	"slices"
	"time"
)

// orderedRows collects a claim from an ordered queue.
type orderedRows struct {
	claimedRows
	lines  []lineRow // leased and passed
	leased []int     // of those leased, where they are in lines
	ends   []lineEnd

	slot, seq int64
	orderKey  sql.RawBytes
	wait      sql.NullInt64
}

func (r *orderedRows) scan(rows *sql.Rows) error {
	if err := r.read(rows, &r.slot, &r.seq, &r.orderKey, &r.wait); err != nil {
		return err
	}
	if r.id == nil {
		r.ends = append(r.ends, lineEnd{slot: int(r.slot), seq: r.seq})
		return nil
	}
	row := lineRow{slot: int(r.slot), seq: r.seq, wait: time.Duration(r.wait.Int64) * time.Millisecond}
	copy(row.id[:], r.id)
	if r.orderKey == nil {
		row.key = lineKey{name: string(r.id)}
	} else {
		row.key = lineKey{name: string(r.orderKey), keyed: true}
	}
	if !r.wait.Valid {
		r.leased = append(r.leased, len(r.lines))
		r.keepRow()
		if row.key.keyed {
			r.rows[len(r.rows)-1].orderKey = row.key.name
		}
	}
	r.lines = append(r.lines, row)
	return nil
}

// more reports that something was leased, and that a slot was not walked to its end.
func (r *orderedRows) more() bool {
	return len(r.leased) > 0 && slices.ContainsFunc(r.ends, func(e lineEnd) bool { return e.seq < slotEnd })
}

// walked reports that a slot was.
func (r *orderedRows) walked(slot int) bool {
	return slices.ContainsFunc(r.ends, func(e lineEnd) bool { return e.slot == slot })
}

// takeRows returns room for what a claim finds. That of one that failed may be in use yet.
func (d *dispatch[T]) takeRows() *orderedRows {
	rows := d.rows
	if d.rows = nil; rows == nil {
		rows = &orderedRows{}
	}
	return rows
}

// giveRows takes back what takeRows gave, with nothing in it.
func (d *dispatch[T]) giveRows(r *orderedRows) {
	clear(r.rows)
	clear(r.lines)
	r.rows, r.lines, r.leased, r.ends = r.rows[:0], r.lines[:0], r.leased[:0], r.ends[:0]
	r.bytes, r.arena = 0, nil
	d.rows = r
}
