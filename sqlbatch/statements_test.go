package sqlbatch_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

func TestStatements(t *testing.T) {
	for _, e := range testdb.Engines() {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			suite.Run(t, e.Dialect, func(t *testing.T) *sql.DB {
				connector, err := e.Connect(e.Create(t))
				require.NoError(t, err)
				db := sql.OpenDB(connector)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				return db
			})
		})
	}
}
