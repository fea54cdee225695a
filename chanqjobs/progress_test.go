package chanqjobs_test

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// leaseOf sends a job and leases it.
func leaseOf(w *testdb.World, q *chanq.Queue[chanqjobs.Job]) (*chanq.Consumer[chanqjobs.Job], *chanq.Lease[chanqjobs.Job]) {
	w.Helper()
	testdb.Send(w, q, charge.New(7))
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	return c, testdb.Receive(w, c.C(), "the job")
}

func TestTheProgressOfAJobIsStoredOncePerSecond(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		_, l := leaseOf(w, q)
		read := func() (chanqjobs.Progress, error) {
			return chanqjobs.ReadProgress(w.Soon(), w.DB, "jobs", l.ID, chanq.Config{})
		}
		r := chanqjobs.ReporterOf(q, l)
		_, err := read()
		require.ErrorIs(w, err, chanqjobs.ErrNoProgress, "without the table")
		err = r.Report(w.Soon(), 0.1, "")
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "run chanqjobs.Migrate")
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		_, err = read()
		require.ErrorIs(w, err, chanqjobs.ErrNoProgress)
		if w.Engine.Bubble { // within a second of an error
			require.NoError(w, r.Report(w.Soon(), 0.2, "it sends nothing"))
			_, err = read()
			require.ErrorIs(w, err, chanqjobs.ErrNoProgress)
		}

		time.Sleep(1001 * time.Millisecond)
		require.NoError(w, r.Report(w.Soon(), 0.25, "pägé 1 of 4"))
		p, err := read()
		require.NoError(w, err)
		require.InDelta(w, time.Now().UnixMilli(), p.At.UnixMilli(), float64(testdb.Patience.Milliseconds()))
		require.Equal(w, chanqjobs.Progress{At: p.At, Done: 0.25, Note: "pägé 1 of 4"}, p)
		for done, want := range map[float64]float64{math.NaN(): 0, -1: 0, 1.5: 1, 1. / 3: 0.333333} {
			time.Sleep(1001 * time.Millisecond)
			require.NoError(w, r.Report(w.Soon(), done, strings.Repeat("😀", 300)))
			p, err = read()
			require.NoError(w, err)
			require.Equal(w, want, p.Done)
			require.Equal(w, strings.Repeat("😀", 200), p.Note)
		}
		end := chanqjobs.ReporterOf(q, l)
		for i, said := range []string{"begin", "skipped", "end", "skipped"} {
			require.NoError(w, end.Report(w.Soon(), float64(i/2), said))
		}
		p, err = read()
		require.NoError(w, err)
		require.Equal(w, "end", p.Note, "the first done of 1 is stored, the next one not")
		if !w.Engine.Bubble {
			return
		}
		time.Sleep(time.Second)
		var statements atomic.Int64
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if strings.Contains(op.Text, "chanq__progress") && op.Kind != faultdb.Prepare {
				statements.Add(1)
			}
			return faultdb.Fault{}
		})
		for range 100 {
			require.NoError(w, r.Report(w.Soon(), 0.5, "often"))
			time.Sleep(100 * time.Millisecond)
		}
		require.EqualValues(w, 10, statements.Load(), "of 10 seconds")
	})
}

func TestAFormerHolderCannotReport(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		c, former := leaseOf(w, q)
		require.NoError(w, former.Release())
		require.NoError(w, former.Wait(w.Soon()))
		l := testdb.Receive(w, c.C(), "the job again")
		require.ErrorIs(w, chanqjobs.ReporterOf(q, former).Report(w.Soon(), 0.9, "former"), chanq.ErrLeaseLost, "before the first report")
		r := chanqjobs.ReporterOf(q, l)
		require.NoError(w, r.Report(w.Soon(), 0.1, "mine"))
		require.ErrorIs(w, chanqjobs.ReporterOf(q, former).Report(w.Soon(), 0.9, "former"), chanq.ErrLeaseLost)
		p, err := chanqjobs.ReadProgress(w.Soon(), w.DB, "jobs", l.ID, chanq.Config{})
		require.NoError(w, err)
		require.Equal(w, "mine", p.Note)
		require.NoError(w, l.Ack())
		require.NoError(w, l.Wait(w.Soon()))
		time.Sleep(1001 * time.Millisecond)
		require.ErrorIs(w, r.Report(w.Soon(), 1, "late"), chanq.ErrLeaseLost, "after the ack")
	})
}

// Goroutines of a handler have a Reporter each, and their first reports come in the same moment.
func TestSeveralReportersOfAJobReport(t *testing.T) {
	const jobs, reporters = 100, 8
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		ms := make([]chanq.Message[chanqjobs.Job], jobs)
		for i := range ms {
			ms[i] = charge.New(7)
		}
		testdb.Send(w, q, ms...)
		for _, l := range testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{}), jobs) {
			reported := make(chan error, reporters)
			for range reporters {
				go func() { reported <- chanqjobs.ReporterOf(q, l).Report(w.Soon(), 0.5, "half") }()
			}
			for range reporters {
				require.NoError(w, testdb.Receive(w, reported, "a report"))
			}
		}
	})
}

