package chanqjobs_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// sum is the result of a job.
type sum struct {
	Of    int
	Twice int
}

// doubling migrates the table of results, and returns a mux whose charges have results. Those of 13 are dead.
func doubling(w *testdb.World, q *chanq.Queue[chanqjobs.Job], o chanqjobs.Options) *chanqjobs.Mux {
	require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
	m := chanqjobs.NewMux()
	chanqjobs.Returns(m, q, charge, func(_ context.Context, l *chanq.Lease[int]) (sum, error) {
		if l.Body == 13 {
			return sum{}, chanq.DeadLetter(errors.New("it is 13"))
		}
		return sum{l.Body, 2 * l.Body}, nil
	}, o)
	chanqjobs.Handle(m, note, nothing[string], chanqjobs.Options{})
	return m
}

func results(w *testdb.World, q *chanq.Queue[chanqjobs.Job]) (n int) {
	w.Helper()
	require.NoError(w, w.DB.QueryRowContext(w.Soon(), q.Names().SQL(`SELECT count(*) FROM {chanq__results}`)).Scan(&n))
	return n
}

func TestAResultIsAwaited(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		_, err := chanqjobs.Await[sum](w.Soon(), q, chanq.NewID())
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "run chanqjobs.Migrate")
		m := doubling(w, q, chanqjobs.Options{})
		ids := testdb.Send(w, q, charge.New(7), charge.New(13))
		cancelled := charge.New(9)
		cancelled.Delay = time.Hour
		ids = append(ids, testdb.Send(w, q, cancelled)...)
		type outcome struct {
			sum
			err error
		}
		waiting := make([]chan outcome, len(ids))
		for i, id := range ids { // before it is handled
			waiting[i] = make(chan outcome, 1)
			go func() {
				got, err := chanqjobs.Await[sum](w.Soon(), q, id)
				waiting[i] <- outcome{got, err}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		handle(w, q, 2, m.Handle, chanq.ConsumerConfig{})
		_, err = q.Cancel(w.Soon(), ids[2])
		require.NoError(w, err)

		require.Equal(w, outcome{sum{7, 14}, nil}, testdb.Receive(w, waiting[0], "the result"))
		got, err := chanqjobs.Await[sum](w.Soon(), q, ids[0])
		require.NoError(w, err)
		require.Equal(w, sum{7, 14}, got, "and again")
		dead := (*chanqjobs.DeadError)(nil)
		err = testdb.Receive(w, waiting[1], "the death").err
		require.ErrorIs(w, err, chanqjobs.ErrDead)
		require.ErrorAs(w, err, &dead)
		require.Equal(w, chanqjobs.DeadError{ID: ids[1], Cause: chanq.CauseRejected, LastError: "it is 13"}, *dead)
		require.ErrorIs(w, testdb.Receive(w, waiting[2], "the cancellation").err, chanq.ErrCancelled)

		began := time.Now()
		_, err = chanqjobs.Await[sum](w.Soon(), q, chanq.NewID())
		require.ErrorIs(w, err, chanqjobs.ErrUnknown)
		if w.Engine.Bubble {
			require.Less(w, time.Since(began), 10*time.Millisecond, "immediately")
		}
		ctx, cancel := context.WithCancelCause(w.Soon())
		tired := errors.New("tired")
		time.AfterFunc(time.Second, func() { cancel(tired) })
		_, err = chanqjobs.Await[sum](ctx, q, testdb.Send(w, q, charge.New(1))[0])
		require.ErrorIs(w, err, tired)
	})
}

func TestAWaiterCostsOneStatementPerSecond(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		id := testdb.Send(w, q, charge.New(7))[0]
		reads := 0
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind != faultdb.Prepare && strings.Contains(statement(op), "chanq__results") {
				reads++
			}
			return faultdb.Fault{}
		})
		ctx, cancel := context.WithTimeout(w.Soon(), 100*time.Second)
		defer cancel()
		_, err := chanqjobs.Await[sum](ctx, q, id)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.InDelta(w, 107, reads, 2, "8 in the first 1.3 s, and then one per second")
	})
}

