package testdb

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// citus is an engine whose tests know of no schema, though each has one of its own: where a
// statement says public, the database gets that schema's name.
func citus(name string, create func(testing.TB) string) Engine {
	return Engine{
		Name: name, Dialect: postgres.Dialect, Shared: true, Needs: pgtest.CitusVariable,
		Create:  create,
		Connect: connectCitus,
		Errors:  postgresErrors,
	}
}

func connectPostgres(address string) (driver.Connector, error) {
	return stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
}

func connectCitus(address string) (driver.Connector, error) {
	schema, err := pgtest.Schema(address)
	if err != nil {
		return nil, err
	}
	inner, err := connectPostgres(address)
	if err != nil {
		return nil, err
	}
	c := faultdb.New(inner)
	c.Rewrite(strings.NewReplacer(`"public".`, `"`+schema+`".`).Replace)
	return c, nil
}
