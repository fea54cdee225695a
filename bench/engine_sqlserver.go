package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

var sqlserverEngine = engine{
	name: "sqlserver", dialect: sqlserver.Dialect, check: checkSQLServer, open: openSQLServer,
	connector: func(p place, counter *measure.Counter) (driver.Connector, error) {
		inner, err := mssql.NewConnector(p.DSN)
		return counter.Connector(inner), err
	},
	wake:  wakeSQLServer,
	about: `SELECT @@VERSION`,
}

func checkSQLServer(o options) error {
	if o.db != "" {
		return errors.New("-db is for -engine sqlite; SQL Server takes -dsn")
	}
	if o.dsn == "" {
		return errors.New("-engine sqlserver needs -dsn, such as sqlserver://user:password@host?database=name, or " + emulator + " for the SQL Server emulator of the tests")
	}
	if o.dsn == emulator {
		return nil
	}
	_, err := mssql.NewConnector(o.dsn)
	return err
}

// openSQLServer creates a queue in the schema dbo of the given database, and drops its tables
// afterwards.
func openSQLServer(ctx context.Context, e engine, o options) (*store, error) {
	stop := func() error { return nil }
	if o.dsn == emulator {
		var err error
		if o.dsn, stop, err = startEmulator(); err != nil {
			return nil, err
		}
	}
	s, err := e.connect(place{Engine: e.name, DSN: o.dsn, Queue: newQueueName(), Slots: o.slots})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	s.remove = func() error {
		ctx := context.WithoutCancel(ctx)
		var errs []error
		for _, queue := range []string{s.place.Queue, s.place.Queue + "_next"} {
			if err := chanqadmin.DropWithMessages(ctx, s.db, queue, s.config(), chanqadmin.Change{}); !errors.Is(err, chanq.ErrNoSchema) {
				errs = append(errs, err)
			}
		}
		return errors.Join(append(errs, s.db.Close(), stop())...)
	}
	return s.migrate(ctx)
}

// emulator, as the value of -dsn, is the SQL Server emulator of the tests, in this process. It runs
// chanq's statements for SQL Server with the server's locking rules. Its speed is not meaningful.
const emulator = "emulator"

// startEmulator serves an empty database on the loopback interface until stop.
func startEmulator() (dsn string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server, err := mssqltest.Serve(listener, mssqltest.Options{AllowSnapshotIsolation: true})
	if err != nil {
		return "", nil, err
	}
	return server.DSN(), server.Close, nil
}
