package chanqjobs_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// storm are the settings of the queue of the processes. The archive says when each job has ended.
var storm = chanq.Config{History: chanq.HistoryOff, Spec: chanq.Spec{Retain: 24 * time.Hour}}

var stormConsumer = chanq.ConsumerConfig{LeaseFor: 3 * time.Second, Prefetch: 32, DrainFor: time.Second}

// stormJobs is how many jobs a batch is sent with. Each fifth adds two, and each seventeenth of the others is dead.
const stormJobs, stormAdded, stormDead = 220, 88, 10

// runBatches is a process that handles jobs and runs batches. It may end while it starts.
func runBatches(ctx context.Context, p testdb.Place, _ <-chan string) error {
	db, q, err := openIn(ctx, p, storm)
	if err == nil && ctx.Err() == nil {
		b := chanqjobs.NewBatches(q)
		b.Failed = func(err error) { fmt.Println(err) }
		err = chanqjobs.Run(ctx, b.Run, chanqjobs.Work(q, 8, stormMux(db, b).Handle, stormConsumer))
	}
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

func stormMux(db *sql.DB, b *chanqjobs.Batches) *chanqjobs.Mux {
	m := chanqjobs.NewMux()
	chanqjobs.Handle(m, piece, func(ctx context.Context, l *chanq.Lease[int]) error {
		batch, _ := chanqjobs.InBatch(&l.Delivery)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		switch n := l.Body; {
		case n > 0 && n%5 == 0:
			return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				if err := l.AckTx(ctx, tx); err != nil {
					return err
				}
				return b.AddTx(ctx, tx, batch, pieces(0, 0)...)
			})
		case n > 0 && n%17 == 0:
			return chanq.DeadLetter(errBad)
		}
		return nil
	}, chanqjobs.Options{})
	chanqjobs.Handle(m, report, func(ctx context.Context, l *chanq.Lease[string]) error {
		r, _ := chanqjobs.BatchOf(&l.Delivery)
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO reports (batch, sent, dead) VALUES ('%s', %d, %d)", r.Batch, r.Sent, r.Dead))
			if err == nil {
				err = l.AckTx(ctx, tx)
			}
			return err
		})
	}, chanqjobs.Options{})
	return m
}

func newStorm(world *testdb.World) *batchWorld {
	w := &batchWorld{World: world, jobs: jobsOf(world, "jobs", storm)}
	require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
	w.Define("CREATE TABLE reports (batch varchar(36) NOT NULL, sent integer NOT NULL, dead integer NOT NULL)")
	w.Batches = chanqjobs.NewBatches(w.jobs)
	return w
}

// stormNumbers are the jobs of a batch.
func stormNumbers() (numbers []int) {
	for n := range stormJobs {
		numbers = append(numbers, n+1)
	}
	return numbers
}

// In a bubble a process dies when its connections break: its leases expire, and what it has not committed is lost.
func TestDyingProcessesEndEachBatchOnceAndNoneEarly(t *testing.T) {
	testdb.OnEach(t, batchBubbles, func(world *testdb.World) {
		world.Within(100 * time.Hour)
		w := newStorm(world)
		random := rand.New(rand.NewPCG(3, 4))
		const places, kills, batches = 3, 12, 6
		began := time.Now()
		var kill [places]func()
		for place := range places {
			kill[place] = w.startProcess()
		}
		var all []chanq.ID
		for n := range kills {
			for len(all) < batches*(n+1)/kills {
				all = append(all, w.send(stormNumbers()...))
			}
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			place := random.IntN(places)
			kill[place]()
			kill[place] = w.startProcess()
		}
		w.Eventually("all batches are done", func() bool { return testdb.Empty(w, w.jobs) && len(w.reports()) == batches })
		require.Greater(w, time.Since(began), stormConsumer.LeaseFor, "leases of the dead have expired")
		time.Sleep(time.Minute)
		for _, kill := range kill {
			kill()
		}
		w.Logf("a batch ended up to %v after its last job", w.requireOnce(all))
	})
}

// startProcess starts a process with connections of its own, and returns a function that kills it.
func (w *batchWorld) startProcess() (kill func()) {
	w.Helper()
	faults, db := w.Connect()
	q, err := chanqjobs.Open(w.Soon(), db, "jobs", storm)
	require.NoError(w, err)
	b := chanqjobs.NewBatches(q)
	b.Failed = func(error) {} // it is dying
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = chanqjobs.Run(ctx, b.Run, chanqjobs.Work(q, 8, stormMux(db, b).Handle, stormConsumer))
	}()
	return func() {
		faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Cut(errBad) })
		cancel()
		<-ended
		_ = db.Close()
	}
}

