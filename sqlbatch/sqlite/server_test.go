package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestStatements(t *testing.T) {
	suite.Run(t, suite.Engine{Dialect: sqlite.Dialect, Open: func(t *testing.T) *sql.DB {
		db, err := embedded.Open(":memory:")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}})
}
