package main

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

var postgresEngine = engine{
	name: "postgres", dialect: postgres.Dialect, check: checkPostgres, open: openPostgres,
	connector: func(p place, counter *measure.Counter) (driver.Connector, error) {
		config, err := pgx.ParseConfig(p.DSN)
		if err != nil {
			return nil, err
		}
		config.Tracer = tracer{counter} // not counter.Connector, whose connections cannot listen
		config.RuntimeParams["application_name"] = p.Schema
		return stdlib.GetConnector(*config), nil
	},
	wake: wakePostgres,
	about: `SELECT 'PostgreSQL ' || current_setting('server_version') || ', fsync=' || current_setting('fsync') ||
', synchronous_commit=' || current_setting('synchronous_commit') || ', full_page_writes=' || current_setting('full_page_writes')`,
}

func checkPostgres(o options) error {
	if o.db != "" {
		return errors.New("-db is for -engine sqlite; PostgreSQL takes -dsn")
	}
	if o.dsn == "" {
		return errors.New(`-engine postgres needs -dsn, such as "$(.ci/postgres start /tmp/chanq-bench fsync=on full_page_writes=on synchronous_commit=on)"`)
	}
	_, err := pgx.ParseConfig(o.dsn)
	return err
}

// openPostgres creates a queue in a new schema, and drops the schema afterwards. A new table has
// the statistics of an empty table, as most queues have after they were empty. chanq's plans do not
// depend on them.
func openPostgres(ctx context.Context, e engine, o options) (*store, error) {
	name := newQueueName()
	s, err := e.connect(place{Engine: e.name, DSN: o.dsn, Schema: name, Queue: "bench", Slots: o.slots})
	if err != nil {
		return nil, err
	}
	if _, err := s.db.ExecContext(ctx, `CREATE SCHEMA "`+name+`"`); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.remove = func() error {
		_, err := s.db.ExecContext(context.WithoutCancel(ctx), `DROP SCHEMA "`+name+`" CASCADE`)
		return errors.Join(err, s.db.Close())
	}
	var citus bool
	err = s.db.QueryRowContext(ctx, `SELECT to_regproc('citus_schema_distribute') IS NOT NULL`).Scan(&citus)
	if err == nil && citus {
		_, err = s.db.ExecContext(ctx, `SELECT citus_schema_distribute($1::regnamespace)`, name)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s.migrate(ctx)
}

// tracer counts the statements of pgx, as measure.Counter does for other drivers.
type tracer struct{ counter *measure.Counter }

// TraceQueryStart implements pgx.QueryTracer.
func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.counter.Add(data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
