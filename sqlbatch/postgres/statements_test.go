package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

func TestStatements(t *testing.T) {
	suite.Run(t, suite.Engine{Dialect: postgres.Dialect, Open: func(t *testing.T) *sql.DB { return pgtest.Open(t) }})
}
