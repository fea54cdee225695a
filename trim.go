package chanq

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/batch"
)

// trim deletes what Config.Retain no longer keeps, once a minute, as the
// application would: no session of the consumer's is kept by it. Each round begins where
// the one before it ended, and does not walk over what that one left behind. Once an hour,
// of rounds, one begins at the beginning, for what somebody had locked, or
// archived in a transaction that was open for long.
func (c *consumer) trim() {
	const whole = 60
	every := max(time.Second, min(time.Minute, c.queue.cfg.Retain))
	chore := c.queue.task("trim", "trim")
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
func (c *consumer) trimOnce(after *int64) error {
	for c.stop.Err() == nil {
		deleted, last := 0, *after
		ctx, cancel := context.WithTimeout(c.stop, c.cfg.StatementTimeout)
		err := c.notes.RunPatient(ctx, c.queue.sql.Trim(c.queue.cfg.Retain, operateRows, *after), func(rows *sql.Rows) error {
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
		if deleted < operateRows {
			return nil
		}
	}
	return nil
}
