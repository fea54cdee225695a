// Package testdb has what the tests and proofs of chanq run on: one list of the engines, with a way to create an empty
// database on each; and World, a test's database with the small steps of which tests consist.
package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/mssqltest/memnet"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Engine is a kind of database to test.
type Engine struct {
	Name    string
	Dialect sqlbatch.Dialect
	// Needs is the environment variable with the address of its server, "" if it needs none.
	Needs string
	// Create makes an empty database and returns its address, or skips the test if there is no server. A cleanup of the
	// test removes the database.
	Create func(testing.TB) string
	// Connect opens an address, also in another process if Shared.
	Connect func(address string) (driver.Connector, error)
	// ConnectWith is Connect of PostgreSQL and Citus, with a change of pgx's configuration.
	ConnectWith func(address string, change func(*pgx.ConnConfig)) (driver.Connector, error)
	// Tables opens an address where tables can be created and dropped, nil if Connect does.
	Tables func(address string) (driver.Connector, error)
	// PlainOnly: ordered queues are not possible through this address.
	PlainOnly bool
	// Shared: processes can share a database by its address.
	Shared bool
	// Bubble: the database and the connection to it are in memory. Its tests run in bubbles of testing/synctest, where
	// leases end without real waiting, at the same moment under any load.
	Bubble bool
	// Copy copies the database of an address, which must have no connections, and returns the address of the copy. Nil: it
	// cannot be copied.
	Copy func(t testing.TB, address string) string
	// Errors has the errors of this engine's driver, one for each class. Unknown is the error of a broken connection.
	Errors map[sqlbatch.Class]error
}

// The engines. Memory and Emulator run in every tier (-short: only Memory), the others in the long one; those that need
// a server are skipped without it.
var (
	// Memory is SQLite without a file.
	Memory = Engine{
		Name: "sqlite in memory", Dialect: sqlite.Dialect, Bubble: true,
		Create:  createMemory,
		Connect: connectMemory,
		Errors:  sqliteErrors,
	}
	// Emulator is the SQL Server emulator, connected without a socket. It reads under locks.
	Emulator = EmulatorAt(mssqltest.RealClock{})
	// EmulatorVersions is Emulator with READ_COMMITTED_SNAPSHOT on: it reads row versions.
	EmulatorVersions = emulator("emulator in memory with row versions", mssqltest.Options{ReadCommittedSnapshot: true})
	SQLite           = Engine{
		Name: "sqlite", Dialect: sqlite.Dialect, Shared: true,
		Create:  func(t testing.TB) string { return filepath.Join(t.TempDir(), "queue.db") },
		Connect: embedded.Connector,
		Copy:    copyFile,
		Errors:  sqliteErrors,
	}
	// SQLiteFile is SQLite in bubbles. Without SQLite's pipes and locks between processes, for whose system calls a bubble's
	// clock does not wait: it polls, as on a file system that has none.
	SQLiteFile = Engine{
		Name: "sqlite file", Dialect: sqlite.Dialect, Bubble: true,
		Create:  createAlone,
		Connect: embedded.Connector,
		Copy:    copyFile,
		Errors:  sqliteErrors,
	}
	Postgres = Engine{
		Name: "postgres", Dialect: postgres.Dialect, Shared: true, Needs: pgtest.Variable,
		Create:  pgtest.DSN,
		Connect: connectPostgres, ConnectWith: connectPostgresWith,
		Copy:   pgtest.Copy,
		Errors: postgresErrors,
	}
	// Citus is a schema on a worker, through the coordinator; CitusElsewhere is a schema through another worker, and
	// CitusHolder through the worker that has it.
	Citus          = citus(pgtest.CitusSchema)
	CitusElsewhere = citusWorker("citus through another node", pgtest.CitusElsewhere)
	CitusHolder    = citusWorker("citus through the node of the schema", pgtest.CitusHolder)
	// EmulatorSocket is Emulator connected through a socket, EmulatorSocketVersions is EmulatorVersions.
	EmulatorSocket         = sqlServer("emulator", func(t testing.TB) string { return emulatorDSN(t, mssqltest.RealClock{}, false) })
	EmulatorSocketVersions = EmulatorSocketAt(mssqltest.RealClock{})
	// SQLServer is a real server, whose DSN is in SQLServerVariable.
	SQLServer = needing(SQLServerVariable, sqlServer("sqlserver", createDatabase))
)

// EmulatorAt is Emulator with another clock.
func EmulatorAt(clock mssqltest.Clock) Engine {
	return emulator("emulator in memory", mssqltest.Options{Clock: clock})
}

func emulator(name string, o mssqltest.Options) Engine {
	o.InMemory = true
	e := sqlServer(name, func(t testing.TB) string { return mssqltest.Start(t, o).DSN() })
	e.Bubble, e.Shared = true, false
	return e
}

// ChanqDialect returns the Dialect of a chanq.Config.
func (e Engine) ChanqDialect() chanq.Dialect { return chanq.Dialect(e.Dialect.Name()) }

func needing(variable string, e Engine) Engine {
	e.Needs = variable
	return e
}

// ConnectTables opens an address where tables can be created and dropped.
func (e Engine) ConnectTables(address string) (driver.Connector, error) {
	if e.Tables != nil {
		return e.Tables(address)
	}
	return e.Connect(address)
}

