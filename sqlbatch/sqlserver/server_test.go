package sqlserver_test

import (
	"database/sql"
	"testing"

	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestStatementsOnTheStandIn(t *testing.T) {
	for name, snapshots := range map[string]bool{"locks": false, "row versions": true} {
		t.Run(name, func(t *testing.T) {
			suite.Run(t, suite.Engine{Dialect: sqlserver.Dialect, Open: func(t *testing.T) *sql.DB {
				return mssqltest.Start(t, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: snapshots}).DB()
			}})
		})
	}
}
