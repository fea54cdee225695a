package tds

import (
	"fmt"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// response is the Results of one call: it turns the results of a session into tokens, and knows which DONE is the last.
// The connection's serving goroutine uses it.
//
// A DONE is held back until the next token is written, because only then is it known that more follows.
type response struct {
	out    *messageWriter
	call   *call
	server string // name in messages

	columns []sqltype.Column
	held    done // the DONE held back; token 0 for none
	rows    int
	late    []byte // ends of transactions after an attention
	failed  bool   // an error since the last DONE
	broken  bool   // an error since the beginning of the request
	fatal   bool   // an error that ends the connection
	lost    error  // the socket's, on writing
}

// token appends a token after the DONE that was held back. After an attention it writes nothing.
func (r *response) token(add func([]byte) ([]byte, error)) error {
	switch {
	case r.call.gone():
		return ErrConnectionGone
	case r.call.interrupted():
		return nil
	}
	r.release(doneMore)
	b, err := add(r.out.buf)
	if err != nil {
		return fmt.Errorf("tds: %w", err)
	}
	r.out.buf = b
	return r.wrote(r.out.boundary())
}

// wrote notes that the socket failed.
func (r *response) wrote(err error) error {
	if err != nil {
		r.lost = fmt.Errorf("%w: %w", ErrConnectionGone, err)
		return r.lost
	}
	return nil
}

func (r *response) simple(add func([]byte) []byte) error {
	return r.token(func(b []byte) ([]byte, error) { return add(b), nil })
}

// release appends the DONE that was held back.
func (r *response) release(extra uint16) {
	if r.held.token == 0 {
		return
	}
	r.held.status |= extra
	r.out.buf = appendDone(r.out.buf, r.held)
	r.held = done{}
}

func (r *response) Columns(columns []sqltype.Column) error {
	r.columns = columns
	return r.token(func(b []byte) ([]byte, error) { return appendColumns(b, columns) })
}

func (r *response) Row(values []sqltype.Value) error {
	r.rows++
	return r.token(func(b []byte) ([]byte, error) { return appendRow(b, r.columns, values) })
}

func (r *response) Done(e End) error {
	d := done{token: tokenDone, command: e.Command, rows: e.Rows}
	if e.InProc {
		d.token = tokenDoneInProc
	}
	if e.Counted {
		d.status |= doneCount
	}
	if r.failed {
		d.status |= doneError
	}
	r.columns, r.failed = nil, false
	err := r.simple(func(b []byte) []byte { return b }) // releases the previous one
	r.held = d
	return err
}

func (r *response) Message(e *sqltype.Error) error {
	if e.Class >= errorClass {
		r.failed, r.broken = true, true
	}
	if e.Class >= fatalClass {
		r.fatal = true
	}
	return r.simple(func(b []byte) []byte { return appendMessage(b, r.server, e) })
}

func (r *response) ReturnStatus(status int32) error {
	return r.simple(func(b []byte) []byte {
		u := uint32(status)
		return append(b, tokenReturnStatus, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	})
}

func (r *response) ReturnValue(place int, p Param) error {
	return r.token(func(b []byte) ([]byte, error) { return appendReturnValue(b, uint16(place), p) })
}

func (r *response) Database(now, before string) error {
	return r.simple(func(b []byte) []byte { return appendEnvText(b, envDatabase, now, before) })
}

func (r *response) TxBegan(id uint64) error      { return r.tx(envTxBegin, id) }
func (r *response) TxCommitted(id uint64) error  { return r.tx(envTxCommit, id) }
func (r *response) TxRolledBack(id uint64) error { return r.tx(envTxRollback, id) }

// tx informs the client of a transaction's beginning or end. This must reach it even if the rest of the answer does
// not: its next request depends on it.
func (r *response) tx(kind byte, id uint64) error {
	if r.call.interrupted() {
		r.late = appendEnvTx(r.late, kind, id)
		return nil
	}
	err := r.simple(func(b []byte) []byte { return appendEnvTx(b, kind, id) })
	r.out.keep()
	return err
}

func (r *response) Flush() error {
	if err := r.simple(func(b []byte) []byte { return b }); err != nil || r.call.interrupted() {
		return err
	}
	return r.wrote(r.out.flush())
}

// endRequest ends the answer to one request of a message; more means that
// another follows.
func (r *response) endRequest(kind RequestKind, more bool) {
	final := done{token: tokenDone}
	switch {
	case kind == RPC:
		// The previous tokens ended statements: the call has a separate DONE.
		r.release(doneMore)
		final.token = tokenDoneProc
		if r.broken {
			final.status = doneError
		}
	case r.held.token == tokenDone:
		final, r.held = r.held, done{}
	default:
		r.release(doneMore)
	}
	if r.failed {
		final.status |= doneError
	}
	if r.fatal {
		final.status |= doneError | doneServerError
	}
	if more && !r.fatal {
		final.status |= doneMore
	}
	r.out.buf = appendDone(r.out.buf, final)
	r.columns, r.failed, r.broken = nil, false, false
}

// cut ends an answer that an attention interrupted. The acknowledgement follows in a separate message, as from every
// server since 2005, and some drivers wait for that.
func (r *response) cut() {
	r.out.discard()
	r.out.buf = append(r.out.buf, r.late...)
	r.out.buf = appendDone(r.out.buf, done{token: tokenDone, status: doneError})
}
