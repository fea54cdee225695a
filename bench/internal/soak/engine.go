package soak

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/stdlib"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// engine is a database that a soak runs on.
type engine struct {
	dialect sqlbatch.Dialect
	file    bool
	connect func(address string) (driver.Connector, error)
	broken  error  // what the driver says of a connection that broke
	size    string // bytes of the queue's tables with their indexes, and rows that are dead and not reclaimed
	drop    []string
}

var engines = map[string]engine{
	"sqlite": {
		dialect: sqlbatch.SQLite, file: true, connect: embedded.Connector,
		broken: errors.New("the disk went away"),
		size:   `SELECT page_count * page_size, freelist_count FROM pragma_page_count, pragma_page_size, pragma_freelist_count`,
	},
	"postgres": {
		dialect: sqlbatch.Postgres,
		connect: func(address string) (driver.Connector, error) {
			return stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
		},
		broken: connectionFailure{},
		size:   `SELECT pg_total_relation_size('chanq_soak'), (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'chanq_soak')`,
		drop:   []string{`DROP TABLE IF EXISTS chanq_soak, chanq_soak_dead, chanq_soak_done`, `DELETE FROM chanq_queues WHERE name = 'soak'`},
	},
	"sqlserver": {
		dialect: sqlbatch.SQLServer,
		connect: func(address string) (driver.Connector, error) { return mssql.NewConnector(address) },
		broken:  errors.New("connection reset by peer"),
		size:    `SELECT SUM(reserved_page_count) * 8192, 0 FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID(N'dbo.chanq_soak')`,
		drop:    []string{`DROP TABLE IF EXISTS dbo.chanq_soak, dbo.chanq_soak_dead, dbo.chanq_soak_done`, `DELETE FROM dbo.chanq_queues WHERE name = 'soak'`},
	},
}

func engineNames() []string { return slices.Sorted(maps.Keys(engines)) }

// connectionFailure is the error of a PostgreSQL connection that broke.
type connectionFailure struct{}

func (connectionFailure) Error() string    { return "injected: the connection broke" }
func (connectionFailure) SQLState() string { return "08006" }

// open opens the database, with faults if choose is not nil.
func (e engine) open(address string, choose func(faultdb.Op) faultdb.Fault) (*sql.DB, error) {
	inner, err := e.connect(address)
	if err != nil {
		return nil, err
	}
	if choose == nil {
		return sql.OpenDB(inner), nil
	}
	faults := faultdb.New(inner)
	faults.Inject(choose)
	return sql.OpenDB(faults), nil
}
