package chanq

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// A shard that could not be asked when the queue was opened: programs must be able to start
// while a place is away. It is taken for what the others say, and asked before the first
// statement that anybody has for it: what it says then is as final as it would have been.

// openPatience is for how long OpenShards waits for a place that does not answer, where another
// one does. Where none does it waits as Open would.
const openPatience = 5 * time.Second

// isAway reports that an error says nothing of the tables, but that nobody could be asked.
func (q *queue) isAway(err error) bool {
	if op := (*OpError)(nil); !errors.As(err, &op) {
		return false // nobody was asked
	}
	switch q.classify(err) {
	case sqlbatch.Unknown, sqlbatch.Refused, sqlbatch.RolledBack:
		return true
	}
	return false
}

// takeFor has a shard that is away be as another one that answered.
func (q *queue) takeFor(like *queue) error {
	taken := stored{version: sqlbatch.Version, slots: 0, shard: like.cfg.Shard}
	if like.ordered() {
		taken.slots = like.cfg.Slots
	}
	if like.cfg.DeadKey == DeadKeyHolds {
		taken.holds = 1
	}
	taken.shard.Index = q.index
	q.unmet.Store(true)
	return q.adopt(taken)
}

// unfitError is why a database cannot be used: no repetition mends that.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// met is nil once the shard is known to be what it is taken for; it asks where nobody has.
func (q *queue) met(ctx context.Context, s *sessions) error {
	if !q.unmet.Load() {
		return nil
	}
	return q.meet(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return s.Run(ctx, st, scan) })
}

// metTx is met in the caller's transaction.
func (q *queue) metTx(ctx context.Context, tx *sql.Tx) error {
	if !q.unmet.Load() {
		return nil
	}
	return q.meet(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return session.RunTx(ctx, tx, st, scan) })
}

// meet asks what Open asks. Several may do so at once.
func (q *queue) meet(run runner) error {
	found, err := q.stored(run)
	if err != nil {
		return err
	}
	if err := q.check(found, q.cfg.Slots); err != nil {
		return &unfitError{err}
	}
	if err := q.trusted(run); err != nil {
		return err
	}
	q.unmet.Store(false)
	return nil
}

// trusted is trust, with an unfitError for what the database has said.
func (q *queue) trusted(run runner) error {
	var failed error
	err := q.trust(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		failed = run(st, scan)
		return failed
	})
	if err != nil && failed == nil {
		return &unfitError{err}
	}
	return err
}
