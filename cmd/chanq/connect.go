package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
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
	name    string        // for display: without password
	others  []*connection // of --shard-db
	missed  error         // of databases that cannot be reached
}

// all returns c and the others.
func (c *connection) all() []*connection { return append([]*connection{c}, c.others...) }

// partly reports whether the found queues are shown before err, because err belongs to other queues or to one of several databases.
func (c *connection) partly(found int, err error) bool {
	return err == nil || found > 0 || c.missed != nil || len(c.others) > 0
}

func (c *connection) Close() error {
	errs := []error{c.DB.Close()}
	for _, other := range c.others {
		errs = append(errs, other.Close())
	}
	return errors.Join(errs...)
}

// shardsFlag adds --shard-db to commands that read queues over several databases.
func (a *app) shardsFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVar(&a.shards, "shard-db", nil, "another shard's `database`: a SQLite file, or a DSN as of --dsn; repeat the flag for more")
	return cmd
}

// connectAll is connect, and also opens the databases of --shard-db. It skips databases that cannot be reached, if another one can.
func (a *app) connectAll(ctx context.Context) (*connection, error) {
	first, err := a.target()
	if err != nil {
		return nil, err
	}
	targets := []target{first}
	for _, shard := range a.shards {
		t, err := a.shardTarget(shard)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	var all *connection
	var missed []error
	for _, t := range targets {
		c, err := a.open(ctx, t, mustExist)
		switch {
		case err != nil:
			missed = append(missed, err)
		case all == nil:
			all = c
		default:
			all.others = append(all.others, c)
		}
	}
	if all == nil {
		return nil, errors.Join(missed...)
	}
	all.missed = errors.Join(missed...)
	return all, nil
}

// shardTarget parses a --shard-db.
func (a *app) shardTarget(shard string) (target, error) {
	if !strings.Contains(shard, "://") && !strings.HasPrefix(shard, "@") && !strings.HasPrefix(shard, "env:") && keywordsOf(shard) == none {
		return target{file: shard}, nil
	}
	return a.targetOf("--shard-db", shard)
}

// creation decides whether a missing SQLite file is created.
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
		return &connection{DB: db, dialect: sqlserver.Dialect, name: name}, nil
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
		return &connection{DB: db, dialect: postgres.Dialect, name: name}, nil
	case t.file != "":
		if c == mustExist {
			if _, err := os.Stat(t.file); errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("--db: %s does not exist; chanq migrate creates it", t.file)
			}
		}
		db, err := embedded.Open(t.file)
		if err != nil {
			return nil, fmt.Errorf("--db: %w", err)
		}
		return &connection{DB: db, dialect: sqlite.Dialect, name: t.file}, nil
	default:
		return nil, usage("no database is given: give --db FILE or --dsn URL (or @FILE, env:NAME), or set CHANQ_DSN")
	}
}

// withQueue opens a queue for one call, without decoding bodies.
func (a *app) withQueue(ctx context.Context, name string, f func(*chanqadmin.Queue) error) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := chanqadmin.Open(ctx, c.DB, name, a.queueConfig(c))
	if err != nil {
		return err
	}
	return f(q)
}
