package table_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// stranger is an unknown driver.
type stranger struct{}

func (s stranger) Connect(context.Context) (driver.Conn, error) { return nil, errors.ErrUnsupported }
func (s stranger) Driver() driver.Driver                        { return s }
func (s stranger) Open(string) (driver.Conn, error)             { return nil, errors.ErrUnsupported }

func TestAnUnknownDriverNeedsADialect(t *testing.T) {
	db := sql.OpenDB(stranger{})
	defer db.Close()
	_, err := table.DialectOf(db, "")
	require.ErrorContains(t, err, "chanq does not know the driver table_test.stranger "+
		"(github.com/chanq/chanq/internal/table_test): set Config.Dialect to the database behind it, "+
		`"sqlserver", "postgres" or "sqlite"`)
	for _, want := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
		found, err := table.DialectOf(db, want.Name())
		require.NoError(t, err)
		require.Equal(t, want, found)
	}
	_, err = table.DialectOf(db, "oracle")
	require.EqualError(t, err, `Config.Dialect is "oracle": must be "sqlserver", "postgres" or "sqlite"`)
	_, err = table.DialectOf(nil, "sqlite")
	require.EqualError(t, err, "db is nil")
}
