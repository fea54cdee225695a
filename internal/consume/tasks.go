package consume

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// tasks are what a consumer does that no delivery waits for: heartbeats, trims, vacuums and look-ups. They use sessions
// of kind Note, so that neither claims nor settles wait for a session.
type tasks struct {
	of *Consumer
	*Config
}

// do runs a statement with low priority, and returns how long it took.
func (t tasks) do(ctx context.Context, timeout time.Duration, st sqlbatch.Statement,
	scan session.Scan) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.of.parts.note.RunPatient(ctx, st, scan)
}

// lookUp looks up the rows of leases.
func (t tasks) lookUp(leases []*lease.Lease) (table.Seen, error) {
	seen, err := table.Table{Queue: t.Table, Part: t.of.parts.note}.Look(t.of.ending.abandoned, t.RenewTimeout(),
		lease.IDs(leases))
	t.mind("look", err)
	return seen, err
}

// report reports the result of a task, and ends the consumer if it is hopeless.
func (t tasks) report(of *base.Task, op string, err error) {
	of.Report(err)
	t.mind(op, err)
}

// mind ends the consumer if err is hopeless. It is for statements that are repeated whatever their outcome.
func (t tasks) mind(op string, err error) {
	if session.Hopeless(err) {
		t.of.Broken(op, err)
	}
}
