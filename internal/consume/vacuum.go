package consume

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
)

// vacuumer keeps dead rows from growing the live table if the database removes them by a vacuum. Each consumer checks
// by itself; the database lets one session of all processes vacuum at a time. A consumer that took no message runs no
// statement.
type vacuumer struct {
	tasks
	pace vacuumPace
}

// run checks until the consumer stops, which cancels the running statement.
func (v *vacuumer) run() {
	chore := v.cfg.Task("vacuum", "vacuum")
	defer chore.End()
	every := v.cfg.VacuumEvery
	for v.stop.Err() == nil {
		batch.Sleep(v.stop, every/2+every/4+rand.N(every/2+1)) // not all processes at the same time
		if ended := v.of.owner.pace.Ended(); v.stop.Err() == nil && v.pace.due(base.Now(), ended) {
			v.vacuumIfWorn(chore)
		}
	}
}

const (
	// vacuumTimeout is the timeout of a vacuum. Only tables of some hundred gigabytes need longer; autovacuum has to
	// clean those.
	vacuumTimeout = 10 * time.Minute
	// wearDelay is how long PostgreSQL 13 and 14 might show the old figures after a vacuum.
	wearDelay = 600 * time.Millisecond
)

// vacuumIfWorn checks the table, vacuums it if that is worth the time, and checks it again.
func (v *vacuumer) vacuumIfWorn(chore *base.Task) {
	w, err := v.wear()
	if err != nil || !v.pace.worth(base.Now(), w) {
		if err != nil {
			v.report(chore, "vacuum", err)
		}
		return
	}
	if w.denied != "" {
		chore.Report(fmt.Errorf("%w: %s; or make autovacuum run more often (autovacuum_naptime = '5s')", ErrDenied,
			w.denied))
		return
	}
	done, ok := v.of.parts.note.Turn()
	if !ok {
		return // a vacuum of another queue is running
	}
	defer done()
	ctx, cancel := context.WithTimeout(v.stop, vacuumTimeout)
	defer cancel()
	began := base.Now()
	err = v.of.parts.note.Run(ctx, v.cfg.Table.SQL.Vacuum(), nil)
	took := base.Now() - began
	if err == nil {
		batch.Sleep(v.stop, wearDelay)
		w, err = v.wear()
	}
	if v.stop.Err() != nil {
		return // not a failure
	}
	v.report(chore, "vacuum", err)
	if err != nil {
		v.pace.failed(base.Now(), took)
		return
	}
	v.pace.done(base.Now(), took, w)
}

// wear reads the figures of the table. A missing table has none.
func (v *vacuumer) wear() (w wear, err error) {
	_, err = v.do(v.stop, v.cfg.StatementTimeout, v.cfg.Table.SQL.Bloat(), func(rows *sql.Rows) error {
		var denied sql.NullString
		err := rows.Scan(&w.dead, &w.live, &w.vacuums, &denied)
		w.denied = denied.String
		return err
	})
	return w, err
}

// ErrDenied reports a vacuum that was not tried because the database would refuse it.
var ErrDenied = errors.New("this role has no permission to vacuum the live table, which grows until autovacuum runs")
