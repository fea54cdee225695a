package guarantees_test

import (
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq/internal/prove/guarantees"
	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

var onPostgres = guarantees.Engine{
	Name:    "postgres",
	Dialect: postgres.Dialect,
	Create:  func(t *testing.T) string { return pgtest.DSN(t) },
	Connect: func(address string) (driver.Connector, error) {
		return stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
	},
	Shared: true,
	Copy:   func(t *testing.T, dsn string) string { return pgtest.Copy(t, dsn) },
	Errors: map[sqlbatch.Class]error{
		sqlbatch.Unknown:    state("08006"), // connection_failure
		sqlbatch.RolledBack: state("40P01"), // deadlock_detected
		sqlbatch.Refused:    state("53300"), // too_many_connections
		sqlbatch.NoSchema:   state("42P01"), // undefined_table
		sqlbatch.Permanent:  state("42501"), // insufficient_privilege
		sqlbatch.BadRow:     state("22021"), // character_not_in_repertoire
		sqlbatch.Duplicate:  state("23505"), // unique_violation
	},
}

// state is an error as a driver of PostgreSQL makes it.
type state string

func (s state) SQLState() string { return string(s) }
func (s state) Error() string    { return "injected: SQLSTATE " + string(s) }

func TestPostgreSQL(t *testing.T) { guarantees.Run(t, onPostgres) }
