package soak

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// engine is a database that a soak runs on.
type engine struct {
	dialect sqlbatch.Dialect
	file    bool
	connect func(address string) (driver.Connector, error)
	broken  error  // what the driver says of a connection that broke
	size    string // bytes of the queue's tables with their indexes, and rows that are dead and not reclaimed
	drop    []string

	lockOne string // locks any leased row and returns the 16 bytes of its id
	lockAll string // or begins a transaction that keeps every other writer out
	// How long a lock or a freeze lasts at most: two leases, but only a while where
	// it stops everybody.
	lockFor, freezeFor time.Duration
	// server is where an address leads, and through the same by way of a proxy; nil
	// for a file.
	server  func(address string) (network, upstream string, err error)
	through func(address string, proxy *net.TCPAddr) (string, error)
}

// hiccup is how long everybody may have to wait.
const hiccup = 500 * time.Millisecond

var engines = map[string]engine{
	"sqlite": {
		dialect: sqlite.Dialect, file: true, connect: embedded.Connector,
		broken: errors.New("the disk went away"),
		size:   `SELECT page_count * page_size, freelist_count FROM pragma_page_count, pragma_page_size, pragma_freelist_count`,
		// A connection that freezes in a transaction stops everybody as this does.
		lockAll: `BEGIN IMMEDIATE`, lockFor: hiccup, freezeFor: hiccup,
	},
	"postgres": {
		dialect: postgres.Dialect,
		connect: func(address string) (driver.Connector, error) {
			return stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
		},
		broken: connectionFailure{},
		size:   `SELECT pg_total_relation_size('chanq_soak'), (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'chanq_soak')`,
		drop:   []string{`DROP TABLE IF EXISTS chanq_soak, chanq_soak_dead, chanq_soak_done`, `DELETE FROM chanq_queues WHERE name = 'soak'`},
		lockOne: `SELECT uuid_send(id) FROM chanq_soak
			WHERE id = (SELECT id FROM chanq_soak WHERE leased_by IS NOT NULL ORDER BY random() LIMIT 1) AND leased_by IS NOT NULL
			FOR UPDATE SKIP LOCKED`,
		lockFor: 2 * leaseFor, freezeFor: 2 * leaseFor,
		server: func(dsn string) (network, upstream string, err error) {
			config, err := pgx.ParseConfig(dsn)
			if err != nil {
				return "", "", err
			}
			if strings.HasPrefix(config.Host, "/") {
				return "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port), nil
			}
			return "tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
		},
		through: func(dsn string, proxy *net.TCPAddr) (string, error) {
			if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
				return fmt.Sprintf("%s host=%s port=%d", dsn, proxy.IP, proxy.Port), nil // the last ones count
			}
			u, err := url.Parse(dsn)
			if err != nil {
				return "", err
			}
			query := u.Query()
			query.Del("host")
			query.Del("port")
			u.Host, u.RawQuery = proxy.String(), query.Encode()
			return u.String(), nil
		},
	},
	"sqlserver": {
		dialect: sqlserver.Dialect,
		connect: func(address string) (driver.Connector, error) { return mssql.NewConnector(address) },
		broken:  errors.New("connection reset by peer"),
		size:    `SELECT SUM(reserved_page_count) * 8192, 0 FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID(N'dbo.chanq_soak')`,
		drop:    []string{`DROP TABLE IF EXISTS dbo.chanq_soak, dbo.chanq_soak_dead, dbo.chanq_soak_done`, `DELETE FROM dbo.chanq_queues WHERE name = 'soak'`},
		lockOne: `SET NOCOUNT ON; DECLARE @id binary(16) = (SELECT TOP (1) id FROM dbo.chanq_soak WITH (NOLOCK) WHERE leased_by IS NOT NULL ORDER BY NEWID());
			SELECT id FROM dbo.chanq_soak WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, READPAST) WHERE id = @id AND leased_by IS NOT NULL`,
		lockFor: 2 * leaseFor, freezeFor: 2 * leaseFor,
		server: func(dsn string) (network, upstream string, err error) {
			config, err := msdsn.Parse(dsn)
			return "tcp", net.JoinHostPort(config.Host, strconv.FormatUint(max(config.Port, 1433), 10)), err
		},
		through: func(dsn string, proxy *net.TCPAddr) (string, error) {
			config, err := msdsn.Parse(dsn)
			if err != nil {
				return "", err
			}
			u := config.URL()
			u.Host = proxy.String()
			return u.String(), nil
		},
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
