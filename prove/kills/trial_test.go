package kills

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// parts has the functions of these tests' processes.
var parts = map[string]child.Part{WorkerPart: child.Does(Work)}

func TestMain(m *testing.M) {
	child.Main(parts)
	testdb.Together(4) // they mostly wait
	goleak.VerifyTestMain(m)
}

func TestSQLiteSurvivesKilledProcesses(t *testing.T) {
	survive(t, trial{Engine: "sqlite", Address: filepath.Join(t.TempDir(), "queue.db"), Rate: 200})
}

// TestPostgreSQLSurvivesKilledProcessesAndItsOwnCrash uses a separate server
// with all settings for durable commits.
func TestPostgreSQLSurvivesKilledProcessesAndItsOwnCrash(t *testing.T) {
	c := pgtest.StartCluster(t, "fsync=on", "full_page_writes=on", "synchronous_commit=on")
	survive(t, trial{Engine: "postgres", Address: c.DSN(), Rate: 400, Crash: func() error {
		if err := c.Crash(); err != nil {
			return err
		}
		return c.Resume()
	}})
}

// TestCitusSurvivesKilledProcesses: other tests use the servers, so none is crashed.
func TestCitusSurvivesKilledProcesses(t *testing.T) {
	survive(t, trial{Engine: "citus", Address: testdb.Citus.Create(t), Rate: 200})
}

func TestCitusSurvivesKilledProcessesThroughAnotherNode(t *testing.T) {
	survive(t, trial{Engine: "citus-elsewhere", Address: testdb.CitusElsewhere.Create(t), Rate: 200})
}

func TestCitusSurvivesKilledProcessesThroughTheNodeOfTheSchema(t *testing.T) {
	survive(t, trial{Engine: "citus-holder", Address: testdb.CitusHolder.Create(t), Rate: 200})
}

// TestTheSQLServerEmulatorSurvivesKilledProcesses: the emulator keeps its tables in
// memory, so it is not restarted.
func TestTheSQLServerEmulatorSurvivesKilledProcesses(t *testing.T) {
	testdb.Long(t)
	survive(t, trial{Engine: "sqlserver", Address: testdb.EmulatorSocket.Create(t), Rate: 400})
}

func TestOnlyDeadlyMessagesOfKilledProcessesAreDead(t *testing.T) {
	testdb.Long(t)
	t.Parallel()
	for _, s := range []trial{
		{Engine: "sqlite", Address: filepath.Join(t.TempDir(), "queue.db")},
		{Engine: "postgres", Address: pgtest.StartCluster(t).DSN()},
	} {
		t.Run(s.Engine, func(t *testing.T) {
			t.Parallel()
			condemn(t, s)
		})
	}
}

// condemn sends deadly messages among others, and also kills processes that handle innocent ones.
func condemn(t *testing.T, s trial) {
	s.Seed = setting(t, "CHANQ_CRASH_SEED", uint64(time.Now().UnixNano()))
	s.Rate, s.Workers, s.KillEvery, s.For, s.Body = 12, 4, 5*time.Second, 90*time.Second, 200
	s.Guilty, s.Work = 0.1, 2*time.Second
	t.Logf("CHANQ_CRASH_SEED=%d", s.Seed)
	workers, err := s.run(t.Context(), t.Output())
	require.NoError(t, err)
	defer workers.end()
	v := workers.history.Judge()
	fatal, lost := workers.history.lostInARow()
	totals, _ := workers.history.totals(0)
	t.Logf("%d kills, %d deadly messages; innocent ones that lost at most 0, 1, 2, … leases in a row: %v; %s", totals.kills, fatal, lost, v)
	require.Empty(t, v.Faults)
	_, err = workers.deadLettered(workers.history, v)
	require.NoError(t, err)
	require.Positive(t, fatal)
}

// setting returns a number that an environment variable can set, to repeat a run or to make it longer.
func setting(t *testing.T, variable string, standard uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// survive kills any of eight processes, eight times, or a hundred in the long tier, and checks their events against the
// guarantees.
func survive(t *testing.T, s trial) {
	if testing.Short() {
		t.Skip("SKIPPED: -short kills no process")
	}
	t.Parallel()
	s.Seed = setting(t, "CHANQ_CRASH_SEED", uint64(time.Now().UnixNano()))
	s.Kills = int(setting(t, "CHANQ_CRASH_KILLS", testdb.Of[uint64](8, 100)))
	s.Workers, s.KillEvery, s.For = 8, 275*time.Millisecond, time.Hour
	s.Body = 200
	// Busy for three quarters of the time, so that a kill meets work, and buffers.
	s.Work = 2 * 3 * time.Second / 4 * time.Duration(readers*s.Workers) / time.Duration(s.Rate)
	t.Logf("CHANQ_CRASH_SEED=%d CHANQ_CRASH_KILLS=%d", s.Seed, s.Kills)
	began := time.Now()
	workers, err := s.run(t.Context(), t.Output())
	require.NoError(t, err)
	defer workers.end()
	v := workers.history.Judge()
	totals, _ := workers.history.totals(0)
	t.Logf("%d kills in %v: %s", totals.kills, time.Since(began).Round(time.Second/10), v)
	for _, fault := range v.Faults[:min(len(v.Faults), 20)] {
		t.Error(fault)
	}
	require.Empty(t, v.Faults[min(len(v.Faults), 20):], "and more")
	_, err = workers.deadLettered(workers.history, v)
	require.NoError(t, err)
	require.Equal(t, s.Kills, totals.kills)
	if s.Kills < 50 {
		return
	}
	// A trial without a kill of a working process would prove nothing.
	require.Positive(t, v.Duplicates.Killed, "no killed process held a lease")
	require.Positive(t, v.Unseen, "no killed process had leases in its buffer")
}
