package chanq

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Migrate makes the tables of a queue, or brings them up to date, in one
// transaction under a lock of the database: any number of processes may call
// it at once, and again. On SQL Server the user needs the right to create
// tables in the schema, which must exist. Tables of a newer chanq are left
// alone: ErrNewerSchema. Like Open it refuses a database that would break chanq's
// promises, before it changes anything.
func Migrate(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	q, err := newQueue("migrate", db, queue, cfg)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return &OpError{Op: "migrate", Queue: queue, Err: fmt.Errorf("connect: %w", err)}
	}
	defer conn.Close()
	if err := q.migrate(ctx, conn); err != nil {
		// The transaction ends with its connection.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		return &OpError{Op: "migrate", Queue: queue, Err: err}
	}
	return nil
}

func (q *queue) migrate(ctx context.Context, conn *sql.Conn) error {
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		return session.RunOn(ctx, conn, q.dialect, st, scan)
	}
	if err := q.trust(run); err != nil {
		return err
	}
	for _, text := range q.dialect.Begin() {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	migrations := q.dialect.Migrations(sqlbatch.Names{Schema: q.cfg.Schema, Queue: q.name})
	for _, text := range migrations[0].Statements[:migrations[0].Registry] {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	version := 0
	err := run(q.sql.Version(), func(rows *sql.Rows) error {
		var paused bool
		return rows.Scan(&version, &paused)
	})
	if err != nil {
		return err
	}
	if version > sqlbatch.Version {
		return fmt.Errorf("%w: version %d, this chanq knows %d; upgrade this program", ErrNewerSchema, version, sqlbatch.Version)
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
