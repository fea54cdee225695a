package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

var sqliteEngine = engine{
	name: "sqlite", dialect: sqlite.Dialect, check: checkSQLite, open: openSQLite,
	connector: func(p place, counter *measure.Counter) (driver.Connector, error) {
		inner, err := embedded.Connector(p.File)
		return counter.Connector(inner), err
	},
	about: `SELECT 'SQLite ' || sqlite_version() || ', journal_mode=' || journal_mode || ', synchronous=' ||
CASE synchronous WHEN 0 THEN 'OFF' WHEN 1 THEN 'NORMAL' WHEN 2 THEN 'FULL' ELSE 'EXTRA' END
FROM pragma_journal_mode, pragma_synchronous`,
}

func checkSQLite(o options) error {
	if o.dsn != "" {
		return errors.New("-dsn is for -engine postgres and sqlserver; SQLite takes a file by -db")
	}
	if o.db == "" {
		return nil
	}
	if _, err := os.Lstat(o.db); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("-db %s: must not exist: it is made and removed for each measurement", o.db)
	}
	return nil
}

// openSQLite creates a new database in a file.
func openSQLite(ctx context.Context, e engine, o options) (*store, error) {
	path, remove := o.db, func() error {
		var errs []error
		for _, file := range embedded.Files(o.db) {
			errs = append(errs, removeIfThere(file))
		}
		return errors.Join(errs...)
	}
	if path == "" {
		dir, err := os.MkdirTemp("", "chanq-bench-")
		if err != nil {
			return nil, err
		}
		path, remove = filepath.Join(dir, "bench.db"), func() error { return os.RemoveAll(dir) }
	}
	s, err := e.connect(place{Engine: e.name, File: path, Queue: "bench", Slots: o.slots})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	s.remove = func() error { return errors.Join(s.db.Close(), remove()) }
	return s.migrate(ctx)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
