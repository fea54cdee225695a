package main

import (
	"context"
	"database/sql/driver"
	"errors"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

var sqlserverEngine = engine{
	name: "sqlserver", dialect: sqlserver.Dialect, check: checkSQLServer, open: openSQLServer,
	connector: func(p place) (driver.Connector, error) { return mssql.NewConnector(p.DSN) },
	about:     `SELECT @@VERSION`,
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

// openSQLServer makes a queue in the schema dbo of the given database, and drops
// its tables afterwards.
func openSQLServer(ctx context.Context, e engine, o options) (*store, error) {
	s, err := e.connect(place{Engine: e.name, DSN: o.dsn, Queue: newQueueName()})
	if err != nil {
		return nil, err
	}
	s.remove = func() error {
		ctx := context.WithoutCancel(ctx)
		var errs []error
		for _, queue := range []string{s.place.Queue, s.place.Queue + "_next"} {
			for _, end := range []string{"", "_dead", "_done"} {
				_, err := s.db.ExecContext(ctx, "DROP TABLE IF EXISTS [dbo].[chanq_"+queue+end+"]")
				errs = append(errs, err)
			}
			_, err := s.db.ExecContext(ctx, "DELETE FROM [dbo].[chanq_queues] WHERE name = @p1", queue)
			errs = append(errs, err)
		}
		return errors.Join(append(errs, s.db.Close())...)
	}
	return s.migrate(ctx)
}
