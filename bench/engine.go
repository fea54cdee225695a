package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch"
)

// engine is a database that strategies are measured on.
type engine struct {
	name string
	// check says what is wrong with the options before anything is written.
	check func(options) error
	// open makes an empty queue, with a database of its own where that is cheap.
	open func(context.Context, options) (*store, error)
}

var engines = []engine{
	{name: "sqlite", check: checkSQLite, open: openSQLite},
	{name: "sqlserver", check: checkSQLServer, open: openSQLServer},
}

// store is an empty queue on an engine, and the count of what was asked of its
// driver.
type store struct {
	db      *sql.DB
	dialect sqlbatch.Dialect
	queue   string
	sql     sqlbatch.Queue
	counter *counter
	remove  func() error // leaves nothing behind; closes db
}

// migrate makes the queue's tables, and removes everything if it cannot.
func (s *store) migrate(ctx context.Context) (*store, error) {
	s.sql = s.dialect.Queue(sqlbatch.Names{Queue: s.queue})
	if err := chanq.Migrate(ctx, s.db, s.queue, chanq.Config{Dialect: s.dialect}); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

func checkSQLite(o options) error {
	if o.dsn != "" {
		return errors.New("-dsn is for -engine sqlserver; SQLite takes a file by -db")
	}
	if o.db == "" {
		return nil
	}
	if _, err := os.Lstat(o.db); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("-db %s: must not exist: it is made and removed for each measurement", o.db)
	}
	return nil
}

func openSQLite(ctx context.Context, o options) (*store, error) {
	path, remove := o.db, func() error {
		return errors.Join(removeIfThere(o.db), removeIfThere(o.db+"-wal"), removeIfThere(o.db+"-shm"))
	}
	if path == "" {
		dir, err := os.MkdirTemp("", "chanq-bench-")
		if err != nil {
			return nil, err
		}
		path, remove = filepath.Join(dir, "bench.db"), func() error { return os.RemoveAll(dir) }
	}
	inner, err := embedded.Connector(path)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	s := &store{dialect: sqlbatch.SQLite, queue: "bench", counter: &counter{}}
	s.db = sql.OpenDB(s.counter.connector(inner))
	s.remove = func() error { return errors.Join(s.db.Close(), remove()) }
	return s.migrate(ctx)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func checkSQLServer(o options) error {
	if o.db != "" {
		return errors.New("-db is for -engine sqlite; SQL Server takes -dsn")
	}
	if o.dsn == "" {
		return errors.New("-engine sqlserver needs -dsn, such as sqlserver://user:password@host?database=name")
	}
	_, err := mssql.NewConnector(o.dsn)
	return err
}

// openSQLServer makes a queue of its own in the schema dbo of the given
// database, and drops its tables afterwards.
func openSQLServer(ctx context.Context, o options) (*store, error) {
	inner, err := mssql.NewConnector(o.dsn)
	if err != nil {
		return nil, err
	}
	s := &store{dialect: sqlbatch.SQLServer, queue: fmt.Sprintf("bench_%08x", rand.Uint32()), counter: &counter{}}
	s.db = sql.OpenDB(s.counter.connector(inner))
	s.remove = func() error {
		var errs []error
		for _, table := range []string{"chanq_" + s.queue, "chanq_" + s.queue + "_dead", "chanq_" + s.queue + "_done"} {
			_, err := s.db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE IF EXISTS [dbo].["+table+"]")
			errs = append(errs, err)
		}
		_, err := s.db.ExecContext(context.WithoutCancel(ctx), "DELETE FROM [dbo].[chanq_queues] WHERE name = @p1", s.queue)
		return errors.Join(append(errs, err, s.db.Close())...)
	}
	return s.migrate(ctx)
}
