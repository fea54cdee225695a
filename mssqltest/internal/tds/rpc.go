package tds

import (
	"errors"
	"fmt"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

const (
	maxParams = 2100   // of one procedure call, as on a server
	maxCalls  = 10_000 // in one message
)

// procByID are the procedures that have numbers (MS-TDS 2.2.6.6).
var procByID = map[uint16]string{
	1: "sp_cursor", 2: "sp_cursoropen", 3: "sp_cursorprepare", 4: "sp_cursorexecute", 5: "sp_cursorprepexec",
	6: "sp_cursorunprepare", 7: "sp_cursorfetch", 8: "sp_cursoroption", 9: "sp_cursorclose", 10: "sp_executesql",
	11: "sp_prepare", 12: "sp_execute", 13: "sp_prepexec", 14: "sp_prepexecrpc", 15: "sp_unprepare",
}

// callSeparator is between two procedure calls of one message. It cannot be the length of a parameter's name, which has
// at most 128 characters.
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
		d.u8() // callSeparator: only this ends a call's parameters
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
	d.u16() // option flags: recompile, and which metadata the client already has
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

// errTooManyParams is the server's own limit; the connection continues after it.
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
	w := d.typeInfo()
	p.Type = w.t
	if d.err == nil {
		p.Value = d.value(w)
	}
	return p
}
