package histories_test

import (
	"database/sql/driver"
	"flag"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/prove/histories"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if raceDetector && flag.Lookup("rapid.checks").Value.String() == "100" {
		// The race detector slows SQLite in Go down some twenty-five times.
		_ = flag.Set("rapid.checks", "12") // the flag exists and takes a number
	}
	goleak.VerifyTestMain(m)
}

var onSQLite = histories.Engine{
	Name: "SQLite", Dialect: sqlite.Dialect,
	Create:  func(*testing.T) string { return ":memory:" },
	Connect: embedded.Connector,
	Errors: map[sqlbatch.Class]error{
		sqlbatch.Unknown:    code(10), // SQLITE_IOERR
		sqlbatch.RolledBack: code(5),  // SQLITE_BUSY
		sqlbatch.Refused:    driver.ErrBadConn,
		sqlbatch.Permanent:  code(8), // SQLITE_READONLY
	},
}

// code is an error as the driver's, whose fields only the driver can set.
type code int

func (c code) Error() string { return fmt.Sprintf("injected error (%d)", int(c)) }
func (c code) Code() int     { return int(c) }

func TestRandomHistories(t *testing.T) { histories.Run(t, onSQLite) }

func TestFaultsAtEveryOperation(t *testing.T) {
	stride := 1
	if raceDetector {
		stride = 37
	}
	histories.Walk(t, onSQLite, stride)
}
