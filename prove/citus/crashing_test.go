package citus_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// crashVariable is the environment variable with a command that is called with "crash" or "resume" and the port of a
// node of the tests' Citus. Nothing else may use that node meanwhile.
const crashVariable = "CHANQ_TEST_CITUS_CRASH"

// A schema on the other worker is not affected.
func TestACrashOfAWorkerStopsOnlyItsOwnSchemas(t *testing.T) {
	crash := crasher(t)
	first, second := testdb.New(t, testdb.Citus), testdb.New(t, testdb.Citus)
	first.Within(5 * time.Minute)
	second.Within(5 * time.Minute)
	q, other := first.Queue("work", chanq.Config{}), second.Queue("work", chanq.Config{})
	coordinator := pgtest.CitusCoordinator(t)
	node := func(w *testdb.World) int {
		schema, err := pgtest.Schema(w.Address)
		require.NoError(t, err)
		n, _, _ := place(w, coordinator, schema)
		return n
	}
	require.NotEqual(t, node(first), node(second), "schemas are assigned to the workers in turn")
	y, z := start(first, q), start(second, other)
	for range 2 {
		y.flows(first)
		z.flows(second)
		y.pauses()
		z.pauses()
		port := node(first)
		crash("crash", port)
		for range 5 {
			z.flows(second)
		}
		send, ack := z.pauses()
		t.Logf("while it was down, on the other worker nothing was sent for %v, nothing acked for %v", send.Round(time.Millisecond), ack.Round(time.Millisecond))
		crash("resume", port)
		back := time.Now()
		y.flows(first)
		t.Logf("50 messages were sent and acked %v after it was up again", time.Since(back).Round(time.Millisecond))
	}
	y.check(first)
	z.check(second)
}

func TestACrashOfTheCoordinatorLosesNothing(t *testing.T) {
	crash := crasher(t)
	w := testdb.New(t, testdb.Citus)
	w.Within(5 * time.Minute)
	y := start(w, w.Queue("work", chanq.Config{}))
	var port int
	require.NoError(t, w.DB.QueryRowContext(w.Soon(), `SELECT nodeport FROM pg_dist_node WHERE groupid = 0`).Scan(&port))
	for range 2 {
		y.flows(w)
		crash("crash", port)
		crash("resume", port)
		back := time.Now()
		y.flows(w)
		t.Logf("50 messages were sent and acked %v after it was up again", time.Since(back).Round(time.Millisecond))
	}
	y.check(w)
}

func crasher(t *testing.T) func(action string, port int) {
	testdb.Citus.Require(t)
	command := os.Getenv(crashVariable)
	if command == "" {
		t.Skipf("NOT TESTED on Citus: %s is not set, the command that crashes and resumes a node", crashVariable)
	}
	return func(action string, port int) {
		t.Helper()
		out, err := exec.Command(command, action, strconv.Itoa(port)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
