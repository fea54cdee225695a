package testdb

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// citus returns an engine with one schema per test. The tests use the schema public, which is replaced in each
// statement by that schema.
func citus(create func(testing.TB) string) Engine {
	return Engine{
		Name: "citus", Dialect: postgres.Dialect, Shared: true, Needs: pgtest.CitusVariable,
		Create:  create,
		Connect: connectCitus, ConnectWith: connectCitusWith,
		Errors: postgresErrors,
	}
}

// citusWorker is Citus through a worker, which accepts no DDL and no ordered queues.
func citusWorker(name string, create func(testing.TB) string) Engine {
	e := citus(create)
	e.Name, e.PlainOnly = name, true
	e.Tables = func(address string) (driver.Connector, error) {
		coordinator, err := pgtest.CitusTables(address)
		if err != nil {
			return nil, err
		}
		return connectCitus(coordinator)
	}
	return e
}

func connectPostgres(address string) (driver.Connector, error) {
	return stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
}

func connectCitus(address string) (driver.Connector, error) {
	return connectCitusWith(address, func(*pgx.ConnConfig) {})
}

func connectPostgresWith(address string, change func(*pgx.ConnConfig)) (driver.Connector, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	change(config)
	return stdlib.GetConnector(*config), nil
}

func connectCitusWith(address string, change func(*pgx.ConnConfig)) (driver.Connector, error) {
	schema, err := pgtest.Schema(address)
	if err != nil {
		return nil, err
	}
	inner, err := connectPostgresWith(address, change)
	if err != nil {
		return nil, err
	}
	c := faultdb.New(inner)
	c.Rewrite(strings.NewReplacer(`"public".`, `"`+schema+`".`).Replace)
	return c, nil
}
