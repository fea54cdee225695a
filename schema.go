package chanq

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// What makes the tables of a queue, and prints how.

// Schema lists the statements that Migrate would run for a queue whose tables
// do not exist, in order, for a database administrator to read and run. Each
// may be run again without harm. For SQL Server the schema's name must not have $(
// in it, which sqlcmd would replace. d is sqlserver.Dialect, postgres.Dialect or
// sqlite.Dialect.
func Schema(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, m := range d.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	return texts, nil
}

// View lists the statements that make the view chanq_<queue>__messages of a queue that is there,
// which shows what is in it to people and to programs that are not in Go: docs/sql.md says what its
// columns are. They are as those of Schema. Migrate makes no view; chanqadmin.Drop removes it.
func View(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	return d.View(names), nil
}

// Procedures lists the statements that make the procedure chanq_<queue>__send (on PostgreSQL a
// function), by which programs that are not in Go may send: docs/sql.md says what its parameters
// are. They are as those of Schema. Migrate makes none; chanqadmin.Drop removes it. SQLite has no procedures:
// errors.ErrUnsupported.
func Procedures(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	texts := d.Procedures(names)
	if len(texts) == 0 {
		return nil, fmt.Errorf("chanq: schema: %s has no procedures: %w", d.Name(), errors.ErrUnsupported)
	}
	return texts, nil
}

// printable names what statements are printed of.
func printable(d sqlbatch.Dialect, queue string, cfg Config) (sqlbatch.Names, error) {
	none := sqlbatch.Names{}
	if base.IsNil(d) {
		return none, errors.New("chanq: schema: dialect is nil; give sqlserver.Dialect, postgres.Dialect or sqlite.Dialect")
	}
	v := validator{}
	cfg.checkOrder(&v)
	cfg.Shard.check(&v)
	if cfg.Shard.Count > 0 && cfg.Shard.Set.IsZero() {
		v.wrong("Config.Shard.Set is zero: must be the same for all shards, from NewID, say")
	}
	if err := v.err(); err != nil {
		return none, fmt.Errorf("chanq: schema: %w", err)
	}
	names := cfg.names(queue)
	if err := sqlbatch.CheckNames(names); err != nil {
		return none, fmt.Errorf("chanq: schema: %w", err)
	}
	if cfg.Kind == KindOrdered && d.Queue(names).Slots().Text == "" {
		return none, fmt.Errorf("chanq: schema: %w", errNotOrdered(d))
	}
	if d.Name() == sqlserver.Dialect.Name() && strings.Contains(cfg.Schema, "$(") {
		return none, fmt.Errorf("chanq: schema: schema name %q: sqlcmd would put the value of a variable in the place of $(…); use Migrate", cfg.Schema)
	}
	return names, nil
}

// runner runs a statement, on a session or in a transaction, and gives each of its rows to scan.
type runner = func(st sqlbatch.Statement, scan func(*sql.Rows) error) error

// Migrate makes the tables of a queue, or brings them up to date, in one
// transaction under a lock of the database: any number of processes may call
// it at once, and again, beside producers and consumers: what is there it does not lock.
// On SQL Server the user needs the right to create tables in the schema, which must
// exist. Tables of a newer chanq are left alone: ErrNewerSchema; and so are those of a queue of
// another Config.Kind or number of Config.Slots: ErrKind. Config.DeadKey it does change: then
// all programs must be restarted with it. Like Open it refuses a database that would break chanq's
// promises, before it changes anything.
func Migrate(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	q, err := newQueue("migrate", db, queue, cfg)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return &OpError{Op: "migrate", Queue: q.label, Err: fmt.Errorf("connect: %w", err)}
	}
	defer conn.Close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		return session.RunOn(ctx, conn, q.dialect, st, scan)
	}
	if err := q.migrate(run, cfg.Slots); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the transaction ends with the connection
		return &OpError{Op: "migrate", Queue: q.label, Err: err}
	}
	return nil
}

// begin begins the transaction of a change, which excludes all others.
func (q *queue) begin(run runner) error {
	for _, text := range q.dialect.Begin() {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	return nil
}

// settleShard completes the mark of a shard that is to be made.
func (q *queue) settleShard() error {
	switch {
	case q.cfg.Shard.Count == 0 || !q.cfg.Shard.Set.IsZero():
		return nil
	case q.cfg.Shard.Index > 0:
		return fmt.Errorf("Config.Shard.Set is zero: must be that of shard 0, which Migrate makes up; StoredConfig tells it")
	}
	q.cfg.Shard.Set = NewID()
	q.render()
	return nil
}

// migrate migrates to that many slots, of an ordered queue; 0 is as many as there are.
func (q *queue) migrate(run runner, slots int) error {
	if err := q.trust(run); err != nil {
		return err
	}
	if err := q.begin(run); err != nil {
		return err
	}
	migrations := q.dialect.Migrations(q.cfg.names(q.name))
	for _, text := range migrations[0].Statements[:migrations[0].Registry] {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	found, err := q.stored(run)
	switch {
	case err != nil:
		return err
	case found.version > sqlbatch.Version:
		return newer(found.version)
	case found.version == 0:
		if err := q.settleShard(); err != nil {
			return err
		}
		migrations = q.dialect.Migrations(q.cfg.names(q.name))
	default:
		if err := found.differs(&q.cfg, slots); err != nil {
			return err
		}
		found.holds = 0
		if q.cfg.DeadKey == DeadKeyHolds { // the caller says so
			found.holds = 1
		}
		if err := q.adopt(found); err != nil {
			return err
		}
		migrations = q.dialect.Migrations(q.cfg.names(q.name))
	}
	for _, m := range migrations {
		for _, text := range m.Statements {
			if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
				return fmt.Errorf("migration %d: %w", m.Number, err)
			}
		}
	}
	if err := run(q.sql.Record(sqlbatch.Version), nil); err != nil {
		return err
	}
	return run(sqlbatch.Statement{Text: q.dialect.Commit()}, nil)
}
