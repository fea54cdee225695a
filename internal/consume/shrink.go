package consume

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	// keptPages is how many free pages stay in the file for what comes next: 2 MiB, with pages of 4 KiB.
	keptPages = 512
	// shrinkRest is the pause after a step, in units of the time that the step took: one consumer has the lock for 20 % of the time at most.
	shrinkRest = 4
)

// shrink returns free pages of the file to the file system, in steps, since each one holds the write lock. It leaves those that were
// not free at the look before, which before has: messages fill them again. The caller calls it about once a minute.
func (c *Consumer) shrink(before *int64) error {
	look, step := c.cfg.Table.SQL.FreePages(), c.cfg.Table.SQL.Shrink()
	if look.Text == "" {
		return nil
	}
	var free int64
	if _, err := c.patiently(look, func(rows *sql.Rows) error { return rows.Scan(&free) }); err != nil {
		return err
	}
	spare := min(free, *before) - keptPages
	*before = free
	for spare >= sqlbatch.ShrinkPages && c.stop.Err() == nil {
		returned := 0
		took, err := c.patiently(step, func(*sql.Rows) error { returned++; return nil })
		if err != nil || returned == 0 { // the file was made without the setting
			return err
		}
		spare -= int64(returned)
		*before -= int64(returned)
		batch.Sleep(c.stop, shrinkRest*took)
	}
	return nil
}

// patiently runs a statement in no hurry, and returns how long it took.
func (c *Consumer) patiently(st sqlbatch.Statement, scan func(*sql.Rows) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(c.stop, c.spareTime())
	defer cancel()
	return c.parts.note.RunPatientTimed(ctx, st, scan)
}
