package consume

import (
	"cmp"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// trimRows is the maximum number of messages that a step deletes. It halves after a failed step, for large bodies.
const trimRows = 1000

// trims deletes dead and done messages that the queue's policy does not keep, and returns free pages, once a minute. It
// keeps no session. Each round begins where the last one ended, so that it does not walk over deleted rows. Every 60th
// round begins at the beginning, for rows that another session had locked, or archived in a long transaction.
func (t tasks) trims() {
	const whole = 60
	chore := t.Task("trim", "trim")
	defer chore.End()
	most := trimRows             // of the next step
	var doneUpTo, deadUpTo int64 // when the last deleted messages had ended, in Unix ms
	stop := t.of.load.stop
	for round := 1; stop.Err() == nil; round++ {
		p := t.Table.Policy()
		every := time.Minute
		for _, age := range []time.Duration{p.Retain, p.RetainDead} {
			if age > 0 {
				every = max(time.Second, min(every, age))
			}
		}
		batch.Sleep(stop, every/2+rand.N(every))
		p = t.Table.Policy() // it might have changed
		if round%whole == 0 {
			doneUpTo, deadUpTo = 0, 0
		}
		t.report(chore, "trim", cmp.Or(t.trim(sqlbatch.Done, p.Retain, &doneUpTo, &most),
			t.trim(sqlbatch.Dead, p.RetainDead, &deadUpTo, &most), t.shrink()))
	}
}

// trim deletes messages of a state that ended longer ago than age, in steps. Each step begins where the last one ended.
// Other sessions can write between steps. A failed step is repeated from its beginning: its rows might precede the
// error, and still exist. An age of 0 keeps all.
func (t tasks) trim(state sqlbatch.State, age time.Duration, after *int64, most *int) error {
	if age == 0 {
		return nil
	}
	for rows := *most; t.of.load.stop.Err() == nil; rows = *most {
		deleted, last := 0, *after
		_, err := t.do(t.of.load.stop, t.SpareTimeout(), t.Table.SQL.Trim(state, age, rows, *after),
			func(r *sql.Rows) error {
				var id sql.RawBytes
				var place int64
				err := r.Scan(&id, &place)
				last = max(last, place)
				deleted++
				return err
			})
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

// shrinkRest is the pause after a step of shrink, in units of the time that the step took: one consumer has the lock
// for at most 20 % of the time.
const shrinkRest = 4

// shrink returns free pages of the file to the file system, if the database does not, in steps that hold the write
// lock.
func (t tasks) shrink() error {
	step, stop := t.Table.SQL.Shrink(), t.of.load.stop
	for returned := sqlbatch.ShrinkPages; step.Text != "" && returned == sqlbatch.ShrinkPages && stop.Err() == nil; {
		returned = 0
		took, err := t.do(stop, t.SpareTimeout(), step, func(*sql.Rows) error { returned++; return nil })
		if err != nil {
			return err
		}
		batch.Sleep(stop, shrinkRest*took)
	}
	return nil
}
