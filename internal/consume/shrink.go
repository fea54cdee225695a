package consume

import (
	"database/sql"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	// keptPages is how many free pages stay in the file for what comes next: 2 MiB, with pages of 4 KiB.
	keptPages = 512
	// shrinkRest is the pause after a step, in units of the time that the step took: one consumer has the lock for 20 % of the time at most.
	shrinkRest = 4
)

// shrinker returns free pages of the file to the file system, where the database does not do it.
type shrinker struct {
	*tasks
	free int64 // pages, after the last look
}

// shrink returns pages in steps, since each one holds the write lock. It leaves those that were not free at the look before: messages
// fill them again. The caller calls it about once a minute.
func (s *shrinker) shrink() error {
	look, step := s.cfg.Table.SQL.FreePages(), s.cfg.Table.SQL.Shrink()
	if look.Text == "" {
		return nil
	}
	before := s.free
	if _, err := s.do(s.stop, s.cfg.spareTime(), look, func(rows *sql.Rows) error { return rows.Scan(&s.free) }); err != nil {
		return err
	}
	spare := min(s.free, before) - keptPages
	for spare >= sqlbatch.ShrinkPages && s.stop.Err() == nil {
		returned := int64(0)
		took, err := s.do(s.stop, s.cfg.spareTime(), step, func(*sql.Rows) error { returned++; return nil })
		if err != nil || returned == 0 { // the file was made without the setting
			return err
		}
		spare -= returned
		s.free -= returned
		batch.Sleep(s.stop, shrinkRest*took)
	}
	return nil
}
