package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// What is stored, or acked, in a transaction of the caller's.

// SendTx stores messages in the caller's transaction: they are in the queue if
// and when that commits. It needs no Producer and no connection of its own. Call Wake
// after the commit to have idle consumers look at once. There is a Receipt
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
			return nil, &OpError{Op: "send", Queue: core.label, ID: m.ID, Err: err}
		}
		rows[i], receipts[i].ID = row, row.ID
		given = given || chosen || row.Key != ""
	}
	inserts := core.inserts(core.table.InTx(tx))
	most := min(DefaultBatchRows, core.dialect.Traits().EnqueueRows)
	for first := 0; first < len(rows); {
		n := send.Cut(rows[first:], most, defaultBatchBytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, given })
		var stored []send.Receipt
		if given {
			stored = make([]send.Receipt, n)
		}
		if err := inserts.Store(ctx, rows[first:first+n], stored, given); err != nil {
			return nil, core.failTx("send", err)
		}
		for i, r := range stored {
			if r.Duplicate {
				receipts[first+i] = receiptOf(r)
			}
		}
		first += n
	}
	core.recorder.sentInTx(receipts)
	return receipts, nil
}

// AckTx acks the message in the caller's transaction: it leaves the queue
// if and when that commits. One round trip; for many leases see the function
// AckTx. An *OpError of ErrLeaseLost means that the message is not this holder's any
// more: roll back. From the call on the lease is no longer extended, because the extension
// must not wait for a row that the transaction holds; so call it late in the
// transaction. After a rollback it may still be settled until it expires: in
// Handle, by returning an error. On an ordered queue the next message of the key comes once
// the consumer has seen the commit: it looks when the handler returns, and else after 50 ms,
// and then less and less often, down to once a second.
func (d *Delivery) AckTx(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return errors.New("chanq: ack: tx is nil")
	}
	if d.lease == nil {
		return errMadeByHand
	}
	return notAcked(d.lease, ackTx(ctx, tx, []*lease.Lease{d.lease})[0])
}

// notAcked is the error of a lease that AckTx could not ack.
func notAcked(l *lease.Lease, err error) error {
	if op := (*OpError)(nil); err == nil || errors.As(err, &op) {
		return err // of the statement
	}
	return &OpError{Op: "ack", Queue: homeOf(l).label, ID: l.Item.ID, Err: err}
}

// AckTx acks the messages of many leases in the caller's transaction, as
// Lease.AckTx does for one: all of them leave the queue if and when that commits.
// One round trip per 400 messages on SQL Server, and per 1000 on PostgreSQL and
// SQLite. The leases are of one queue, for example from Consumer.Receive.
//
// A nil error means that all are still held. A *BatchError has an entry for each
// lease, in order: an *OpError of ErrLeaseLost or ErrSettled for those that this holder does
// not hold any more, nil for the others. Then roll back, since the transaction may
// have deleted the others; after that they may be settled, or given to AckTx
// again, until they expire. Where it is known before that a lease is not held, the
// database is not asked, and the others are extended as before.
func AckTx[T any](ctx context.Context, tx *sql.Tx, leases ...*Lease[T]) error {
	if tx == nil {
		return errors.New("chanq: ack: tx is nil")
	}
	all := make([]*lease.Lease, len(leases))
	errs := make([]error, len(leases))
	held := true
	for i, l := range leases {
		if l == nil {
			return fmt.Errorf("chanq: ack: lease %d is nil", i)
		}
		if l.lease == nil {
			return fmt.Errorf("chanq: ack: lease %d: %w", i, errMadeByHand)
		}
		all[i] = l.lease
		if here, first := homeOf(all[i]), homeOf(all[0]); here.key != first.key {
			return fmt.Errorf("chanq: ack: leases of two queues, %s and %s: give those of one Queue, and one shard of it", first.label, here.label)
		}
		errs[i] = all[i].State().NotHeld()
		held = held && errs[i] == nil
	}
	if held {
		errs = ackTx(ctx, tx, all)
	}
	for i, err := range errs {
		var op *OpError
		switch {
		case errors.As(err, &op): // of the statement, which all share
			return err
		case err != nil:
			errs[i] = notAcked(all[i], err)
			held = false
		}
	}
	if !held {
		return &BatchError{Op: "ack", Errs: errs}
	}
	return nil
}

// ackTx deletes the messages of leases of one queue in tx, and returns the
// outcome of each.
func ackTx(ctx context.Context, tx *sql.Tx, leases []*lease.Lease) []error {
	errs := make([]error, len(leases))
	var items []sqlbatch.Item
	for i, l := range leases {
		if errs[i] = l.EnterTx(); errs[i] == nil {
			items = append(items, l.Item)
		}
	}
	if len(items) == 0 {
		return errs
	}
	slices.SortFunc(items, table.CompareItems)
	items = slices.Compact(items)
	held, err := homeOf(leases[0]).ackTx(ctx, tx, items)
	for i, l := range leases {
		if errs[i] != nil {
			continue
		}
		if err != nil {
			errs[i] = err // the transaction is broken; the lease runs out or is settled after the rollback
			continue
		}
		if _, found := slices.BinarySearchFunc(held, l.Item, table.CompareItems); !found {
			errs[i] = ErrLeaseLost
			l.LoseInTx()
			continue
		}
		homeOf(leases[0]).recorder.ackedInTx(l)
	}
	return errs
}

// ackTx returns, in order, those of the items that were held, and are deleted
// now in tx.
func (q *queue) ackTx(ctx context.Context, tx *sql.Tx, items []sqlbatch.Item) (held []sqlbatch.Item, err error) {
	for chunk := range slices.Chunk(items, q.dialect.Traits().AckItems) {
		if err := session.RunTx(ctx, tx, q.table.AckStatement(q.sql.InTx(), chunk), session.CollectItems(&held)); err != nil {
			return nil, q.failTx("ack", err)
		}
	}
	slices.SortFunc(held, table.CompareItems)
	return held, nil
}

// failTx is fail for a statement in the caller's transaction: nothing of it is in
// the database before that is committed, so its outcome is not unknown.
func (q *queue) failTx(op string, err error) error {
	err = q.fail(op, err)
	if failed, ok := err.(*OpError); ok {
		failed.Unknown = false
	}
	return err
}
