package consume

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
)

// vacuum keeps dead rows from growing the live table, where the database removes them by a vacuum. Each consumer looks by itself; the
// database lets one of all processes vacuum at a time. A consumer that took no message makes no statement.
//
// It uses a session of the kind Note during the vacuum, so neither claims nor settles wait for one. Stop cancels the statement that is
// under way.
func (c *Consumer) vacuum() {
	chore := c.cfg.Task("vacuum", "vacuum")
	defer chore.End()
	every := c.cfg.VacuumEvery
	p := vacuumPace{}
	for c.stop.Err() == nil {
		batch.Sleep(c.stop, every/2+every/4+rand.N(every/2+1)) // not all processes at once
		if taken := c.pace.Taken(); c.stop.Err() == nil && p.due(base.Now(), taken) {
			c.vacuumIfWorn(&p, chore)
		}
	}
}

const (
	// vacuumTimeout is how long a vacuum may take: far longer than any does, except for tables of some hundred gigabytes, which
	// autovacuum has to clean.
	vacuumTimeout = 10 * time.Minute
	// wearDelay is how long after a vacuum PostgreSQL 13 and 14 may show the figures of before.
	wearDelay = 600 * time.Millisecond
)

// vacuumIfWorn looks at the table, vacuums it if that is worth the time, and looks again.
func (c *Consumer) vacuumIfWorn(p *vacuumPace, chore *base.Task) {
	w, err := c.wear()
	if err != nil || !p.worth(base.Now(), w) {
		if err != nil {
			c.report(chore, "vacuum", err)
		}
		return
	}
	if w.denied != "" {
		chore.Report(&DeniedError{w.denied})
		return
	}
	done, ok := c.parts.note.Turn()
	if !ok {
		return // another queue's
	}
	defer done()
	ctx, cancel := context.WithTimeout(c.stop, vacuumTimeout)
	defer cancel()
	began := base.Now()
	err = c.parts.note.Run(ctx, c.cfg.Table.SQL.Vacuum(), nil)
	took := base.Now() - began
	if err == nil {
		batch.Sleep(c.stop, wearDelay)
		w, err = c.wear()
	}
	if c.stop.Err() != nil {
		return // which is no failure
	}
	c.report(chore, "vacuum", err)
	if err != nil {
		p.failed(base.Now(), took)
		return
	}
	p.done(base.Now(), took, w)
}

// wear asks the database. A table that is missing has none.
func (c *Consumer) wear() (w wear, err error) {
	ctx, cancel := context.WithTimeout(c.stop, c.cfg.StatementTimeout)
	defer cancel()
	err = c.parts.note.RunPatient(ctx, c.cfg.Table.SQL.Bloat(), func(rows *sql.Rows) error {
		var denied sql.NullString
		err := rows.Scan(&w.dead, &w.live, &w.vacuums, &denied)
		w.denied = denied.String
		return err
	})
	return w, err
}

// DeniedError is a vacuum that the database would refuse, had it been asked for.
type DeniedError struct{ remedy string }

func (e *DeniedError) Error() string {
	return fmt.Sprintf("this role may not vacuum the live table, which grows until autovacuum comes: %s; or have autovacuum come more often (autovacuum_naptime = '5s')", e.remedy)
}
