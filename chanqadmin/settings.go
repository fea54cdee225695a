package chanqadmin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/table"
)

// Pause stops the claims of this queue in all processes, in each with its next poll. Leases may still be settled, consumers deliver
// their buffered leases, and sends continue. Change.Actor and Reason are stored for other operators: see Paused. Limit, PerSecond
// and DryRun must be zero. It costs one round trip, and four for the log of changes.
func (q *Queue) Pause(ctx context.Context, c Change) error {
	return q.set(ctx, "pause", "", c, func() error {
		return q.fail("pause", q.once(ctx, q.sql.Pause(c.actor(), c.Reason), nil))
	})
}

// set makes a change of the queue that changes no message.
func (q *Queue) set(ctx context.Context, what, which string, c Change, do func() error) error {
	if err := c.checkSet(); err != nil {
		return q.refuse(what, "%w", err)
	}
	return q.logged(ctx, what, which, &c, func() (int, error) { return 0, do() })
}

// checkSet returns all errors of a Change of a queue.
func (c *Change) checkSet() error {
	err := c.check()
	if c.Limit != 0 || c.PerSecond != 0 || c.DryRun {
		err = errors.Join(err, errors.New("Change.Limit, PerSecond and DryRun must be zero: it is no change of messages"))
	}
	return err
}

// Pause is the pause of a queue.
type Pause struct {
	Since      time.Time // by the clock of the database; zero: the queue is not paused
	By, Reason string
}

// Paused returns the pause of the queue. It costs one round trip.
func (q *Queue) Paused(ctx context.Context) (Pause, error) {
	var found table.Stored
	if err := q.once(ctx, q.sql.Version(), found.Scan); err != nil || !found.Paused {
		return Pause{}, q.fail("paused", err)
	}
	return Pause{Since: time.UnixMilli(found.PausedAt.Int64), By: found.PausedBy.String, Reason: found.PauseReason.String}, nil
}

// Configure changes the fields of the queue's Spec that are not zero in spec, while programs use the queue. Its consumers adopt them
// with their next heartbeat, at least every third of chanq.ConsumerConfig.LeaseFor. Kind and Slots cannot be changed: ErrSpec. The role needs
// permission to update the queue's row, as for Pause. If a table or an index of the queue is missing, Configure creates it as
// chanq.Migrate does. It costs up to ten round trips, four if nothing changes, and four for the log of changes. If the queue does not
// exist, Configure returns ErrNoSchema. Limit, PerSecond and DryRun of c must be zero.
func (q *Queue) Configure(ctx context.Context, spec chanq.Spec, c Change) error {
	if _, err := q.Spec(ctx); err != nil { // Migrate would create a dropped queue again
		return err
	}
	cfg := q.cfg
	cfg.Spec = spec
	return q.set(ctx, "configure", specText(spec), c, func() error { return chanq.Migrate(ctx, q.db, q.Name(), cfg) })
}

// specText returns the fields of a Spec that are set.
func specText(spec chanq.Spec) string {
	var set []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[chanq.Spec]()) {
		if value := reflect.ValueOf(spec).FieldByIndex(field.Index); !value.IsZero() {
			set = append(set, fmt.Sprintf("%s=%v", field.Name, value))
		}
	}
	return strings.Join(set, " ")
}

// Spec returns the stored Spec of the queue. It costs one round trip.
func (q *Queue) Spec(ctx context.Context) (chanq.Spec, error) {
	cfg, err := chanq.StoredConfig(ctx, q.db, q.Name(), q.cfg)
	return cfg.Spec, err
}

// Now returns the time of the database's clock. It costs one round trip.
func (q *Queue) Now(ctx context.Context) (time.Time, error) {
	var now int64
	err := q.once(ctx, q.sql.Clock(), func(rows *sql.Rows) error { return rows.Scan(&now) })
	return time.UnixMilli(now), q.fail("now", err)
}

// Resume ends a pause, and deletes its actor and reason. Limit, PerSecond and DryRun of c must be zero. It costs as much as Pause.
func (q *Queue) Resume(ctx context.Context, c Change) error {
	return q.set(ctx, "resume", "", c, func() error {
		err := q.once(ctx, q.sql.Resume(), nil)
		if err == nil {
			q.queue.Wake()
		}
		return q.fail("resume", err)
	})
}
