package guarantees

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

func TestSQLiteInMemory(t *testing.T) { run(t, testdb.Memory) }

func TestSQLServerEmulatorInMemory(t *testing.T) { run(t, testdb.Emulator) }

func TestSQLite(t *testing.T) { run(t, testdb.SQLite) }

func TestPostgreSQL(t *testing.T) { run(t, testdb.Postgres) }

func TestCitus(t *testing.T) { run(t, testdb.Citus) }

func TestCitusThroughAnotherNode(t *testing.T) { run(t, testdb.CitusElsewhere) }

func TestCitusThroughTheNodeOfTheSchema(t *testing.T) { run(t, testdb.CitusHolder) }

func TestSQLServerEmulator(t *testing.T) { run(t, testdb.StandIn) }

// With row versions only what the server reads differs from the other emulator, which the race
// detector has seen.
func TestSQLServerEmulatorWithReadCommittedSnapshot(t *testing.T) {
	if testdb.Slowness > 1 {
		t.Skip("SKIPPED: runs without -race")
	}
	run(t, testdb.StandInVersions)
}

func TestSQLServer(t *testing.T) { run(t, testdb.SQLServer) }

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{processPart: child.Does(play)})
	if testdb.IsLong() {
		testdb.Together(6) // tests on real clocks mostly wait
	}
	goleak.VerifyTestMain(m)
}
