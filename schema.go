package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// What makes the tables of a queue, and prints how.

// Schema returns the statements that Migrate would run for a queue whose tables do not exist, in order, for a database administrator
// to read and run. Each may be run repeatedly. On SQL Server the schema's name must not contain $(, which sqlcmd would replace.
func Schema(d Dialect, queue string, cfg Config) ([]string, error) {
	dialect, names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	var texts []string
	if set := dialect.Fresh(names).Set; set != "" {
		texts = append(texts, set)
	}
	for _, m := range dialect.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	return texts, nil
}

// View returns the statements that create the view chanq_<queue>__messages of an existing queue. It shows the messages to people and
// to programs that are not in Go; docs/sql.md describes its columns. The rules of Schema apply. Migrate creates no view;
// chanqadmin.Drop removes it.
func View(d Dialect, queue string, cfg Config) ([]string, error) {
	dialect, names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	return dialect.View(names), nil
}

// Procedures returns the statements that create the procedure chanq_<queue>__send (on PostgreSQL a function), with which programs
// that are not in Go send; docs/sql.md describes its parameters. The rules of Schema apply. Migrate creates no procedure;
// chanqadmin.Drop removes it. SQLite has no procedures: errors.ErrUnsupported.
func Procedures(d Dialect, queue string, cfg Config) ([]string, error) {
	dialect, names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	texts := dialect.Procedures(names)
	if len(texts) == 0 {
		return nil, fmt.Errorf("chanq: schema: %s has no procedures: %w", d, errors.ErrUnsupported)
	}
	return texts, nil
}

// printable returns the dialect and the names of statements that are printed.
func printable(dialect Dialect, queue string, cfg Config) (sqlbatch.Dialect, sqlbatch.Names, error) {
	refuse := func(err error) (sqlbatch.Dialect, sqlbatch.Names, error) {
		return nil, sqlbatch.Names{}, fmt.Errorf("chanq: schema: %w", err)
	}
	d, err := table.DialectNamed("the Dialect", string(dialect))
	if err != nil {
		return refuse(err)
	}
	v := validator{}
	cfg.Spec.check(&v)
	cfg.Shard.check(&v)
	if cfg.Shard.Count > 0 && cfg.Shard.Set.IsZero() {
		v.wrong("Config.Shard.Set is zero: must be the same for all shards, for example from NewID")
	}
	spec, err := cfg.Spec.complete()
	if err := errors.Join(v.err(), err); err != nil {
		return refuse(err)
	}
	names := cfg.names(queue, spec.Slots)
	names.Policy = spec.policy()
	if err := sqlbatch.CheckNames(names); err != nil {
		return refuse(err)
	}
	if spec.Kind == KindOrdered && d.Queue(names).Slots().Text == "" {
		return refuse(errNotOrdered(d))
	}
	if dialect == DialectSQLServer && strings.Contains(cfg.Schema, "$(") {
		return refuse(fmt.Errorf("schema name %q: sqlcmd would put the value of a variable in the place of $(…); use Migrate", cfg.Schema))
	}
	return d, names, nil
}

// runner runs a statement, on a session or in a transaction, and gives each of its rows to scan.
type runner = func(st sqlbatch.Statement, scan func(*sql.Rows) error) error

// Migrate creates a queue with Config.Spec. For an existing queue it brings the tables up to date and stores the fields of
// Config.Spec that are not zero; consumers of other programs adopt them with their next heartbeat. It makes all changes in one
// transaction under a lock of the database. Any number of processes may call it, at once and repeatedly, while producers and
// consumers run. If there is nothing to change, it costs four round trips and takes no lock. A table or index that was dropped by
// hand is created again, which locks its table against writers. Open takes the same arguments.
//
// The user needs permission to create tables in the schema, which must exist on SQL Server. For an existing queue permission to
// update the queue's row is enough. If the queue has another Spec.Kind or other Spec.Slots, Migrate returns ErrSpec; if the tables
// need a newer chanq, ErrNewerSchema. Like Open it refuses a database that would break the guarantees of chanq, before it changes
// anything.
func Migrate(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	q, err := newQueue(ctx, "migrate", db, queue, cfg)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return &OpError{Op: "migrate", Queue: q.label, Err: fmt.Errorf("%w: connect: %w", ErrUnavailable, err)}
	}
	defer conn.Close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		return session.RunOn(ctx, conn, q.dialect, st, scan)
	}
	if err := q.migrate(run); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the transaction ends with the connection
		return &OpError{Op: "migrate", Queue: q.label, Err: err}
	}
	return nil
}

