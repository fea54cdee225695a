package faultdb

import (
	"database/sql/driver"
	"io"
)

// rows forwards a result, with the result sets that the driver has.
type rows struct {
	driver.Rows
	owner  *Connector
	closed bool
}

func (r *rows) Close() error {
	if !r.closed {
		r.closed = true
		r.owner.note(Open{Rows: -1})
	}
	return r.Rows.Close()
}

func (r *rows) HasNextResultSet() bool {
	more, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && more.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	if more, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return more.NextResultSet()
	}
	return io.EOF
}

// readRows is a result that was read to its end.
type readRows struct {
	sets []resultSet
	left int   // rows before err; -1: all
	err  error // nil: the result is complete
}

type resultSet struct {
	columns []string
	rows    [][]driver.Value
}

func readAll(inner driver.Rows) (*readRows, error) {
	defer inner.Close()
	r := &readRows{left: -1}
	for all := (&rows{Rows: inner}); ; {
		set := resultSet{columns: inner.Columns()}
		for {
			values := make([]driver.Value, len(set.columns))
			err := inner.Next(values)
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			for i, v := range values {
				if b, ok := v.([]byte); ok {
					values[i] = append([]byte{}, b...)
				}
			}
			set.rows = append(set.rows, values)
		}
		r.sets = append(r.sets, set)
		if !all.HasNextResultSet() {
			return r, nil
		}
		if err := all.NextResultSet(); err == io.EOF {
			return r, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func (r *readRows) breakAfter(n int, err error) { r.left, r.err = n, err }

func (r *readRows) Columns() []string { return r.sets[0].columns }
func (r *readRows) Close() error      { return nil }

func (r *readRows) Next(values []driver.Value) error {
	set := &r.sets[0]
	if r.left == 0 || r.err != nil && len(set.rows) == 0 && len(r.sets) == 1 {
		return r.err
	}
	if len(set.rows) == 0 {
		return io.EOF
	}
	copy(values, set.rows[0])
	set.rows = set.rows[1:]
	if r.left > 0 {
		r.left--
	}
	return nil
}

func (r *readRows) HasNextResultSet() bool { return len(r.sets) > 1 }

func (r *readRows) NextResultSet() error {
	if len(r.sets) == 1 {
		return io.EOF
	}
	r.sets = r.sets[1:]
	return nil
}
