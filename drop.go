package chanq

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/chanq/chanq/sqlbatch"
)

// Queues lists the queues that Migrate has made in Config.Schema, by name. Where there
// has never been one it returns none. One round trip; of cfg it uses Dialect and Schema.
func Queues(ctx context.Context, db *sql.DB, cfg Config) ([]string, error) {
	q, err := newQueue("list queues", db, "any", cfg) // the statement names none
	if err != nil {
		return nil, err
	}
	var names []string
	err = q.once(ctx, q.sql.Queues(), func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	switch {
	case err == nil:
		return names, nil
	case q.classify(err) == sqlbatch.NoSchema:
		return nil, nil
	}
	return nil, fmt.Errorf("chanq: list queues: %w", err)
}

// Drop removes a queue that is empty, with its tables, in one transaction that keeps all
// others from them. A queue with a message in any state, a dead or done one, too, is left
// as it is: ErrNotEmpty; DropWithMessages does not mind. One that does not exist is
// ErrNoSchema, and one of a newer chanq ErrNewerSchema. It waits for the transactions
// that use the queue, as long as ctx lets it.
//
// Consumers and producers that still run end with ErrNoSchema, or fail with it. The
// user needs the rights to drop the queue's tables, to read them, and to delete from
// chanq_queues, chanq_members and chanq_samples. A few round trips; of cfg it uses Dialect and Schema.
// On SQLite a goroutine that holds a transaction must not call it: see Queue.
func Drop(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	return drop(ctx, db, queue, cfg, func(s Stats) error {
		if n := s.Ready + s.Scheduled + s.Leased + s.Dead + s.Done; n > 0 {
			return fmt.Errorf("%w: it has messages; Purge deletes them, and DropWithMessages drops the queue with them", ErrNotEmpty)
		}
		return nil
	})
}

// DropWithMessages is Drop of a queue with whatever is in it. Nothing brings that back.
func DropWithMessages(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	return drop(ctx, db, queue, cfg, func(Stats) error { return nil })
}

func drop(ctx context.Context, db *sql.DB, name string, cfg Config, check func(Stats) error) error {
	return alter(ctx, "drop", db, name, cfg, func(q *queue, run runner) error { return q.drop(run, check) })
}

func (q *queue) drop(run runner, check func(Stats) error) error {
	if err := q.begin(run); err != nil {
		return err
	}
	switch found, err := q.stored(run); {
	case err != nil:
		return err
	case found.version == 0:
		return fmt.Errorf("%w: there is no such queue", ErrNoSchema)
	case found.version > sqlbatch.Version:
		return newer(found.version)
	default:
		q.cfg.MaxKeys = 0
		if err := q.adopt(found); err != nil {
			return err
		}
	}
	within := q.sql.InTx()
	if err := run(within.Lock(), nil); err != nil {
		return err
	}
	var found Stats
	if err := run(within.Stats(1), found.scan); err != nil {
		return err
	}
	if err := check(found); err != nil {
		return err
	}
	for _, st := range within.Drop() {
		if err := run(st, nil); err != nil {
			return err
		}
	}
	return run(sqlbatch.Statement{Text: q.dialect.Commit()}, nil)
}
