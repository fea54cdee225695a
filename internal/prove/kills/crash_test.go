package kills

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	enginepkg "github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/internal/testdb/pgtest"
)

func TestMain(m *testing.M) {
	if p := os.Getenv(partVariable); p != "" {
		if err := play(p); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long to wait for what must come.
const patience = time.Minute

// leaseFor is short beside the run, so that what a kill leaves behind comes back
// in it, and long beside what a loaded machine keeps a process waiting.
const leaseFor = 4 * time.Second

// engine is a database that processes share.
type engine struct {
	open func(address string) (*sql.DB, error)
}

var engines = map[string]engine{
	"sqlite":   {embedded.Open},
	"postgres": {func(dsn string) (*sql.DB, error) { return sql.Open("pgx", dsn) }},
	"stand-in": {func(dsn string) (*sql.DB, error) { return sql.Open("sqlserver", dsn) }},
}

func TestSQLiteSurvivesKilledProcesses(t *testing.T) {
	storm(t, "sqlite", filepath.Join(t.TempDir(), "queue.db"), nil)
}

// TestPostgreSQLSurvivesKilledProcessesAndItsOwnCrash has a server of its own,
// with everything on that lets commits survive a crash.
func TestPostgreSQLSurvivesKilledProcessesAndItsOwnCrash(t *testing.T) {
	c := pgtest.StartCluster(t, "fsync=on", "full_page_writes=on", "synchronous_commit=on")
	storm(t, "postgres", c.DSN(), func() error {
		if err := c.Crash(); err != nil {
			return err
		}
		return c.Resume()
	})
}

// TestSQLServerStandInSurvivesKilledProcesses: the stand-in keeps its tables in
// memory, so it is not restarted.
func TestSQLServerStandInSurvivesKilledProcesses(t *testing.T) {
	storm(t, "stand-in", mssqltest.Start(t, mssqltest.Options{Clock: enginepkg.RealClock{}}).DSN(), nil)
}

// setting is a number that a variable of the environment may give, to repeat a
// run or to make it longer.
func setting(t *testing.T, variable string, standard uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// storm kills random processes, one every 50 to 500 ms, and once, if restart is
// given, the server; then it empties the queue and judges what was written down.
func storm(t *testing.T, name, address string, restart func() error) {
	t.Parallel()
	seed := setting(t, "CHANQ_CRASH_SEED", uint64(time.Now().UnixNano()))
	kills := int(setting(t, "CHANQ_CRASH_KILLS", 100))
	t.Logf("CHANQ_CRASH_SEED=%d CHANQ_CRASH_KILLS=%d", seed, kills)
	chance := rand.New(rand.NewPCG(seed, 0))

	db, err := engines[name].open(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, chanq.Migrate(t.Context(), db, queueName, chanq.Config{}))

	f := newFleet(t, part{Engine: name, Address: address, Dir: t.TempDir(), LeaseFor: leaseFor})
	var places, producers, consumers []string
	for i := 1; i <= 4; i++ {
		producers = append(producers, fmt.Sprintf("producer-%d", i))
		consumers = append(consumers, fmt.Sprintf("consumer-%d", i))
	}
	places = append(append(places, producers...), consumers...)
	for _, place := range places {
		f.start(place)
	}
	h := History{LeaseFor: leaseFor}
	restarted := make(chan error, 1)
	began := time.Now()
	for n := range kills {
		if n == kills/2 && restart != nil {
			h.Outages = append(h.Outages, Outage{From: time.Now()})
			go func() { restarted <- restart() }() // joined below; kills go on meanwhile
		}
		wait := 50*time.Millisecond + time.Duration(chance.Int64N(int64(450*time.Millisecond)))
		select {
		case <-time.After(wait):
		case p := <-f.died:
			f.died <- p
		}
		f.still()
		place := places[chance.IntN(len(places))]
		f.kill(place)
		f.start(place)
		if len(restarted) == 1 {
			require.NoError(t, <-restarted)
			h.Outages[0].To = time.Now()
		}
	}
	if restart != nil && h.Outages[0].To.IsZero() {
		require.NoError(t, <-restarted)
		h.Outages[0].To = time.Now()
	}
	stormed := time.Since(began)
	f.stop(producers)
	f.stop(consumers)
	f.still()

	began = time.Now()
	h.Events = drain(t, f, db)
	h.Events, h.Kills = append(h.Events, f.events()...), f.kills
	v := Judge(h)
	t.Logf("%d kills in %v, drained in %v: %s", len(h.Kills), stormed.Round(time.Second/10), time.Since(began).Round(time.Second/10), v)
	for _, fault := range v.Faults[:min(len(v.Faults), 20)] {
		t.Error(fault)
	}
	require.Empty(t, v.Faults[min(len(v.Faults), 20):], "and more")
	require.Equal(t, kills, len(h.Kills))
	// A storm that hits nobody in the middle of his work would prove nothing.
	require.Positive(t, v.Duplicates.Killed, "no kill took a lease with it")
	require.Positive(t, v.Stored)
}

// drain empties the queue with a consumer that nothing happens to, and checks
// that nothing is left in any state.
func drain(t *testing.T, f *fleet, db *sql.DB) []Event {
	q, err := reach(db)
	require.NoError(t, err)
	life := Life{"consumer-last", 1}
	log, err := CreateLog(f.part.Dir, life)
	require.NoError(t, err)
	defer log.Close()
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{LeaseFor: leaseFor, PollMax: 50 * time.Millisecond})
	require.NoError(t, err)
	ended := make(chan error, readers)
	for range readers {
		go func() { ended <- read(c, log) }() // joined below
	}
	left := func() chanq.Stats {
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		s.Limit, s.OldestReady = 0, 0
		return s
	}
	deadline := time.Now().Add(2 * patience)
	for tick := time.NewTicker(50 * time.Millisecond); left() != (chanq.Stats{}); <-tick.C {
		require.True(t, time.Now().Before(deadline), "the queue does not become empty: %+v", left())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, c.Shutdown(ctx))
	for range readers {
		require.NoError(t, <-ended)
	}
	require.Equal(t, chanq.Stats{}, left())
	events, err := ReadLog(f.part.Dir, life)
	require.NoError(t, err)
	return events
}
