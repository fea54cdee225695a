package tds

import (
	"errors"
	"fmt"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

const (
	maxParams    = 2100   // of one procedure call, as on a server
	maxCalls     = 10_000 // in one message
	maxTableCols = 1024
	maxCells     = 1 << 24 // values in one table-valued parameter
)

// procByID are the procedures that have numbers (MS-TDS 2.2.6.6).
var procByID = map[uint16]string{
	1: "sp_cursor", 2: "sp_cursoropen", 3: "sp_cursorprepare", 4: "sp_cursorexecute", 5: "sp_cursorprepexec",
	6: "sp_cursorunprepare", 7: "sp_cursorfetch", 8: "sp_cursoroption", 9: "sp_cursorclose", 10: "sp_executesql",
	11: "sp_prepare", 12: "sp_execute", 13: "sp_prepexec", 14: "sp_prepexecrpc", 15: "sp_unprepare",
}

// callSeparator stands between two procedure calls of one message. It cannot
// be the length of a parameter's name, which has at most 128 characters.
const callSeparator = 0xff

// calls reads the procedure calls of an RPC message.
func (d *decoder) calls() ([]*Request, error) {
	var calls []*Request
	for {
		r, err := d.call()
		if err != nil {
			return nil, err
		}
		calls = append(calls, r)
		if d.empty() {
			return calls, nil
		}
		d.u8() // callSeparator: nothing else ends a call's parameters
		if d.empty() {
			return calls, nil // it may also close the last call
		}
		if len(calls) == maxCalls {
			return nil, malformedf("more than %d procedure calls in a message", maxCalls)
		}
	}
}

func (d *decoder) call() (*Request, error) {
	r := &Request{Kind: RPC}
	const byID = 0xffff
	if n := d.u16(); n == byID {
		id := d.u16()
		name, ok := procByID[id]
		if !ok {
			d.fail("procedure number %d", id)
		}
		r.Proc = name
	} else if r.Proc = decodeUTF16(d.bytes(2 * int(n))); r.Proc == "" {
		d.fail("procedure without a name")
	}
	d.u16() // option flags: recompile, and what metadata the client has already
	for !d.empty() && d.b[0] != callSeparator {
		if len(r.Params) == maxParams {
			return nil, errTooManyParams()
		}
		r.Params = append(r.Params, d.param())
		if u := (unsupported{}); errors.As(d.err, &u) {
			last := r.Params[len(r.Params)-1]
			return nil, &sqltype.Error{Number: 8009, State: 1, Class: 16, Line: 1, Message: fmt.Sprintf(
				"The incoming tabular data stream (TDS) remote procedure call (RPC) protocol stream is incorrect. Parameter %d (%q): Data type 0x%02X is unknown.",
				len(r.Params), last.Name, u.token)}
		}
	}
	return r, d.err
}

// errTooManyParams is the server's own limit; the connection goes on after it.
func errTooManyParams() *sqltype.Error {
	return &sqltype.Error{Number: 8003, State: 1, Class: 16, Line: 1,
		Message: "The incoming request has too many parameters. The server supports a maximum of 2100 parameters. Reduce the number of parameters and resend the request."}
}

func (d *decoder) param() Param {
	const byReference, encrypted, maxName = 0x01, 0x08, 128
	if !d.empty() && d.b[0] > maxName {
		d.fail("parameter name of %d characters", d.b[0])
	}
	p := Param{Name: d.bVarChar()}
	flags := d.u8()
	p.Output = flags&byReference != 0
	if flags&encrypted != 0 {
		d.fail("encrypted parameter %q", p.Name)
	}
	if !d.empty() && d.b[0] == typeTable {
		d.u8()
		p.Table = d.table()
		return p
	}
	w := d.typeInfo()
	p.Type = w.t
	if d.err == nil {
		p.Value = d.value(w)
	}
	return p
}

// table reads a table-valued parameter after its type token (MS-TDS 2.2.5.5.5).
func (d *decoder) table() *sqltype.Table {
	const noColumns = 0xffff // a table-valued parameter that is NULL: no rows
	_ = d.bVarChar()         // database: types are of the current one
	t := &sqltype.Table{TypeName: d.bVarChar()}
	if name := d.bVarChar(); t.TypeName == "" {
		t.TypeName = name
	} else {
		t.TypeName += "." + name
	}
	var columns []tableColumn
	if n := d.u16(); n != noColumns {
		columns = d.tableColumns(int(n))
	}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.column)
	}
	d.tableOptions(len(columns))
	const row = 0x01
	for cells := 0; d.u8() == row; {
		if cells += len(columns); cells > maxCells || len(columns) == 0 {
			d.fail("%d values in a table of %d columns", cells, len(columns))
			break
		}
		values := make([]sqltype.Value, len(columns))
		for i, c := range columns {
			if !c.isDefault {
				values[i] = d.value(c.wire)
			}
		}
		t.Rows = append(t.Rows, values)
		if d.err != nil {
			break
		}
	}
	return t
}

// tableColumn is a column of a table-valued parameter. One whose default was
// asked for has no values on the wire.
type tableColumn struct {
	column    sqltype.Column
	wire      wireType
	isDefault bool
}

func (d *decoder) tableColumns(n int) []tableColumn {
	if n == 0 || n > maxTableCols {
		d.fail("table of %d columns", n)
		return nil
	}
	columns := make([]tableColumn, n)
	for i := range columns {
		const nullable, useDefault = 0x0001, 0x0200
		d.u32() // user type
		flags := d.u16()
		c := &columns[i]
		c.isDefault = flags&useDefault != 0
		c.wire = d.typeInfo()
		c.column = sqltype.Column{Name: d.bVarChar(), Type: c.wire.t, Nullable: flags&nullable != 0}
	}
	return columns
}

// tableOptions checks and skips what a client says of order and uniqueness,
// which binds nobody, and reads the end of the metadata.
func (d *decoder) tableOptions(columns int) {
	const end, orderUnique, columnOrdering = 0x00, 0x10, 0x11
	for d.err == nil {
		switch option := d.u8(); option {
		case end:
			return
		case orderUnique:
			d.bytes(3 * int(d.u16()))
		case columnOrdering:
			n := int(d.u16())
			d.bytes(2 * n)
			// It would say that values come in another order than the columns.
			d.fail("column ordering of %d of %d columns", n, columns)
		default:
			d.fail("table option 0x%02x", option)
		}
	}
}
