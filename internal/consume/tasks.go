package consume

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

// tasks is what the tasks of a consumer share for which no delivery waits: heartbeat, trimmer, vacuumer and witness. They use sessions of
// the kind Note, so that neither claims nor settles wait for one.
type tasks struct {
	cfg    *Config
	note   *session.Part
	stop   context.Context
	broken func(op string, err error)
}

// do runs a statement in no hurry, and returns how long it took.
func (t *tasks) do(ctx context.Context, timeout time.Duration, st sqlbatch.Statement, scan func(*sql.Rows) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.note.RunPatientTimed(ctx, st, scan)
}

// spareTime is how long a statement may take that no message waits for: where all share one connection not longer than leases can spare.
func (t *tasks) spareTime() time.Duration {
	if t.cfg.Table.Dialect.Traits().OneWriter {
		return t.patience()
	}
	return t.cfg.StatementTimeout
}

// patience is how long a statement may take that leases, or the membership, depend on.
func (t *tasks) patience() time.Duration {
	return settle.Patience(t.cfg.LeaseFor, t.cfg.StatementTimeout)
}

// report reports the result of a task, and ends the consumer if the driver panicked in it.
func (t *tasks) report(of *base.Task, op string, err error) {
	of.Report(err)
	t.mind(op, err)
}

// mind ends the consumer if err is a panic of the driver. It is for statements that are repeated whatever their outcome.
func (t *tasks) mind(op string, err error) {
	if session.Panicked(err) {
		t.broken(op, err)
	}
}