// A process loses its database for good, before or after an operation is applied: there is a result if and only if the job is acked.
func TestAResultExistsIfAndOnlyIfItsJobIsAcked(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(100 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		doubling(w, q, chanqjobs.Options{})
		acked, live := 0, 0
		for n := range 60 {
			w.Exec("DELETE FROM chanq_jobs")
			w.Exec("DELETE FROM chanq__results")
			faults, db := w.Connect()
			process := testdb.OpenOn[chanqjobs.Job](w, db, "jobs", chanq.Config{History: chanq.HistoryOff, Codec: chanqjobs.Codec(nil)})
			id := testdb.Send(w, q, charge.New(7))[0]
			from, lost := faults.Ops(), w.Failure(sqlbatch.Unknown)
			faults.Inject(func(op faultdb.Op) faultdb.Fault {
				switch at := op.N - from - n/2; {
				case at < 0:
					return faultdb.Fault{}
				case at == 0 && n%2 == 1:
					return faultdb.Cut(lost).Applied()
				}
				return faultdb.Cut(lost)
			})
			m := doubling(w, process, chanqjobs.Options{})
			c, err := process.Consume(context.Background(), chanq.ConsumerConfig{})
			require.NoError(w, err)
			ended := make(chan error, 1)
			go func() { ended <- c.Handle(1, m.Handle) }()
			time.Sleep(3 * time.Second)
			entry, left := testdb.Admin(q).Get(w.Soon(), id)
			stored := results(w, q)
			faults.Inject(nil)
			c.Stop()
			require.NoError(w, c.Shutdown(w.Soon()))
			testdb.Receive(w, ended, "Handle returns")
			if stored == 1 {
				acked++
				require.ErrorIs(w, left, chanq.ErrNotFound, "%d: a result of a job that is not acked", n)
			} else {
				live++
				require.NoError(w, left, "%d: an acked job without a result", n)
				require.NotEqual(w, chanqadmin.StateDead, entry.State)
			}
		}
		require.Greater(w, acked, 5)
		require.Greater(w, live, 5)
	})
}

func TestAResultIsKeptForATimeAndThenDeleted(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(100 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		m := doubling(w, q, chanqjobs.Options{Keep: time.Minute})
		many := func(n int) []chanq.ID {
			ms := make([]chanq.Message[chanqjobs.Job], n)
			for i := range ms {
				ms[i] = charge.New(7)
			}
			ids := testdb.Send(w, q, ms...)
			handle(w, q, n, m.Handle, chanq.ConsumerConfig{})
			return ids
		}
		first := many(150)
		time.Sleep(50 * time.Second)
		got, err := chanqjobs.Await[sum](w.Soon(), q, first[0])
		require.NoError(w, err)
		require.Equal(w, sum{7, 14}, got)
		time.Sleep(11 * time.Second)
		many(100)
		require.Equal(w, 100, results(w, q), "those of the first are deleted with the 201st")
		_, err = chanqjobs.Await[sum](w.Soon(), q, first[0])
		require.ErrorIs(w, err, chanqjobs.ErrUnknown)
	})
}

func TestAResultThatCannotBeStoredDeadLettersItsJob(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		m := chanqjobs.NewMux()
		chanqjobs.Returns(m, q, note, func(_ context.Context, l *chanq.Lease[string]) (any, error) {
			if l.Body == "function" {
				return func() {}, nil
			}
			return strings.Repeat("x", len(l.Body)), nil
		}, chanqjobs.Options{})
		largest := strings.Repeat("a", chanqjobs.MaxResult-2) // and the quotes
		ids := testdb.Send(w, q, note.New(largest), note.New(largest+"b"), note.New("function"))
		handle(w, q, 3, m.Handle, chanq.ConsumerConfig{})
		got, err := chanqjobs.Await[string](w.Soon(), q, ids[0])
		require.NoError(w, err)
		require.Len(w, got, chanqjobs.MaxResult-2)
		for i, says := range []string{"it has 65537 bytes, at most 65536 are stored", "unsupported type"} {
			_, err = chanqjobs.Await[string](w.Soon(), q, ids[1+i])
			require.ErrorIs(w, err, chanqjobs.ErrDead)
			require.ErrorContains(w, err, says)
		}
		require.Equal(w, 1, results(w, q))
		require.PanicsWithValue(w, `chanqjobs: kind "note": Options.Keep is -1s: must not be negative`, func() {
			chanqjobs.Returns(m, q, note, func(context.Context, *chanq.Lease[string]) (int, error) { return 0, nil }, chanqjobs.Options{Keep: -time.Second})
		})
	})
}

