package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5/stdlib"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// connection is an open database.
type connection struct {
	*sql.DB
	dialect sqlbatch.Dialect
	name    string // for people: without password
}

// creation says whether a SQLite file that does not exist is made.
type creation int

const (
	mustExist creation = iota
	mayCreate
)

// connect opens the database that the flags or CHANQ_DSN name.
func (a *app) connect(ctx context.Context, c creation) (*connection, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	return a.open(ctx, t, c)
}

func (a *app) open(ctx context.Context, t target, c creation) (*connection, error) {
	switch {
	case t.sqlServer != nil:
		config := *t.sqlServer
		if config.AppName == "" || config.AppName == "go-mssqldb" {
			config.AppName = "chanq"
		}
		name := "SQL Server " + config.Host
		if config.Database != "" {
			name += ", database " + config.Database
		}
		db := sql.OpenDB(mssql.NewConnectorConfig(config))
		if err := db.PingContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", name, err), db.Close())
		}
		return &connection{db, sqlserver.Dialect, name}, nil
	case t.postgres != nil:
		config := t.postgres.Copy()
		if config.RuntimeParams["application_name"] == "" {
			config.RuntimeParams["application_name"] = "chanq"
		}
		name := fmt.Sprintf("PostgreSQL %s, database %s", config.Host, config.Database)
		db := stdlib.OpenDB(*config)
		if err := db.PingContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", name, err), db.Close())
		}
		return &connection{db, postgres.Dialect, name}, nil
	case t.file != "":
		if c == mustExist {
			if _, err := os.Stat(t.file); errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("--db: %s does not exist; chanq migrate makes it", t.file)
			}
		}
		db, err := embedded.Open(t.file)
		if err != nil {
			return nil, fmt.Errorf("--db: %w", err)
		}
		return &connection{db, sqlite.Dialect, t.file}, nil
	default:
		return nil, usage("which database? Give --db FILE or --dsn URL (or @FILE, env:NAME), or set CHANQ_DSN")
	}
}

// withQueue opens a queue, whose bodies are left as they are, for one call.
func (a *app) withQueue(ctx context.Context, name string, f func(*chanq.Queue[[]byte]) error) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := openQueue(ctx, c, name, a.queueConfig(c))
	if err != nil {
		return err
	}
	return f(q)
}
