package consume

import (
	"database/sql"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	// keptPages is the number of free pages that stay in the file for future use: 2 MiB, with pages of 4 KiB.
	keptPages = 512
	// shrinkRest is the pause after a step, in units of the time that the step took: one consumer has the lock for at most 20 % of the
	// time.
	shrinkRest = 4
)

// shrink returns free pages of the file to the file system if the database does not. It works in steps, because each one holds the write
// lock. Pages that were not free at the previous check stay, because messages will fill them again. shrink is called about once a minute.
func (t *trimmer) shrink() error {
	look, step := t.cfg.Table.SQL.FreePages(), t.cfg.Table.SQL.Shrink()
	if look.Text == "" {
		return nil
	}
	before := t.free
	if _, err := t.do(t.stop, t.cfg.spareTime(), look, func(rows *sql.Rows) error { return rows.Scan(&t.free) }); err != nil {
		return err
	}
	spare := min(t.free, before) - keptPages
	for spare >= sqlbatch.ShrinkPages && t.stop.Err() == nil {
		returned := int64(0)
		took, err := t.do(t.stop, t.cfg.spareTime(), step, func(*sql.Rows) error { returned++; return nil })
		if err != nil || returned == 0 { // the file was made without the setting
			return err
		}
		spare -= returned
		t.free -= returned
		batch.Sleep(t.stop, shrinkRest*took)
	}
	return nil
}
