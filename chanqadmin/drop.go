package chanqadmin

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Drop removes an empty queue with its tables, in one transaction that excludes all others. If the queue has a message in any state,
// including dead and done, Drop changes nothing and returns ErrNotEmpty; DropWithMessages drops it anyway. If the queue does not
// exist, it returns ErrNoSchema, and for a queue of a newer chanq ErrNewerSchema. It waits for transactions that use the queue until
// ctx ends.
//
// The batches, results and progress of the queue's jobs are deleted too. Its schedules and its subscriptions of topics stay, until
// you call chanqcron.Schedules.Remove and chanqtopic.Unsubscribe: their programs report the missing queue.
//
// Running consumers, chanqjobs.Batches and chanqjobs.Deaths end with ErrNoSchema, and sends fail with it. The user needs permission to
// drop the queue's tables, to read them and chanq__tables, and to delete from chanq__queues, chanq__consumers, chanq__samples and the
// tables of chanqjobs. Drop costs a few round trips, and uses Dialect, Schema and Label of cfg. Limit, PerSecond and DryRun of c must be
// zero. On SQLite a goroutine that holds a transaction must not call it: see chanq.Queue.
func Drop(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config, c Change) error {
	return drop(ctx, db, queue, cfg, c, func(found table.Counts) error {
		if n := found.Ready + found.Scheduled + found.Leased + found.Dead + found.Done; n > 0 {
			return fmt.Errorf("%w: it has messages; Purge deletes them, and DropWithMessages drops the queue with them", chanq.ErrNotEmpty)
		}
		return nil
	})
}

// DropWithMessages is Drop of a queue that may have messages. The messages are lost. Its other errors are those of Drop.
func DropWithMessages(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config, c Change) error {
	return drop(ctx, db, queue, cfg, c, func(table.Counts) error { return nil })
}

func drop(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config, c Change, check func(table.Counts) error) error {
	label := queue
	if cfg.Label != "" {
		label = cfg.Label
	}
	d, err := table.DialectOf(db, string(cfg.Dialect))
	if err == nil {
		err = cmp.Or(sqlbatch.CheckNames(sqlbatch.Names{Schema: cfg.Schema, Queue: queue}), c.checkSet())
	}
	if err != nil {
		return fmt.Errorf("chanq: drop %s: %w", label, err)
	}
	return c.logged(ctx, db, d, sqlbatch.Names{Schema: cfg.Schema, Queue: queue}, "drop", "", func() (int, error) {
		return 0, dropNow(ctx, db, d, queue, label, cfg, check)
	})
}

func dropNow(ctx context.Context, db *sql.DB, d sqlbatch.Dialect, queue, label string, cfg chanq.Config, check func(table.Counts) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return &chanq.OpError{Op: "drop", Queue: label, Err: fmt.Errorf("connect: %w", err)}
	}
	defer conn.Close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		return session.RunOn(ctx, conn, d, st, scan)
	}
	shared, err := sharedTables(d, chanq.Config{Schema: cfg.Schema}, queue, run)
	if err == nil {
		err = dropOn(d, chanq.Config{Schema: cfg.Schema}, queue, shared, run, check)
	}
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the transaction ends with the connection
		return &chanq.OpError{Op: "drop", Queue: label, Err: err}
	}
	return nil
}

// sharedTables returns statements that delete the rows of a queue from the tables of chanqjobs, as far as they exist.
func sharedTables(d sqlbatch.Dialect, cfg chanq.Config, queue string, run func(sqlbatch.Statement, func(*sql.Rows) error) error) (texts []string, err error) {
	text := d.Text(namesOf(queue, cfg), "SELECT name FROM {chanq__tables} WHERE name IN ('batches', 'progress', 'results') ORDER BY name")
	err = run(sqlbatch.Statement{Text: text}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		texts = append(texts, d.Text(namesOf(queue, cfg), fmt.Sprintf("DELETE FROM {chanq__%s} WHERE queue = '%s'", name, queue)))
		return err
	})
	if err != nil && session.Classify(d, err) == sqlbatch.NoSchema { // no program has used chanqjobs
		return nil, nil
	}
	return texts, err
}

// dropOn runs the transaction of a drop.
func dropOn(d sqlbatch.Dialect, cfg chanq.Config, queue string, shared []string, run func(sqlbatch.Statement, func(*sql.Rows) error) error, check func(table.Counts) error) error {
	for _, text := range d.Begin() {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	var found table.Stored
	err := run(d.Queue(namesOf(queue, cfg)).Version(), found.Scan)
	switch {
	case err != nil && session.Classify(d, err) != sqlbatch.NoSchema:
		return err
	case found.Version == 0:
		return fmt.Errorf("%w: there is no such queue", chanq.ErrNoSchema)
	}
	if err := found.Unusable(); err != nil {
		return fmt.Errorf("%w: %w", chanq.ErrNewerSchema, err)
	}
	// The names of the tables are known now, and do not change before the commit.
	names := sqlbatch.Names{Schema: cfg.Schema, Queue: queue, Slots: found.Slots, Shard: found.ShardIndex, Shards: found.ShardCount}
	if found.ShardCount > 0 {
		set, err := chanq.ParseID(found.ShardSet)
		if err != nil {
			return err
		}
		names.ShardSet = set
	}
	q := d.Queue(names).InTx()
	if err := run(q.Lock(), nil); err != nil {
		return err
	}
	var counts table.Counts
	if err := run(q.Stats(1), counts.Scan); err != nil {
		return err
	}
	if err := check(counts); err != nil {
		return err
	}
	statements := q.Drop()
	for _, text := range shared {
		statements = append(statements, sqlbatch.Statement{Text: text})
	}
	for _, st := range statements {
		if err := run(st, nil); err != nil {
			return err
		}
	}
	return run(sqlbatch.Statement{Text: d.Commit()}, nil)
}
