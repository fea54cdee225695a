package chanq

import (
	"database/sql"
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

// walked reports that a slot was.
func (r *orderedRows) walked(slot int) bool {
	for _, e := range r.ends {
		if e.slot == slot {
			return true
		}
	}
	return false
}
