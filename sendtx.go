package chanq

import (
	"context"
	"database/sql"
	"errors"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// SendTx stores messages in the caller's transaction: they are in the queue if
// and when that commits. Call Queue.Wake after the commit to have consumers of
// this process look at once. There is a Receipt for each message, in order; with
// no messages it does nothing, and returns none.
//
// One round trip per ProducerConfig.BatchRows (500) messages or BatchBytes (4
// MiB); one more where a DedupKey or a caller's ID is met. Until the transaction
// ends it keeps a send of the same DedupKey or ID waiting, and nobody else, and it
// waits for such a one itself. It needs no connection of the producer's. All
// messages are checked before the first is sent: a wrong one leaves the
// transaction as it was. After another error roll back.
func (p *Producer[T]) SendTx(ctx context.Context, tx *sql.Tx, ms ...Message[T]) ([]Receipt, error) {
	if tx == nil {
		return nil, errors.New("chanq: send: tx is nil")
	}
	if p.open.Err() != nil {
		return nil, &OpError{Op: "send", Queue: p.queue.name, Err: ErrClosed}
	}
	rows := make([]sqlbatch.Row, len(ms))
	receipts := make([]Receipt, len(ms))
	given := false
	for i := range ms {
		m := ms[i]
		row, chosen, err := m.row(p.queue)
		if err != nil {
			return nil, p.sendError(m.ID, err, false)
		}
		rows[i], receipts[i].ID = row, row.ID
		given = given || chosen || row.Key != ""
	}
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return session.RunTx(ctx, tx, st, scan) }
	for first := 0; first < len(rows); {
		n := cut(rows[first:], p.cfg.BatchRows, p.cfg.BatchBytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, given })
		if err := p.queue.enqueue(ctx, run, p.queue.sql.InTx(), rows[first:first+n], receipts[first:first+n], given); err != nil {
			return nil, p.queue.failTx("send", err)
		}
		first += n
	}
	return receipts, nil
}