// Require skips a test, with a message, if it is of a higher tier or its server is missing. It fails if the SQL Server that the user
// has named does not answer.
func (e Engine) Require(t testing.TB) {
	t.Helper()
	if testing.Short() && e.Name != Memory.Name {
		t.Skipf("SKIPPED on %s: -short has SQLite in memory only", e.Name)
	}
	named := e.Needs == SQLServerVariable && os.Getenv(e.Needs) != ""
	if (!e.Bubble || e.Name == SQLiteFile.Name) && !named {
		Long(t)
	}
	if named {
		if err := serverAnswers(); err != nil {
			t.Fatalf("the server of %s does not answer: %v", e.Needs, err)
		}
	}
	if e.Needs != "" && os.Getenv(e.Needs) == "" {
		t.Skipf("NOT TESTED on %s: %s is not set (.ci/postgres and compose.yaml start servers)", e.Name, e.Needs)
	}
}

// Engines lists all engines that create a separate database on every call of Create.
func Engines() []Engine {
	return []Engine{Memory, Emulator, EmulatorVersions, SQLite, SQLiteFile, EmulatorSocket, EmulatorSocketVersions, Postgres, SQLServer, Citus, CitusElsewhere, CitusHolder}
}

// Place is a database that processes share, for the task of a child.
type Place struct{ Engine, Address string }

// Place returns the database of a world.
func (w *World) Place() Place { return Place{w.Engine.Name, w.Address} }

// Open opens the database, with the right to create tables.
func (p Place) Open() (*sql.DB, error) {
	for _, e := range Engines() {
		if e.Name == p.Engine {
			c, err := e.ConnectTables(p.Address)
			if err != nil {
				return nil, err
			}
			return sql.OpenDB(c), nil
		}
	}
	return nil, fmt.Errorf("unknown engine %q", p.Engine)
}

// EmulatorSocketAt is EmulatorSocketVersions with another clock.
func EmulatorSocketAt(clock mssqltest.Clock) Engine {
	return sqlServer("emulator with row versions", func(t testing.TB) string { return emulatorDSN(t, clock, true) })
}

func emulatorDSN(t testing.TB, clock mssqltest.Clock, versions bool) string {
	return mssqltest.Start(t, mssqltest.Options{Clock: clock, ReadCommittedSnapshot: versions}).DSN()
}

func sqlServer(name string, create func(testing.TB) string) Engine {
	return Engine{
		Name: name, Dialect: sqlserver.Dialect, Shared: true,
		Create:  create,
		Connect: connectSQLServer,
		Errors:  sqlServerErrors,
	}
}

func connectSQLServer(dsn string) (driver.Connector, error) {
	c, err := mssql.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(dsn); err == nil && memnet.Has(u.Host) {
		c.Dialer = memnet.Dialer{}
	}
	return c, nil
}

func copyFile(t testing.TB, path string) string {
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	copied := filepath.Join(t.TempDir(), "copy.db")
	_, err = db.ExecContext(context.Background(), `VACUUM INTO ?1`, copied)
	require.NoError(t, err)
	return copied
}

var (
	sqliteErrors = map[sqlbatch.Class]error{
		sqlbatch.Unknown:    errors.New("disk went away"),
		sqlbatch.RolledBack: code(5),    // SQLITE_BUSY
		sqlbatch.Refused:    code(13),   // SQLITE_FULL
		sqlbatch.NoSchema:   code(1),    // SQLITE_ERROR
		sqlbatch.Permanent:  code(8),    // SQLITE_READONLY
		sqlbatch.BadRow:     code(19),   // SQLITE_CONSTRAINT
		sqlbatch.Duplicate:  code(2067), // SQLITE_CONSTRAINT_UNIQUE
	}
	postgresErrors = map[sqlbatch.Class]error{
		sqlbatch.Unknown:    state("08006"), // connection_failure
		sqlbatch.RolledBack: state("40P01"), // deadlock_detected
		sqlbatch.Refused:    state("53300"), // too_many_connections
		sqlbatch.NoSchema:   state("42P01"), // undefined_table
		sqlbatch.Permanent:  state("42501"), // insufficient_privilege
		sqlbatch.BadRow:     state("22021"), // character_not_in_repertoire
		sqlbatch.Duplicate:  state("23505"), // unique_violation
	}
	sqlServerErrors = map[sqlbatch.Class]error{
		sqlbatch.Unknown:    errors.New("connection reset by peer"),
		sqlbatch.RolledBack: number(1205),
		sqlbatch.Refused:    number(40613),
		sqlbatch.NoSchema:   number(208),
		sqlbatch.Permanent:  number(229),
		sqlbatch.BadRow:     number(2628),
		sqlbatch.Duplicate:  number(2601),
	}
)

// code is an error of SQLite, as its driver returns it.
type code int

func (c code) Code() int     { return int(c) }
func (c code) Error() string { return fmt.Sprintf("injected: SQLite's code %d", int(c)) }

// state is an error as a driver of PostgreSQL returns it.
type state string

func (s state) SQLState() string { return string(s) }
func (s state) Error() string    { return "injected: SQLSTATE " + string(s) }

// number is an error of SQL Server, as reported by its driver. The driver's own type cannot be compared, which
// errors.Is requires.
type number int32

func (n number) SQLErrorNumber() int32 { return int32(n) }
func (n number) Error() string         { return fmt.Sprintf("mssql: injected (%d)", int32(n)) }