// begin begins the transaction of a change, which excludes all others.
func (q *queue) begin(run runner) error {
	return runAll(run, q.dialect.Begin())
}

// settleShard completes the mark of a shard that is to be made.
func (q *queue) settleShard() error {
	switch {
	case q.cfg.Shard.Count == 0 || !q.cfg.Shard.Set.IsZero():
		return nil
	case q.cfg.Shard.Index > 0:
		return fmt.Errorf("Config.Shard.Set is zero: must be that of shard 0, which Migrate makes; StoredConfig returns it")
	}
	q.cfg.Shard.Set = NewID()
	return nil
}

// migrate changes what is to be changed.
func (q *queue) migrate(run runner) error {
	if err := q.trust(run); err != nil {
		return err
	}
	found, err := q.stored(run)
	if err != nil {
		return err
	}
	whole := false
	if found.Version >= sqlbatch.Version {
		if whole, err = q.isWhole(run, found); err != nil {
			return err
		}
		if _, changes, err := q.change(found); err != nil || whole && !changes {
			return err
		}
	}
	if !whole {
		if err := q.prepare(run); err != nil {
			return err
		}
	}
	if err := q.begin(run); err != nil {
		return err
	}
	if !whole { // the table of queues may be missing
		registry := q.dialect.Migrations(q.names)[0]
		if err := runAll(run, registry.Statements[:registry.Registry]); err != nil {
			return err
		}
	}
	if found, err = q.stored(run); err != nil { // now that no other migration runs
		return err
	}
	if found.Version == 0 {
		err = q.settleShard()
	}
	if err != nil {
		return err
	}
	spec, _, err := q.change(found)
	if err != nil {
		return err
	}
	q.slots = spec.Slots
	q.render()
	if !whole || found.Version < sqlbatch.Version {
		for _, m := range q.dialect.Migrations(q.names) {
			if err := runAll(run, m.Statements); err != nil {
				return fmt.Errorf("migration %d: %w", m.Number, err)
			}
		}
	}
	record := q.sql.Record(sqlbatch.Version, spec.policy())
	if whole && found.Version >= sqlbatch.Version { // which the right to update the row is enough for
		record = q.sql.Configure(spec.policy())
	}
	if err := run(record, nil); err != nil {
		return err
	}
	return run(sqlbatch.Statement{Text: q.dialect.Commit()}, nil)
}

// prepare prepares a database that has no table.
func (q *queue) prepare(run runner) error {
	fresh := q.dialect.Fresh(q.names)
	if fresh.Ask == "" {
		return nil
	}
	found := false
	err := run(sqlbatch.Statement{Text: fresh.Ask}, func(*sql.Rows) error { found = true; return nil })
	if err != nil || !found {
		return err
	}
	return runAll(run, []string{fresh.Set, fresh.Rewrite})
}

// isWhole reports whether no table with messages, and no index of one, is missing of a queue that the table of queues has. What the role
// cannot see counts as there.
func (q *queue) isWhole(run runner, found stored) (bool, error) {
	q.slots = found.Slots
	q.render()
	switch err := run(q.sql.Stats(1), nil); {
	case err == nil:
	case q.classify(err) == sqlbatch.NoSchema:
		return false, nil
	case q.classify(err) != sqlbatch.Permanent:
		return false, err
	}
	missing := 0
	err := run(q.sql.Missing(), func(rows *sql.Rows) error { return rows.Scan(&missing) })
	if q.classify(err) == sqlbatch.Permanent { // a schema that the role may not use
		err = nil
	}
	return missing == 0, err
}

// change returns the Spec that the queue is to have, and whether it has another one now.
func (q *queue) change(found stored) (spec Spec, changes bool, err error) {
	if found.Version > 0 {
		if err := found.Unusable(); err != nil {
			return spec, false, fmt.Errorf("%w: %w", ErrNewerSchema, err)
		}
		if err := cmp.Or(q.cfg.Spec.differs(found.spec(), true), found.shard.isNot(q.cfg.Shard)); err != nil {
			return spec, false, err
		}
		spec, err = q.cfg.Spec.over(found.spec()).complete()
		return spec, spec != found.spec(), err
	}
	spec, err = q.cfg.Spec.complete()
	if err == nil && spec.Kind == KindOrdered && q.dialect.Queue(q.cfg.names(q.name, spec.Slots)).Slots().Text == "" {
		err = errNotOrdered(q.dialect)
	}
	return spec, true, err
}

func runAll(run runner, texts []string) error {
	for _, text := range texts {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	return nil
}
