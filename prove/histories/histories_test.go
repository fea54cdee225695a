package histories

import (
	"database/sql/driver"
	"flag"
	"maps"
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if raceDetector && flag.Lookup("rapid.checks").Value.String() == "100" {
		// The race detector slows SQLite in Go down some twenty-five times.
		_ = flag.Set("rapid.checks", "12") // the flag exists and takes a number
	}
	goleak.VerifyTestMain(m)
}

const raceDetector = testdb.Slowness > 1

func TestRandomHistories(t *testing.T) { Run(t, testdb.Memory) }

func TestRandomHistoriesOnPostgreSQL(t *testing.T) { Run(t, testdb.Postgres) }

func TestRandomHistoriesOnCitus(t *testing.T) { Run(t, testdb.Citus) }

func TestRandomHistoriesOnCitusThroughAnotherNode(t *testing.T) {
	Run(t, testdb.CitusElsewhere)
}

func TestRandomHistoriesOnCitusThroughTheNodeOfTheSchema(t *testing.T) {
	Run(t, testdb.CitusHolder)
}

func TestRandomHistoriesOnSQLServer(t *testing.T) { Run(t, testdb.StandInVersions) }

// On SQLite a refusal is that of database/sql, which then looks for another
// connection by itself.
func TestFaultsAtEveryOperation(t *testing.T) {
	e := testdb.Memory
	e.Errors = maps.Clone(e.Errors)
	e.Errors[sqlbatch.Refused] = driver.ErrBadConn
	Walk(t, e, stride(1, 37))
}

func TestFaultsAtEveryOperationOnPostgreSQL(t *testing.T) {
	Walk(t, testdb.Postgres, stride(1, 11))
}

// Each run has a schema to make first.
func TestFaultsAtEveryOperationOnCitus(t *testing.T) {
	Walk(t, testdb.Citus, stride(29, 97))
}

func TestFaultsAtEveryOperationOnCitusThroughAnotherNode(t *testing.T) {
	Walk(t, testdb.CitusElsewhere, stride(59, 97))
}

// On the stand-in a run takes longer than on the other engines; 1 passes, too.
func TestFaultsAtEveryOperationOnSQLServer(t *testing.T) {
	Walk(t, testdb.StandInVersions, stride(5, 23))
}

func stride(here, withRaceDetector int) int {
	if raceDetector {
		return withRaceDetector
	}
	return here
}
