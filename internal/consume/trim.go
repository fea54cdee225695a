package consume

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/batch"
)

// trimRows is how many messages a step deletes at most.
const trimRows = 1000

// trim deletes once a minute what Retain no longer keeps. It keeps no session. Each round begins where the one before ended, and does not
// walk over the rows that were deleted. Every 60th round begins at the beginning, for rows that another session had locked, or
// archived in a transaction that was open for long.
func (c *Consumer) trim() {
	const whole = 60
	every := max(time.Second, min(time.Minute, c.cfg.Retain))
	chore := c.cfg.Task("trim", "trim")
	defer chore.End()
	after := int64(0)
	for round := 1; c.stop.Err() == nil; round++ {
		batch.Sleep(c.stop, every/2+rand.N(every))
		if round%whole == 0 {
			after = 0
		}
		c.report(chore, "trim", c.trimOnce(&after))
	}
}

// trimOnce deletes in steps, each from where the one before ended. Between them others
// have their turn. A step that failed is repeated from where it began: its rows may precede
// the error, and be there still.
func (c *Consumer) trimOnce(after *int64) error {
	for c.stop.Err() == nil {
		deleted, last := 0, *after
		ctx, cancel := context.WithTimeout(c.stop, c.cfg.StatementTimeout)
		err := c.parts.note.RunPatient(ctx, c.cfg.Table.SQL.Trim(c.cfg.Retain, trimRows, *after), func(rows *sql.Rows) error {
			var id sql.RawBytes
			var place int64
			err := rows.Scan(&id, &place)
			last = max(last, place)
			deleted++
			return err
		})
		cancel()
		if err != nil {
			return err
		}
		*after = last
		if deleted < trimRows {
			return nil
		}
	}
	return nil
}
