package histories_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq/internal/prove/histories"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

var sqlServer = histories.Engine{
	Name: "SQL Server's stand-in", Dialect: sqlserver.Dialect,
	Create: func(t *testing.T) string {
		return mssqltest.Start(t, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: true}).DSN()
	},
	Connect: func(dsn string) (driver.Connector, error) { return mssql.NewConnector(dsn) },
	Errors: map[sqlbatch.Class]error{
		sqlbatch.Unknown:    errors.New("connection reset by peer"),
		sqlbatch.RolledBack: number(1205),
		sqlbatch.Refused:    number(40613),
		sqlbatch.Permanent:  number(229),
	},
}

// number is an error of the server, as its driver tells it. The driver's own type
// cannot be compared, as errors.Is does.
type number int32

func (n number) Error() string         { return fmt.Sprintf("mssql: injected (%d)", int32(n)) }
func (n number) SQLErrorNumber() int32 { return int32(n) }

func TestRandomHistoriesOnSQLServer(t *testing.T) { histories.Run(t, sqlServer) }

func TestFaultsAtEveryOperationOnSQLServer(t *testing.T) {
	stride := 5 // a run takes longer than on the other engines; 1 passes, too
	if raceDetector {
		stride = 23
	}
	histories.Walk(t, sqlServer, stride)
}
