package consume

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// trimRows is how many messages a step deletes at most. After a step that failed it is half as many, for large bodies.
const trimRows = 1000

// trim deletes once a minute the dead and done messages that the queue's policy no longer keeps. It keeps no session. Each round begins
// where the one before ended, and does not walk over the rows that were deleted. Every 60th round begins at the beginning, for rows that
// another session had locked, or archived in a transaction that was open for long.
func (c *Consumer) trim() {
	const whole = 60
	chore := c.cfg.Task("trim", "trim")
	defer chore.End()
	var done, dead, free int64
	most := trimRows
	for round := 1; c.stop.Err() == nil; round++ {
		p := c.cfg.Table.Policy()
		every := time.Minute
		for _, age := range []time.Duration{p.Retain, p.RetainDead} {
			if age > 0 {
				every = max(time.Second, min(every, age))
			}
		}
		batch.Sleep(c.stop, every/2+rand.N(every))
		p = c.cfg.Table.Policy() // which may have changed
		if round%whole == 0 {
			done, dead = 0, 0
		}
		c.report(chore, "trim", cmp.Or(c.trimOnce(sqlbatch.Done, p.Retain, &done, &most), c.trimOnce(sqlbatch.Dead, p.RetainDead, &dead, &most), c.shrink(&free)))
	}
}

// trimOnce deletes messages of a state that ended longer ago than age, in steps, each from where the one before ended. Between them
// others have their turn. A step that failed is repeated from where it began: its rows may precede the error, and be there still. An
// age of 0 keeps all.
func (c *Consumer) trimOnce(state sqlbatch.State, age time.Duration, after *int64, most *int) error {
	if age == 0 {
		return nil
	}
	for rows := *most; c.stop.Err() == nil; rows = *most {
		deleted, last := 0, *after
		ctx, cancel := context.WithTimeout(c.stop, c.spareTime())
		err := c.parts.note.RunPatient(ctx, c.cfg.Table.SQL.Trim(state, age, rows, *after), func(r *sql.Rows) error {
			var id sql.RawBytes
			var place int64
			err := r.Scan(&id, &place)
			last = max(last, place)
			deleted++
			return err
		})
		cancel()
		if err != nil {
			*most = max(1, rows/2)
			return err
		}
		*after, *most = last, min(trimRows, 2*rows)
		if deleted < rows {
			return nil
		}
	}
	return nil
}