// A Mux also serves another queue, to which a kind moves.
func TestAJobOfAnotherQueueHasNoResultAndNoProgress(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		other := jobsOf(w, "other", chanq.Config{History: chanq.HistoryOff})
		doubling(w, q, chanqjobs.Options{})
		m := chanqjobs.NewMux()
		chanqjobs.Returns(m, q, charge, func(context.Context, *chanq.Lease[int]) (int, error) {
			w.Error("the function is called")
			return 0, nil
		}, chanqjobs.Options{MaxAttempts: 1})
		id := testdb.Send(w, other, charge.New(7))[0]
		handle(w, other, 1, func(ctx context.Context, l *chanq.Lease[chanqjobs.Job]) error {
			err := chanqjobs.ReporterOf(q, l).Report(ctx, 1, "")
			require.ErrorContains(w, err, "is of the queue other, not of jobs")
			return m.Handle(ctx, l)
		}, chanq.ConsumerConfig{})
		require.Zero(w, results(w, q))
		dead, err := testdb.Admin(other).Get(w.Soon(), id)
		require.NoError(w, err)
		require.Contains(w, dead.LastError, "is of the queue other, not of jobs")
	})
}

// Calls for one job store their results in the same moment, like those of a holder that has lost its lease and of the next one. The
// statements of SQLite and PostgreSQL never fail for this, so no transaction is repeated.
func TestOneOfManyCallsForAJobStoresItsResult(t *testing.T) {
	const jobs, calls = 100, 8
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		m := doubling(w, q, chanqjobs.Options{})
		ms := make([]chanq.Message[chanqjobs.Job], jobs)
		for i := range ms {
			ms[i] = charge.New(7)
		}
		testdb.Send(w, q, ms...)
		var stores atomic.Int64
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind != faultdb.Prepare && strings.Contains(op.Text, "INSERT INTO") && strings.Contains(op.Text, "chanq__results") {
				stores.Add(1)
			}
			return faultdb.Fault{}
		})
		for _, l := range testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{}), jobs) {
			ended := make(chan error, calls)
			for range calls {
				go func() { ended <- m.Handle(w.Soon(), l) }()
			}
			acked := 0
			for range calls {
				switch err := testdb.Receive(w, ended, "a call"); {
				case err == nil:
					acked++
				case !errors.Is(err, chanq.ErrLeaseLost):
					require.ErrorIs(w, err, chanq.ErrSettled)
				}
			}
			require.Equal(w, 1, acked)
		}
		w.Faults.Inject(nil)
		require.Equal(w, jobs, results(w, q))
		if q.Names().Dialect != chanq.DialectSQLServer {
			require.EqualValues(w, jobs*calls, stores.Load())
		}
	})
}

// The first transaction is rolled back, and nothing can be trimmed: the function is called once.
func TestAResultIsStoredAfterARollback(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		calls := 0
		m := chanqjobs.NewMux()
		chanqjobs.Returns(m, q, charge, func(context.Context, *chanq.Lease[int]) (int, error) {
			calls++
			return 14, nil
		}, chanqjobs.Options{})
		stores, trims := 0, 0
		id := testdb.Send(w, q, charge.New(7))[0]
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			switch text := statement(op); {
			case strings.Contains(text, "WHERE until <"):
				trims++
				return w.Broken(false)
			case strings.Contains(text, "INSERT INTO") && strings.Contains(text, "chanq__results"):
				if stores++; stores == 1 {
					return w.Broken(false)
				}
			}
			return faultdb.Fault{}
		})
		handle(w, q, 1, m.Handle, chanq.ConsumerConfig{})
		w.Faults.Inject(nil)
		got, err := chanqjobs.Await[int](w.Soon(), q, id)
		require.NoError(w, err)
		require.Equal(w, []int{14, 1}, []int{got, calls})
		require.Greater(w, stores, 1)
		require.Positive(w, trims)
	})
}
