package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// queueNames lists the queues of the schema: the registry, a few rows, read
// without a lock that others wait for.
func (a *app) queueNames(ctx context.Context, c *connection) ([]string, error) {
	rows, err := c.QueryContext(ctx, "SELECT name FROM "+a.registry(c.dialect)+" ORDER BY name")
	if err != nil {
		if c.dialect.Classify(err) == sqlbatch.NoSchema {
			return nil, nil // never migrated
		}
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name sql.NullString
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list the queues: %w", err)
		}
		names = append(names, name.String)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	return names, nil
}

func (a *app) registry(d sqlbatch.Dialect) string {
	schema := a.schema
	if schema == "" {
		schema = map[sqlbatch.Dialect]string{sqlserver.Dialect: "dbo", postgres.Dialect: "public", sqlite.Dialect: "main"}[d]
	}
	if d == sqlserver.Dialect {
		return "[" + strings.ReplaceAll(schema, "]", "]]") + "].[chanq_queues]"
	}
	return `"` + strings.ReplaceAll(schema, `"`, `""`) + `"."chanq_queues"`
}

// queueStats is a line of stats and top.
type queueStats struct {
	name string
	chanq.Stats
}

// allStats looks at the named queues, or at all.
func (a *app) allStats(ctx context.Context, c *connection, names []string) ([]queueStats, error) {
	var list []queueStats
	err := a.eachQueue(ctx, c, names, func(q *chanq.Queue[[]byte]) error {
		s, err := q.Stats(ctx)
		list = append(list, queueStats{q.Name(), s})
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// eachQueue calls f for the named queues, or for all.
func (a *app) eachQueue(ctx context.Context, c *connection, names []string, f func(*chanq.Queue[[]byte]) error) error {
	if len(names) == 0 {
		var err error
		if names, err = a.queueNames(ctx, c); err != nil {
			return err
		}
	}
	for _, name := range names {
		q, err := chanq.Open[[]byte](ctx, c.DB, name, a.queueConfig(c))
		if err != nil {
			return err
		}
		if err := f(q); err != nil {
			return err
		}
	}
	return nil
}
