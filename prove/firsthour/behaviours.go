package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest/behaviours"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// claimFor is the most that a claim may wait for what others have open: its lock timeout is 100 ms.
const claimFor = time.Second

// behave is part 4: it runs each behaviour of the emulator's contract on the server, in databases without and with row versions, and lets a
// claim run while other transactions are open.
func behave(ctx context.Context, h *hour) error {
	for _, d := range h.databases {
		if d.slots > 0 {
			continue
		}
		for _, b := range behaviours.All() {
			seen, err := behaviours.Run(ctx, d.db, b)
			if err != nil {
				return fmt.Errorf("%s: %w", d.suffix, err)
			}
			h.report.compare(d.suffix+": "+b.Name, b.Expected(d.versions), seen)
		}
		if err := h.claimAmongOthers(ctx, d); err != nil {
			return fmt.Errorf("%s: a claim while others are open: %w", d.suffix, err)
		}
	}
	return nil
}

// claimAmongOthers opens a SendTx, an AckTx and a claim, and claims what is left: with row locks, as with those of optimized locking, the claim
// skips what they hold, and returns immediately.
func (h *hour) claimAmongOthers(ctx context.Context, d *database) (err error) {
	if err := d.migrate(ctx); err != nil {
		return err
	}
	s, err := d.prepare(ctx)
	if err != nil {
		return err
	}
	q, err := chanq.Open[[]byte](ctx, d.db, queue, d.config())
	if err != nil {
		return err
	}
	statements := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: queue})
	for _, other := range []func(*sql.Tx) error{
		func(tx *sql.Tx) error {
			_, err := q.SendTx(ctx, tx, chanq.Msg([]byte("uncommitted")))
			return err
		},
		func(tx *sql.Tx) error {
			_, err := rowsOf(ctx, tx, statements.InTx().Ack(s.leased[:2]))
			return err
		},
		func(tx *sql.Tx) error {
			_, err := rowsOf(ctx, tx, statements.InTx().Claim(claim(2, false)))
			return err
		},
	} {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tx.Rollback()) }()
		if err := other(tx); err != nil {
			return err
		}
	}
	start := time.Now()
	rows, err := rowsOf(ctx, d.db, statements.Claim(claim(10, false)))
	took := time.Since(start)
	what := d.suffix + ": a claim while a SendTx, an AckTx and a claim of two are open"
	if err != nil {
		h.report.wrong(what, "2 rows", err.Error())
		return nil
	}
	h.report.judge(len(rows) == 2 && took < claimFor, what, fmt.Sprintf("2 rows within %v", claimFor), fmt.Sprintf("%d rows in %v", len(rows), took.Round(time.Millisecond)))
	return nil
}
