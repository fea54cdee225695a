// Package limits contains only tests: chanq with too few connections, too many messages, a full
// disk or a wrong clock, and counts of everything that it leaves behind. docs/internals/reliability.md has
// the results.
package limits_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) {
	if testdb.IsLong() {
		testdb.Together(4) // tests on real clocks mostly wait
	}
	goleak.VerifyTestMain(m)
}

var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.SQLiteFile, testdb.EmulatorSocketVersions, testdb.Postgres}

// world is the database of one test, with steps that only these tests use.
type world struct{ *testdb.World }

// newWorld creates the database.
func newWorld(t *testing.T, e testdb.Engine) *world {
	e.Require(t)
	w := &world{testdb.New(t, e)}
	w.Open()
	return w
}

// onEach runs a test on every engine.
func onEach(t *testing.T, test func(*world)) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		w.Open()
		test(&world{w})
	})
}
