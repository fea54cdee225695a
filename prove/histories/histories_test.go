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
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		n := testdb.Of("12", checks.DefValue)
		if raceDetector { // which slows SQLite in Go down some twenty-five times
			n = "12"
		}
		_ = flag.Set(checks.Name, n) // the flag exists and takes a number
	}
	goleak.VerifyTestMain(m)
}

const raceDetector = testdb.Slowness > 1

func TestRandomHistories(t *testing.T) { run(t, testdb.Memory) }

func TestRandomHistoriesOnPostgreSQL(t *testing.T) { run(t, testdb.Postgres) }

func TestRandomHistoriesOnCitus(t *testing.T) { run(t, testdb.Citus) }

func TestRandomHistoriesOnCitusThroughAnotherNode(t *testing.T) {
	run(t, testdb.CitusElsewhere)
}

func TestRandomHistoriesOnCitusThroughTheNodeOfTheSchema(t *testing.T) {
	run(t, testdb.CitusHolder)
}

func TestRandomHistoriesOnTheEmulator(t *testing.T) { run(t, testdb.Emulator) }

func TestRandomHistoriesOnTheEmulatorWithRowVersions(t *testing.T) { run(t, testdb.StandInVersions) }

// On SQLite a refusal is that of database/sql, which then looks for another
// connection by itself.
func TestFaultsAtEveryOperation(t *testing.T) {
	e := testdb.Memory
	e.Errors = maps.Clone(e.Errors)
	e.Errors[sqlbatch.Refused] = driver.ErrBadConn
	walkAll(t, e, stride(testdb.Of(37, 1), 37))
}

func TestFaultsAtEveryOperationOnPostgreSQL(t *testing.T) {
	walkAll(t, testdb.Postgres, stride(1, 11))
}

// Each run has a schema to make first.
func TestFaultsAtEveryOperationOnCitus(t *testing.T) {
	walkAll(t, testdb.Citus, stride(29, 97))
}

func TestFaultsAtEveryOperationOnCitusThroughAnotherNode(t *testing.T) {
	walkAll(t, testdb.CitusElsewhere, stride(59, 97))
}

// On the emulator a run takes longer than on the other engines. A stride of 1 passes as well.
func TestFaultsAtEveryOperationOnTheEmulator(t *testing.T) {
	walkAll(t, testdb.Emulator, stride(testdb.Of(37, 5), 23))
}

func stride(here, withRaceDetector int) int {
	if raceDetector {
		return withRaceDetector
	}
	return here
}
