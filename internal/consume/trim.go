package consume

import (
	"cmp"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// trimRows is how many messages a step deletes at most. After a step that failed it is half as many, for large bodies.
const trimRows = 1000

// trimmer deletes the dead and done messages that the queue's policy no longer keeps, and returns free pages. It keeps no session.
type trimmer struct {
	*tasks
	done, dead int64 // where the last round ended
	most       int   // messages of the next step
	free       int64 // pages of the file, after the last look
}

// run trims once a minute. Each round begins where the one before ended, and does not walk over the rows that were deleted. Every 60th
// round begins at the beginning, for rows that another session had locked, or archived in a transaction that was open for long.
func (t *trimmer) run() {
	const whole = 60
	chore := t.cfg.Task("trim", "trim")
	defer chore.End()
	t.most = trimRows
	for round := 1; t.stop.Err() == nil; round++ {
		p := t.cfg.Table.Policy()
		every := time.Minute
		for _, age := range []time.Duration{p.Retain, p.RetainDead} {
			if age > 0 {
				every = max(time.Second, min(every, age))
			}
		}
		batch.Sleep(t.stop, every/2+rand.N(every))
		p = t.cfg.Table.Policy() // which may have changed
		if round%whole == 0 {
			t.done, t.dead = 0, 0
		}
		t.report(chore, "trim", cmp.Or(t.trim(sqlbatch.Done, p.Retain, &t.done), t.trim(sqlbatch.Dead, p.RetainDead, &t.dead), t.shrink()))
	}
}

// trim deletes messages of a state that ended longer ago than age, in steps, each from where the one before ended. Between them
// others have their turn. A step that failed is repeated from where it began: its rows may precede the error, and be there still. An
// age of 0 keeps all.
func (t *trimmer) trim(state sqlbatch.State, age time.Duration, after *int64) error {
	if age == 0 {
		return nil
	}
	for rows := t.most; t.stop.Err() == nil; rows = t.most {
		deleted, last := 0, *after
		_, err := t.do(t.stop, t.cfg.spareTime(), t.cfg.Table.SQL.Trim(state, age, rows, *after), func(r *sql.Rows) error {
			var id sql.RawBytes
			var place int64
			err := r.Scan(&id, &place)
			last = max(last, place)
			deleted++
			return err
		})
		if err != nil {
			t.most = max(1, rows/2)
			return err
		}
		*after, t.most = last, min(trimRows, 2*rows)
		if deleted < rows {
			return nil
		}
	}
	return nil
}
