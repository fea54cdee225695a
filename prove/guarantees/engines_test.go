package guarantees_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/guarantees"
	"github.com/chanq/chanq/prove/testdb"
)

func TestSQLite(t *testing.T) { guarantees.Run(t, testdb.SQLite) }

func TestPostgreSQL(t *testing.T) { guarantees.Run(t, testdb.Postgres) }

func TestCitus(t *testing.T) { guarantees.Run(t, testdb.Citus) }

func TestCitusThroughAnotherNode(t *testing.T) { guarantees.Run(t, testdb.CitusElsewhere) }

func TestCitusThroughTheNodeOfTheSchema(t *testing.T) { guarantees.Run(t, testdb.CitusHolder) }

func TestSQLServerStandIn(t *testing.T) { guarantees.Run(t, testdb.StandIn) }

// What the server reads is all that differs from the other stand-in, which the race detector
// has seen.
func TestSQLServerStandInWithReadCommittedSnapshot(t *testing.T) {
	if testdb.Slowness > 1 {
		t.Skip("it runs without -race, as README's command does")
	}
	guarantees.Run(t, testdb.StandInVersions)
}

func TestSQLServer(t *testing.T) { guarantees.Run(t, testdb.SQLServer) }

func TestMain(m *testing.M) {
	guarantees.Main(func() int {
		result := m.Run()
		if err := goleak.Find(); err != nil && result == 0 {
			fmt.Println("goroutines are left behind:", err)
			return 1
		}
		return result
	})
}
