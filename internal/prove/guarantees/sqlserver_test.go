package guarantees_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/prove/guarantees"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// sqlServer is a SQL Server of any kind: create makes a database and returns
// its DSN.
func sqlServer(name string, create func(*testing.T) string) guarantees.Engine {
	return guarantees.Engine{
		Name:    name,
		Dialect: sqlserver.Dialect,
		Create:  create,
		Connect: func(dsn string) (driver.Connector, error) { return mssql.NewConnector(dsn) },
		Shared:  true,
		Errors: map[sqlbatch.Class]error{
			sqlbatch.Unknown:    errors.New("connection reset by peer"),
			sqlbatch.RolledBack: number(1205),
			sqlbatch.Refused:    number(40613),
			sqlbatch.NoSchema:   number(208),
			sqlbatch.Permanent:  number(229),
			sqlbatch.BadRow:     number(2628),
			sqlbatch.Duplicate:  number(2601),
		},
	}
}

// number is an error of the server, as its driver tells it. The driver's own type
// cannot be compared, as errors.Is does.
type number int32

func (n number) Error() string         { return fmt.Sprintf("mssql: injected (%d)", int32(n)) }
func (n number) SQLErrorNumber() int32 { return int32(n) }

func standIn(snapshots bool) func(*testing.T) string {
	return func(t *testing.T) string {
		return mssqltest.Start(t, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: snapshots}).DSN()
	}
}

var (
	standInLocks    = sqlServer("stand-in", standIn(false))
	standInVersions = sqlServer("stand-in with row versions", standIn(true))
	realServer      = sqlServer("SQL Server", createDatabase)
)

func TestSQLServerStandIn(t *testing.T) { guarantees.Run(t, standInLocks) }

func TestSQLServerStandInWithReadCommittedSnapshot(t *testing.T) { guarantees.Run(t, standInVersions) }

// TestSQLServer needs the DSN of a login that may create databases.
func TestSQLServer(t *testing.T) {
	if os.Getenv(sqlServerVariable) == "" {
		t.Skipf("NOT TESTED: a real SQL Server. Set %s to the DSN of a login that may create databases (compose.yaml starts a server).", sqlServerVariable)
	}
	guarantees.Run(t, realServer)
}

const sqlServerVariable = "CHANQ_TEST_SQLSERVER"

func createDatabase(t *testing.T) string {
	dsn, err := url.Parse(os.Getenv(sqlServerVariable))
	require.NoError(t, err, "%s must be a sqlserver:// URL", sqlServerVariable)
	admin, err := sql.Open("sqlserver", dsn.String())
	require.NoError(t, err)
	name := "chanq_test_" + fmt.Sprintf("%x", chanq.NewID())
	_, err = admin.ExecContext(t.Context(), "CREATE DATABASE ["+name+"]")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "ALTER DATABASE ["+name+"] SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE ["+name+"]")
		require.NoError(t, err)
		require.NoError(t, admin.Close())
	})
	query := dsn.Query()
	query.Set("database", name)
	dsn.RawQuery = query.Encode()
	return dsn.String()
}
