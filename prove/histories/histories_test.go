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
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue && !testdb.IsSoak() {
		n := testdb.Of("12", "15")
		if raceDetector { // which slows SQLite in Go down about 25 times
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

func TestRandomHistoriesOnTheEmulatorWithRowVersions(t *testing.T) {
	run(t, testdb.EmulatorSocketVersions)
}

// On SQLite a refusal is an error of database/sql, which then looks for another connection by
// itself.
func TestFaultsAtEveryOperation(t *testing.T) {
	e := testdb.Memory
	e.Errors = maps.Clone(e.Errors)
	e.Errors[sqlbatch.Refused] = driver.ErrBadConn
	walkAll(t, e, stride(37, 23))
}

func TestFaultsAtEveryOperationOnPostgreSQL(t *testing.T) {
	walkAll(t, testdb.Postgres, stride(11, 29))
}

// On Citus each run creates a schema first.
func TestFaultsAtEveryOperationOnCitus(t *testing.T) {
	walkAll(t, testdb.Citus, stride(97, 29))
}

func TestFaultsAtEveryOperationOnCitusThroughAnotherNode(t *testing.T) {
	walkAll(t, testdb.CitusElsewhere, stride(97, 59))
}

func TestFaultsAtEveryOperationOnTheEmulator(t *testing.T) {
	walkAll(t, testdb.Emulator, stride(23, 17))
}

// stride is the distance between the struck operations of a test's runs: 1 in the soak tier.
func stride(short, long int) int {
	switch {
	case testdb.IsSoak():
		return 1
	case testdb.IsLong() && !raceDetector:
		return long
	default:
		return short
	}
}
