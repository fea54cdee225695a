package send

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// Direct stores the rows of one call, without a Sender.
type Direct struct {
	Inserts
	// InTx runs f in one transaction, which is committed if f returns nil.
	InTx        func(ctx context.Context, f func(Inserts) error) error
	Rows, Bytes int           // of one statement
	Timeout     time.Duration // per statement
}

// Send stores all rows or none, and repeats a failed try until ctx ends, unless the database rejects it. keyed means
// that an ID or a key might be in the queue already. unknown reports that the rows might be stored despite err.
func (d Direct) Send(ctx context.Context, rows []sqlbatch.Row, keyed bool) (receipts []Receipt, unknown bool,
	err error) {
	loop := batch.Loop{Health: &base.Availability{}, Classify: d.Classify}
	longest := 4 * d.Timeout
	for {
		receipts = make([]Receipt, len(rows))
		late := false
		f := loop.Try(ctx, func(ctx context.Context) (err error) {
			late, err = d.try(ctx, rows, receipts, keyed)
			return err
		})
		if f == nil {
			return receipts, false, nil
		}
		// Also after a Duplicate: the driver has repeated an INSERT whose outcome it did not know.
		stored := f.Class == sqlbatch.Unknown || f.Class == sqlbatch.Duplicate
		unknown, keyed = unknown || stored, keyed || stored
		switch f.Class {
		case sqlbatch.BadRow, sqlbatch.NoSchema, sqlbatch.Permanent:
			return receipts, unknown, f.Err
		}
		if late {
			d.Timeout = min(2*d.Timeout, longest)
		}
		batch.Sleep(ctx, loop.Failed(ctx, f))
		switch {
		case ctx.Err() == nil:
		case errors.Is(f.Err, ctx.Err()):
			return receipts, unknown, context.Cause(ctx)
		default:
			return receipts, unknown, fmt.Errorf("%w; the last try: %w", context.Cause(ctx), f.Err)
		}
	}
}

// try stores rows in one statement, or in one transaction. A statement for several rows that might be in the queue
// already is followed by others, so it needs a transaction. The timeout starts again with each statement, and with the
// commit. late reports that one of them exceeded it.
func (d Direct) try(ctx context.Context, rows []sqlbatch.Row, receipts []Receipt, keyed bool) (late bool, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(d.Timeout, cancel)
	defer timer.Stop()
	begin := func() { timer.Reset(d.Timeout) }
	fit := Cut(rows, d.Rows, d.Bytes, func(r *sqlbatch.Row) (*sqlbatch.Row, int, bool) { return r, len(r.Body), keyed })
	if fit == len(rows) && (fit == 1 || !keyed) {
		d.begin = begin
		err = d.Store(within, rows, receipts, keyed)
	} else {
		err = d.InTx(within, func(in Inserts) error {
			defer begin()
			clear(receipts) // of a transaction that failed
			in.begin = begin
			return in.StoreAll(within, rows, receipts, keyed, d.Rows, d.Bytes)
		})
	}
	return err != nil && within.Err() != nil && ctx.Err() == nil, err
}
