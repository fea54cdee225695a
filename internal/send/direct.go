package send

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
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

// Send stores all rows or none, and repeats a try that failed until ctx ends, unless the database rejects it. keyed says that an ID
// or a key may be in the queue already. unknown reports that the rows may be stored in spite of err.
func (d Direct) Send(ctx context.Context, rows []sqlbatch.Row, keyed bool) (receipts []Receipt, unknown bool, err error) {
	loop := batch.Loop{
		Health: &base.Availability{}, Classify: d.Classify, Unknown: session.Fell,
		Timeout: d.Timeout * time.Duration(1+len(rows)/d.Rows),
	}
	longest := 4 * loop.Timeout
	for {
		receipts = make([]Receipt, len(rows))
		f := loop.Try(ctx, func(ctx context.Context) error { return d.try(ctx, rows, receipts, keyed) })
		if f == nil {
			return receipts, false, nil
		}
		// After a Duplicate, too: the driver has repeated an INSERT of which it did not know the outcome.
		stored := f.Unknown || f.Class == sqlbatch.Duplicate
		unknown, keyed = unknown || stored, keyed || stored
		switch f.Class {
		case sqlbatch.BadRow, sqlbatch.NoSchema, sqlbatch.Permanent:
			return receipts, unknown, f.Err
		}
		if time.Since(f.Began) >= loop.Timeout {
			loop.Timeout = min(2*loop.Timeout, longest)
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

// try stores rows in one statement, or in one transaction. A statement for several rows that may be in the queue already is followed
// by others, so it needs a transaction.
func (d Direct) try(ctx context.Context, rows []sqlbatch.Row, receipts []Receipt, keyed bool) error {
	fit := Cut(rows, d.Rows, d.Bytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, keyed })
	if fit == len(rows) && (fit == 1 || !keyed) {
		return d.Store(ctx, rows, receipts, keyed)
	}
	return d.InTx(ctx, func(in Inserts) error { return in.StoreAll(ctx, rows, receipts, keyed, d.Rows, d.Bytes) })
}
