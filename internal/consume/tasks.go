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

// tasks is shared by the tasks of a consumer that no delivery waits for: heartbeat, trimmer, vacuumer and openAcks.
// They use sessions of kind Note, so that neither claims nor settles wait for a session.
type tasks struct {
	of   *Consumer
	cfg  *Config
	stop context.Context
}

// do runs a statement with low priority, and returns how long it took.
func (t tasks) do(ctx context.Context, timeout time.Duration, st sqlbatch.Statement,
	scan func(*sql.Rows) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.of.parts.note.RunPatient(ctx, st, scan)
}

// spareTimeout is the timeout of a statement that no message waits for. If all statements share one connection, leases
// cannot be extended meanwhile.
func (c *Config) spareTimeout() time.Duration {
	if c.Table.Dialect.Traits().OneWriter {
		return c.patience()
	}
	return c.StatementTimeout
}

// patience is the timeout of a statement that leases or the membership depend on.
func (c *Config) patience() time.Duration { return settle.Patience(c.LeaseFor, c.StatementTimeout) }

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
