package chanqcron_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/prove/testdb"
)

// engines are the databases of most tests. In bubbles, hours pass in a moment.
var (
	bubbles = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions}
	engines = append(slices.Clone(bubbles), testdb.SQLite, testdb.Postgres)
)

// world is a database with a queue of jobs and the table of schedules.
type world struct {
	*testdb.World
	jobs *chanq.Queue[string]
}

type schedule = chanqcron.Schedule[string]

func onEach(t *testing.T, engines []testdb.Engine, test func(*world)) {
	testdb.OnEach(t, engines, func(w *testdb.World) { test(newWorld(w)) })
}

func newWorld(w *testdb.World) *world {
	if w.Engine.Bubble {
		w.Within(100 * time.Hour)
	}
	jobs := w.Queue("jobs", chanq.Config{History: chanq.HistoryOff})
	require.NoError(w, chanqcron.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
	return &world{w, jobs}
}

// cron returns the Cron of another process. Its errors fail the test, unless it replaces Failed.
func (w *world) cron() *chanqcron.Cron[string] {
	w.Helper()
	_, db := w.Connect()
	return w.cronOn(db)
}

func (w *world) cronOn(db *sql.DB) *chanqcron.Cron[string] {
	c := chanqcron.New(db, testdb.OpenOn[string](w, db, "jobs", chanq.Config{History: chanq.HistoryOff}))
	c.Failed = func(err error) { w.Errorf("failed: %v", err) }
	return c
}

// run runs a Cron until the returned function is called, or the test ends.
func (w *world) run(c *chanqcron.Cron[string]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w, testdb.Receive(w, done, "the end of Run"))
	})
	w.Cleanup(stop)
	return stop
}

// ensure stores schedules by another process, which does not run them.
func (w *world) ensure(s ...schedule) {
	w.Helper()
	require.NoError(w, w.cron().Ensure(w.Soon(), s...))
}

// take receives all messages of the queue, acks them, and returns them by the names of their schedules.
func (w *world) take() map[string][]*chanq.Lease[string] {
	w.Helper()
	all := map[string][]*chanq.Lease[string]{}
	c, err := w.jobs.Consume(w.Soon(), chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(w, err)
	for l := range c.C() {
		all[l.Headers["chanq-schedule"]] = append(all[l.Headers["chanq-schedule"]], l)
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	return all
}

// ticks returns the ticks of messages, as seconds after the first.
func (w *world) ticks(leases []*chanq.Lease[string]) (seconds []int) {
	w.Helper()
	var all []time.Time
	for _, l := range leases {
		at, is := chanqcron.Tick(&l.Delivery)
		require.True(w, is)
		all = append(all, at)
	}
	slices.SortFunc(all, time.Time.Compare)
	for _, at := range all {
		seconds = append(seconds, int(at.Sub(all[0])/time.Second))
	}
	return seconds
}

// entry returns a stored schedule.
func (w *world) entry(name string) chanqcron.Entry {
	w.Helper()
	list, err := w.cron().List(w.Soon())
	require.NoError(w, err)
	for _, e := range list {
		if e.Name == name {
			return e
		}
	}
	require.Fail(w, "there is no schedule", name)
	return chanqcron.Entry{}
}
