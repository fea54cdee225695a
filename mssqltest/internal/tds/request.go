package tds

import "github.com/chanq/chanq/mssqltest/internal/sqltype"

// errBulkLoad refuses bulk loads, which the emulator does not support; the connection continues.
func errBulkLoad() *sqltype.Error {
	return &sqltype.Error{Number: 50000, State: 1, Class: 16, Line: 1, Message: "The emulator does not take bulk loads."}
}

// parseRequests decodes a batch, procedure-call or transaction-manager message. The error is a *sqltype.Error if it is
// sent to the client and the connection stays usable.
func parseRequests(msg message) ([]*Request, error) {
	d := &decoder{b: msg.payload}
	d.allHeaders()
	var requests []*Request
	var err error
	switch msg.packetType {
	case packetBatch:
		requests = []*Request{d.batch()}
	case packetRPC:
		requests, err = d.calls()
	case packetTransaction:
		requests = d.transaction()
	}
	if err == nil {
		err = d.err
	}
	if err != nil {
		return nil, err
	}
	first := requests[0]
	first.Reset = msg.status&(statusReset|statusResetSkipTran) != 0
	first.KeepTx = msg.status&statusResetSkipTran != 0
	for _, r := range requests {
		r.Bytes = msg.wireBytes
	}
	return requests, nil
}

// allHeaders checks and skips ALL_HEADERS (MS-TDS 2.2.5.3). The transaction descriptor in it matters only to
// connections with several requests at once.
func (d *decoder) allHeaders() {
	total := int(d.u32())
	if total < 4 {
		d.fail("headers of %d bytes", total)
		return
	}
	h := decoder{b: d.bytes(total - 4)}
	for !h.empty() {
		n := int(h.u32())
		if n < 6 {
			d.fail("header of %d bytes", n)
			return
		}
		const transactionDescriptor, descriptorBytes = 2, 18
		kind := h.u16()
		h.bytes(n - 6)
		if kind == transactionDescriptor && n != descriptorBytes {
			d.fail("transaction descriptor header of %d bytes", n)
		}
	}
	if h.err != nil && d.err == nil {
		d.err = h.err
	}
}

func (d *decoder) batch() *Request {
	if len(d.b)%2 != 0 {
		d.fail("SQL text of %d bytes", len(d.b))
	}
	return &Request{Kind: Batch, Text: decodeUTF16(d.b)}
}

// transaction reads a transaction-manager request (MS-TDS 2.2.6.9). A request that ends a transaction can also begin
// the next one, which makes it two requests.
func (d *decoder) transaction() []*Request {
	var requests []*Request
	add := func(tx TxRequest) { requests = append(requests, &Request{Kind: Transaction, Tx: tx}) }
	switch op := TxOp(d.u16()); op {
	case TxBegin:
		add(d.beginTx())
	case TxCommit, TxRollback:
		add(TxRequest{Op: op, Name: d.bVarByteText()})
		const beginAnother = 1
		if d.u8()&beginAnother != 0 {
			add(d.beginTx())
		}
	case TxSave:
		add(TxRequest{Op: op, Name: d.bVarByteText()})
	default:
		d.fail("transaction-manager request %d", op)
	}
	if !d.empty() {
		d.fail("%d bytes after a transaction-manager request", len(d.b))
	}
	return requests
}

func (d *decoder) beginTx() TxRequest {
	tx := TxRequest{Op: TxBegin, Isolation: d.u8()}
	const highestIsolation = 5
	if tx.Isolation > highestIsolation {
		d.fail("isolation level %d", tx.Isolation)
	}
	tx.Name = d.bVarByteText()
	return tx
}
