package chanq

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// runner runs a statement, on a session or in a transaction, and gives each of its rows to scan.
type runner = func(st sqlbatch.Statement, scan func(*sql.Rows) error) error

// Migrate makes the tables of a queue, or brings them up to date, in one
// transaction under a lock of the database: any number of processes may call
// it at once, and again, beside producers and consumers: what is there it does not lock.
// On SQL Server the user needs the right to create tables in the schema, which must
// exist. Tables of a newer chanq are left alone: ErrNewerSchema; and so are those of a queue of
// another Config.Kind or number of Config.Slots: ErrKind. Config.DeadKey it does change: then
// all programs must be started anew with that. Like Open it refuses a database that would break chanq's
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

// newer is the error of tables that another chanq has made.
func newer(version int) error {
	return fmt.Errorf("%w: version %d, this chanq knows %d; upgrade this program", ErrNewerSchema, version, sqlbatch.Version)
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