// In an ordered queue the fence of a delivery is stored later than the delivery.
func TestAJobOfAnOrderedQueueReports(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff, Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		keyed := charge.New(7)
		keyed.Key = "k"
		testdb.Send(w, q, keyed)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		former := testdb.Receive(w, c.C(), "the job")
		r := chanqjobs.ReporterOf(q, former)
		require.NoError(w, r.Report(w.Soon(), 0.1, "former"))
		require.NoError(w, former.Release())
		require.NoError(w, former.Wait(w.Soon()))
		l := testdb.Receive(w, c.C(), "the job again")
		require.NoError(w, chanqjobs.ReporterOf(q, l).Report(w.Soon(), 0.2, "mine"))
		time.Sleep(1001 * time.Millisecond)
		require.ErrorIs(w, r.Report(w.Soon(), 0.9, "former"), chanq.ErrLeaseLost)
		require.NoError(w, l.Ack())
	})
}

func TestProgressIsDeletedAWeekAfterTheLastReport(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(1000 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		report := func() chanq.ID {
			c, l := leaseOf(w, q)
			require.NoError(w, chanqjobs.ReporterOf(q, l).Report(w.Soon(), 0.5, ""))
			require.NoError(w, l.Ack())
			c.Stop()
			require.NoError(w, c.Shutdown(w.Soon()))
			return l.ID
		}
		first := report()
		time.Sleep(6 * 24 * time.Hour)
		report()
		_, err := chanqjobs.ReadProgress(w.Soon(), w.DB, "jobs", first, chanq.Config{})
		require.NoError(w, err)
		time.Sleep(25 * time.Hour)
		report()
		_, err = chanqjobs.ReadProgress(w.Soon(), w.DB, "jobs", first, chanq.Config{})
		require.ErrorIs(w, err, chanqjobs.ErrNoProgress)
	})
}

// A process that is stopped has saved where it was. The next one goes on from there, and the former one saves no more.
func TestAJobContinuesFromItsSavedState(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		c, former := leaseOf(w, q)
		r := chanqjobs.ReporterOf(q, former)
		_, err := r.Saved(w.Soon())
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorIs(w, r.Save(w.Soon(), nil), chanq.ErrNoSchema)
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		saved := func(l *chanq.Lease[chanqjobs.Job]) []byte {
			w.Helper()
			state, err := chanqjobs.ReporterOf(q, l).Saved(w.Soon())
			require.NoError(w, err)
			return state
		}
		require.Nil(w, saved(former))
		require.NoError(w, r.Report(w.Soon(), 0.25, "page 1"))
		require.Nil(w, saved(former), "a report is no state")
		all := make([]byte, chanqjobs.MaxState)
		for i := range all {
			all[i] = byte(i)
		}
		for _, state := range [][]byte{[]byte("1"), all, []byte("2")} {
			require.NoError(w, r.Save(w.Soon(), state), "as often as it likes")
			require.Equal(w, state, saved(former))
		}
		err = r.Save(w.Soon(), append(all, 1))
		require.ErrorIs(w, err, chanq.ErrTooLarge)
		require.ErrorContains(w, err, "the state is 65537 bytes: must be at most 65536")
		p, err := chanqjobs.ReadProgress(w.Soon(), w.DB, "jobs", former.ID, chanq.Config{})
		require.NoError(w, err)
		require.Equal(w, chanqjobs.Progress{At: p.At, Done: 0.25, Note: "page 1"}, p, "the last report")
		require.NoError(w, former.Release())
		require.NoError(w, former.Wait(w.Soon()))

		l := testdb.Receive(w, c.C(), "the job again")
		require.Equal(w, []byte("2"), saved(l))
		require.ErrorIs(w, r.Save(w.Soon(), []byte("former")), chanq.ErrLeaseLost)
		mine := chanqjobs.ReporterOf(q, l)
		require.NoError(w, mine.Report(w.Soon(), 0.5, "page 2"))
		require.Equal(w, []byte("2"), saved(l), "a report leaves the state")
		require.NoError(w, mine.Save(w.Soon(), []byte("3")))
		require.ErrorIs(w, r.Save(w.Soon(), []byte("former")), chanq.ErrLeaseLost)
		require.Equal(w, []byte("3"), saved(l))
		require.NoError(w, mine.Save(w.Soon(), nil))
		require.Nil(w, saved(l), "nothing can be saved as well")
		require.NoError(w, l.Ack())
		require.NoError(w, l.Wait(w.Soon()))
		require.ErrorIs(w, mine.Save(w.Soon(), []byte("late")), chanq.ErrLeaseLost)
	})
}

// A program that only saves deletes old rows as well.
func TestASavedStateIsDeletedAWeekAfterTheLastSave(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(1000 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		c, l := leaseOf(w, q)
		r := chanqjobs.ReporterOf(q, l)
		require.NoError(w, r.Save(w.Soon(), []byte("1")))
		require.NoError(w, l.Ack())
		c.Stop()
		require.NoError(w, c.Shutdown(w.Soon()))
		for _, d := range []time.Duration{6 * 24 * time.Hour, 25 * time.Hour} {
			state, err := r.Saved(w.Soon())
			require.NoError(w, err)
			require.Equal(w, []byte("1"), state)
			time.Sleep(d)
		}
		state, err := r.Saved(w.Soon())
		require.NoError(w, err)
		require.Nil(w, state)
	})
}
