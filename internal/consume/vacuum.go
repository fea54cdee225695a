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

// vacuums keeps dead rows from growing the live table if the database removes them by a vacuum. Each consumer checks by
// itself; the database lets one session of all processes vacuum at a time. A consumer that took no message runs no
// statement. The end of the consumer cancels the running one.
func (t tasks) vacuums() {
	var pace vacuumPace
	chore := t.Task("vacuum", "vacuum")
	defer chore.End()
	every, stop := t.VacuumEvery, t.of.load.stop
	for stop.Err() == nil {
		batch.Sleep(stop, every/2+every/4+rand.N(every/2+1)) // not all processes at the same time
		if ended := t.of.owner.pace.Ended(); stop.Err() == nil && pace.due(base.Now(), ended) {
			t.vacuumIfWorn(chore, &pace)
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
func (t tasks) vacuumIfWorn(chore *base.Task, pace *vacuumPace) {
	w, err := t.wear()
	if err != nil || !pace.worth(base.Now(), w) {
		if err != nil {
			t.report(chore, "vacuum", err)
		}
		return
	}
	if w.denied != "" {
		chore.Report(fmt.Errorf("%w: %s; or make autovacuum run more often (autovacuum_naptime = '5s')", ErrDenied,
			w.denied))
		return
	}
	done, ok := t.of.parts.note.Turn()
	if !ok {
		return // a vacuum of another queue is running
	}
	defer done()
	stop := t.of.load.stop
	ctx, cancel := context.WithTimeout(stop, vacuumTimeout)
	defer cancel()
	began := base.Now()
	err = t.of.parts.note.Run(ctx, t.Table.SQL.Vacuum(), nil)
	took := base.Now() - began
	if err == nil {
		batch.Sleep(stop, wearDelay)
		w, err = t.wear()
	}
	if stop.Err() != nil {
		return // not a failure
	}
	t.report(chore, "vacuum", err)
	if err != nil {
		pace.failed(base.Now(), took)
		return
	}
	pace.done(base.Now(), took, w)
}

// wear reads the figures of the table. A missing table has none.
func (t tasks) wear() (w wear, err error) {
	_, err = t.do(t.of.load.stop, t.StatementTimeout, t.Table.SQL.Bloat(), func(rows *sql.Rows) error {
		var denied sql.NullString
		err := rows.Scan(&w.dead, &w.live, &w.vacuums, &denied)
		w.denied = denied.String
		return err
	})
	return w, err
}

// ErrDenied reports a vacuum that was not tried because the database would refuse it.
var ErrDenied = errors.New("this role has no permission to vacuum the live table, which grows until autovacuum runs")
