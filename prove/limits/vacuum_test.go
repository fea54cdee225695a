package limits_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// newWearing returns a queue on PostgreSQL whose live table only its consumers vacuum.
func newWearing(t *testing.T, cfg chanq.Config) (*world, *chanq.Queue[string]) {
	t.Parallel()
	w := newWorld(t, testdb.Postgres)
	q := w.Queue("work", cfg)
	w.Exec(`ALTER TABLE chanq_work SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)`)
	return w, q
}

var someBody = strings.Repeat("b", 200)

// wear sends and acks n messages, 2000 at a time.
func (w *world) wear(q *chanq.Queue[string], c *chanq.Consumer[string], n int) {
	w.Helper()
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	const step = 2000
	for range n / step {
		batch := make([]chanq.Message[string], step)
		for i := range batch {
			batch[i].Body = someBody
		}
		testdb.SendBy(w, p, batch...)
		for _, l := range testdb.Take(w, c, step) {
			require.NoError(w, l.Ack())
		}
	}
	require.NoError(w, c.Flush(w.Soon()))
	require.NoError(w, p.Close(w.Soon()))
}

// kill leaves n dead rows in a live table at once, as that many messages would.
func (w *world) kill(queue string, n int) {
	w.Helper()
	tx, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	defer tx.Rollback()
	for _, text := range []string{
		fmt.Sprintf(`INSERT INTO chanq_%s (due_at, body) SELECT 1, '' FROM generate_series(1, %d)`, queue, n),
		`DELETE FROM chanq_` + queue + ` WHERE due_at = 1`,
	} {
		_, err := tx.Exec(text)
		require.NoError(w, err)
	}
	require.NoError(w, tx.Commit())
}

// wearUntil calls wear until is returns true. It gives up after mostWear messages, on a fast machine only after a
// minute, because PostgreSQL updates its figures once a second.
func (w *world) wearUntil(what string, q *chanq.Queue[string], c *chanq.Consumer[string], step int, is func() bool) {
	w.Helper()
	began := time.Now()
	for worn := 0; !is(); worn += step {
		require.False(w, worn >= mostWear && time.Since(began) > time.Minute, "this did not happen: "+what)
		w.wear(q, c, step)
	}
}

const mostWear = 200_000

// ask returns a number from the database.
func (w *world) ask(query string) (n int64) {
	w.Helper()
	require.NoError(w, w.DB.QueryRowContext(w.Soon(), query).Scan(&n))
	return n
}

func (w *world) vacuums() int64 {
	return w.ask(`SELECT pg_stat_get_vacuum_count('chanq_work'::regclass)`)
}

const oftenEnough = 100 * time.Millisecond

func TestTheLiveTableStaysSmallWithoutAutovacuum(t *testing.T) {
	w, q := newWearing(t, chanq.Config{VacuumEvery: oftenEnough})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	size := func() int64 { return w.ask(`SELECT pg_total_relation_size('chanq_work')`) }
	const few, more = 60_000, 40_000
	w.wear(q, c, few)
	for enough := w.vacuums() + 8; ; { // bounded by vacuums, because a busy machine does much work between two vacuums
		require.Less(t, w.vacuums(), enough, "it grows by at least the bodies of the new messages")
		first := size()
		w.wear(q, c, more)
		grown := size() - first
		w.Logf("%d kB more, %d vacuums so far", grown>>10, w.vacuums())
		if grown < int64(more*len(someBody)) {
			return
		}
	}
}

// The server takes long for a vacuum of a large table.
func TestStopDoesNotWaitForAVacuum(t *testing.T) {
	w := newWorld(t, testdb.Postgres)
	cfg := chanq.Config{VacuumEvery: oftenEnough}
	w.Queue("work", cfg)
	w.Exec(`DO $$ BEGIN
EXECUTE format('ALTER DATABASE %I SET vacuum_cost_delay = 100', current_database());
EXECUTE format('ALTER DATABASE %I SET vacuum_cost_limit = 1', current_database());
END $$`)
	w.Exec(`ALTER TABLE chanq_work SET (autovacuum_enabled = off)`)
	_, slow := w.Connect()
	q := testdb.OpenOn[string](w, slow, "work", cfg)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	vacuuming := func() bool {
		return w.ask(`SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = 'chanq_work'::regclass`) > 0
	}
	w.wearUntil("a vacuum is running", q, c, 10_000, vacuuming)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second) // the vacuum takes minutes
	defer cancel()
	require.NoError(t, c.Shutdown(ctx), "after %v", time.Since(began))
	w.Eventually("the server has ended the vacuum", func() bool { return !vacuuming() })
	require.Zero(t, w.vacuums())
}

// A vacuum uses one of the application's connections for its whole duration. While one queue of a
// *sql.DB is vacuumed, another queue that needs a vacuum waits.
func TestOneQueueOfAProgramIsVacuumedAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testdb.Postgres)
	cfg := chanq.Config{VacuumEvery: 10 * time.Millisecond}
	one, other := w.Queue("work", cfg), w.Queue("other", cfg)
	gate := make(chan struct{})
	var vacuums, looks atomic.Int64
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case testdb.Runs(op, w.Statements("other").Bloat()):
			looks.Add(1)
		case testdb.Runs(op, w.Statements("work").Vacuum()), testdb.Runs(op, w.Statements("other").Vacuum()):
			vacuums.Add(1)
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	for _, name := range []string{"work", "other"} {
		w.Exec(`ALTER TABLE chanq_` + name + ` SET (autovacuum_enabled = off)`)
	}
	c := testdb.Start(w, one, chanq.ConsumerConfig{})
	w.kill("work", 60_000)
	w.wearUntil("a vacuum", one, c, 2000, func() bool { return vacuums.Load() > 0 })
	c = testdb.Start(w, other, chanq.ConsumerConfig{})
	w.kill("other", 60_000)
	w.Eventually("the other queue needs a vacuum", func() bool {
		return w.ask(`SELECT pg_stat_get_dead_tuples('chanq_other'::regclass)`) >= 60_000
	})
	was := looks.Load()
	w.wearUntil("three looks at it", other, c, 2000, func() bool { return vacuums.Load() > 1 || looks.Load() >= was+3 })
	held := vacuums.Load()
	close(gate)
	require.Equal(t, int64(1), held)
	w.wearUntil("its turn", other, c, 2000, func() bool { return vacuums.Load() > 1 })
}