func TestKilledProcessesEndEachBatchOnceAndNoneEarly(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.SQLite, testdb.Postgres}, func(world *testdb.World) {
		world.Within(10 * time.Minute)
		w := newStorm(world)
		const places = 4
		kills, batches := testdb.Of(20, 20, 40), testdb.Of(30, 30, 60)
		var all []chanq.ID
		c := crew.New("batches", places, rand.New(rand.NewPCG(1, 2)), func(p int, line string) error {
			w.Logf("process %d: %s", p, line)
			return nil
		})
		defer c.Abandon()
		require.NoError(w, c.Fill(w.Place()))
		c.Every(0, 50*time.Millisecond, func() error {
			for len(all) < batches*c.Killed()/kills {
				all = append(all, w.send(stormNumbers()...))
			}
			return nil
		})
		c.KillOften(700*time.Millisecond, kills, w.Place())
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
		defer cancel()
		left := func() (jobs int) {
			for _, batch := range all {
				s, err := w.Status(w.Soon(), batch)
				require.NoError(w, err)
				jobs += s.Left
			}
			return jobs
		}
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return len(all) == batches && left() == 0, nil }))
		c.Calm()
		empty := time.Now()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return len(w.reports()) >= batches, nil }))
		w.Logf("the last report came %v after the last job", time.Since(empty).Round(time.Millisecond))
		require.Less(w, time.Since(empty), 10*time.Second)
		require.NoError(w, c.End(ctx))
		require.True(w, testdb.Empty(w, w.jobs))

		slowest := w.requireOnce(all)
		w.Logf("%d processes, %d kills, %d batches; a batch ended up to %v after its last job", len(c.All), c.Killed(), batches, slowest)
	})
}

// requireOnce requires that the done job of each batch was handled once, and sent after all jobs had ended. It returns the
// longest time in between.
func (w *batchWorld) requireOnce(all []chanq.ID) (slowest time.Duration) {
	w.Helper()
	reports := w.reports()
	require.Len(w, reports, len(all))
	for _, batch := range all {
		require.Equal(w, []string{fmt.Sprint(stormJobs, stormDead)}, reports[batch.String()], "its report, once")
		s, err := w.Status(w.Soon(), batch)
		require.NoError(w, err)
		ended, last := w.ended(batch)
		require.Equal(w, stormJobs+stormAdded, ended)
		require.LessOrEqual(w, last, s.Ended.UnixMilli()+1, "done was sent early") // SQL Server rounds the time of a job
		slowest = max(slowest, time.Duration(s.Ended.UnixMilli()-last)*time.Millisecond)
	}
	return slowest
}

// reports returns what the done jobs have stored, by batch.
func (w *batchWorld) reports() map[string][]string {
	all := map[string][]string{}
	rows, err := w.DB.QueryContext(w.Soon(), "SELECT batch, sent, dead FROM reports")
	require.NoError(w, err)
	defer rows.Close()
	for rows.Next() {
		var batch string
		var sent, dead int
		require.NoError(w, rows.Scan(&batch, &sent, &dead))
		all[batch] = append(all[batch], fmt.Sprint(sent, dead))
	}
	require.NoError(w, rows.Err())
	return all
}

// ended returns how many jobs of a batch are archived or dead, and when the last one ended.
func (w *batchWorld) ended(batch chanq.ID) (n int, last int64) {
	end := batch
	copy(end[11:], "\xff\xff\xff\xff\xff")
	args := []any{batch[:], end[:]}
	if w.Engine.Name == testdb.Postgres.Name {
		args = []any{batch.String(), end.String()}
	}
	at := "ended_at"
	if w.Engine.Dialect.Name() == string(chanq.DialectSQLServer) {
		at = "DATEDIFF_BIG(millisecond, '19700101', ended_at)"
	}
	for _, table := range []string{"done", "dead"} {
		var rows int
		var latest sql.NullInt64
		text := chanq.Names{Dialect: w.Engine.ChanqDialect(), Queue: "jobs"}.SQL("SELECT count(*), max(" + at + ") FROM {" + table + "} WHERE id > ?1 AND id <= ?2")
		require.NoError(w, w.DB.QueryRowContext(w.Soon(), text, args...).Scan(&rows, &latest))
		n, last = n+rows, max(last, latest.Int64)
	}
	return n, last
}
