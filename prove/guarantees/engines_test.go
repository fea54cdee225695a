package guarantees

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

func TestSQLiteInMemory(t *testing.T) { run(t, testdb.Memory) }

func TestSQLServerEmulatorInMemory(t *testing.T) { run(t, testdb.Emulator) }

func TestSQLite(t *testing.T) { run(t, testdb.SQLiteFile) }

func TestPostgreSQL(t *testing.T) { run(t, testdb.Postgres) }

func TestCitus(t *testing.T) { run(t, testdb.Citus) }

func TestCitusThroughAnotherNode(t *testing.T) { run(t, testdb.CitusElsewhere) }

func TestCitusThroughTheNodeOfTheSchema(t *testing.T) { run(t, testdb.CitusHolder) }

// With sockets and the real clock, the long tier runs only the emulator's tests that cannot run in a bubble.
func TestSQLServerEmulator(t *testing.T) {
	testdb.Soak(t)
	for _, e := range []testdb.Engine{testdb.EmulatorSocket, testdb.EmulatorSocketVersions} {
		t.Run(e.Name, func(t *testing.T) { run(t, e) })
	}
}

func TestSQLServerEmulatorWithReadCommittedSnapshot(t *testing.T) {
	testdb.Long(t)
	run(t, testdb.EmulatorVersions)
}

func TestSQLServer(t *testing.T) { run(t, testdb.SQLServer) }

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{migrates: child.Does(migrate)})
	if testdb.IsLong() || os.Getenv(testdb.SQLServerVariable) != "" {
		testdb.Together(16) // tests on real clocks mostly wait
	}
	goleak.VerifyTestMain(m)
}
