package histories_test

import (
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq/internal/prove/histories"
	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

var onPostgres = histories.Engine{
	Name: "PostgreSQL", Dialect: postgres.Dialect,
	Create: func(t *testing.T) string { return pgtest.DSN(t) },
	Connect: func(address string) (driver.Connector, error) {
		return stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
	},
	Errors: map[sqlbatch.Class]error{
		sqlbatch.Unknown:    state("08006"), // connection_failure
		sqlbatch.RolledBack: state("40P01"), // deadlock_detected
		sqlbatch.Refused:    state("53300"), // too_many_connections
		sqlbatch.Permanent:  state("42501"), // insufficient_privilege
	},
}

// state is an error as a driver of PostgreSQL makes it.
type state string

func (s state) Error() string    { return "injected error (SQLSTATE " + string(s) + ")" }
func (s state) SQLState() string { return string(s) }

func TestRandomHistoriesOnPostgreSQL(t *testing.T) { histories.Run(t, onPostgres) }

func TestFaultsAtEveryOperationOnPostgreSQL(t *testing.T) {
	pgtest.DSN(t) // or skip
	stride := 1
	if raceDetector {
		stride = 11
	}
	histories.Walk(t, onPostgres, stride)
}
