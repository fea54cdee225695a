package chanq

import (
	"context"
	"database/sql"
	"errors"

	"github.com/chanq/chanq/sqlbatch"
)

// SendTx stores messages in the caller's transaction: they are in the queue if
// and when that commits. It needs no Producer and no connection of its own. Call Wake
// after the commit to have consumers of this process look at once. There is a Receipt
// for each message, in order; with no messages it does nothing, and returns none.
//
// One round trip per 500 messages or 4 MiB of bodies; one more where a DedupKey or a
// caller's ID is met. Until the transaction ends it keeps a send of the same DedupKey
// or ID waiting, and nobody else, and it waits for such a one itself. All messages are
// checked before the first is sent: a wrong one leaves the transaction as it was. After
// another error roll back. It may be called at any time, by many goroutines, each with a
// transaction of its own.
func (q *Queue[T]) SendTx(ctx context.Context, tx *sql.Tx, ms ...Message[T]) ([]Receipt, error) {
	if tx == nil {
		return nil, errors.New("chanq: send: tx is nil")
	}
	core := q.core
	rows := make([]sqlbatch.Row, len(ms))
	receipts := make([]Receipt, len(ms))
	given := false
	for i := range ms {
		m := ms[i]
		row, chosen, err := m.row(core)
		if err != nil {
			return nil, &OpError{Op: "send", Queue: core.name, ID: m.ID, Err: err}
		}
		rows[i], receipts[i].ID = row, row.ID
		given = given || chosen || row.Key != ""
	}
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return runTx(ctx, tx, st, scan) }
	most := min(defaultBatchRows, core.dialect.Traits().EnqueueRows)
	for first := 0; first < len(rows); {
		n := cut(rows[first:], most, defaultBatchBytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, given })
		if err := core.enqueue(ctx, run, core.sql.InTx(), rows[first:first+n], receipts[first:first+n], given); err != nil {
			return nil, core.failTx("send", err)
		}
		first += n
	}
	return receipts, nil
}
