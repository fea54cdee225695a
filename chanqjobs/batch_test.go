package chanqjobs_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// batchEngines are the engines of the tests of batches. In batchBubbles days pass immediately.
var (
	batchBubbles = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions}
	batchEngines = append(slices.Clone(batchBubbles), testdb.SQLite, testdb.Postgres)
)

var (
	piece  = chanqjobs.Define[int]("piece")
	report = chanqjobs.Define[string]("report")
)

// batchWorld is a database with a queue of jobs and the table of batches.
type batchWorld struct {
	*testdb.World
	jobs *chanq.Queue[chanqjobs.Job]
	*chanqjobs.Batches
}

func onEachBatch(t *testing.T, engines []testdb.Engine, test func(*batchWorld)) {
	testdb.OnEach(t, engines, func(w *testdb.World) { test(newBatchWorld(w)) })
}

func newBatchWorld(w *testdb.World) *batchWorld {
	if w.Engine.Bubble {
		w.Within(1000 * time.Hour)
	}
	jobs := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff, Spec: chanq.Spec{MaxAttempts: 2}})
	require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
	return &batchWorld{w, jobs, chanqjobs.NewBatches(jobs)}
}

// process returns the batches of another process, which has its own connections. Errors of Run fail the test.
func (w *batchWorld) process() (*faultdb.Connector, *chanqjobs.Batches) {
	w.Helper()
	return w.processOn(w.Connect())
}

func (w *batchWorld) processOn(faults *faultdb.Connector, db *sql.DB) (*faultdb.Connector, *chanqjobs.Batches) {
	w.Helper()
	q, err := chanqjobs.Open(w.Soon(), db, "jobs", chanq.Config{History: chanq.HistoryOff})
	require.NoError(w, err)
	b := chanqjobs.NewBatches(q)
	b.Failed = func(err error) { w.Errorf("failed: %v", err) }
	return faults, b
}

// repeatableReads is Connect to PostgreSQL, where the default isolation level is REPEATABLE READ.
func (w *batchWorld) repeatableReads() (*faultdb.Connector, *sql.DB) {
	c, err := w.Engine.ConnectWith(w.Address, func(cfg *pgx.ConnConfig) {
		cfg.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	})
	require.NoError(w, err)
	faults := faultdb.New(c)
	db := sql.OpenDB(faults)
	w.Cleanup(func() { require.NoError(w, db.Close()) })
	return faults, db
}

// run runs batches until the returned function is called, or the test ends.
func (w *batchWorld) run(b *chanqjobs.Batches) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w, testdb.Receive(w, done, "the end of Run"))
	})
	w.Cleanup(stop)
	return stop
}

// inTx runs fn in a transaction of the world's database.
func (w *batchWorld) inTx(fn func(ctx context.Context, tx *sql.Tx) error) error {
	return chanq.InTx(w.Soon(), w.DB, fn)
}

// send sends a batch of pieces, and a report at its end.
func (w *batchWorld) send(numbers ...int) chanq.ID {
	w.Helper()
	batch := chanqjobs.NewBatch()
	require.NoError(w, w.inTx(func(ctx context.Context, tx *sql.Tx) error {
		return w.SendTx(ctx, tx, batch, report.New("all"), pieces(numbers...)...)
	}))
	return batch
}

func pieces(numbers ...int) (ms []chanq.Message[chanqjobs.Job]) {
	for _, n := range numbers {
		ms = append(ms, piece.New(n))
	}
	return ms
}

// done receives and acks the done jobs that are in the queue now, and returns their results.
func (w *batchWorld) done() (all []chanqjobs.BatchResult) {
	w.Helper()
	c, err := w.jobs.Consume(w.Soon(), chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(w, err)
	for l := range c.C() {
		r, is := chanqjobs.BatchOf(&l.Delivery)
		require.True(w, is, l.Type)
		require.Equal(w, report.Name(), l.Type)
		require.Equal(w, l.ID, r.Batch)
		all = append(all, r)
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	return all
}

// status returns the status of a batch without its times, and whether it is done.
func (w *batchWorld) status(batch chanq.ID) (s chanqjobs.BatchStatus, done bool) {
	w.Helper()
	s, err := w.Status(w.Soon(), batch)
	require.NoError(w, err)
	done = !s.Ended.IsZero()
	s.Made, s.Ended = time.Time{}, time.Time{}
	return s, done
}

func TestADoneJobIsSentOnceWhenAllJobsHaveEnded(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		batch := w.send(1, 2, 3, 4, 5)
		testdb.Send(w, w.jobs, piece.New(9)) // of no batch
		for range 3 {
			_, b := w.process()
			w.run(b)
		}
		s, done := w.status(batch)
		require.False(w, done)
		require.Equal(w, chanqjobs.BatchStatus{Batch: chanqjobs.Batch{ID: batch, Queue: "jobs", Done: "report", Sent: 5}, Left: 5}, s)

		var last *testdb.Held[chanqjobs.Job]
		for _, l := range testdb.Lease(w, w.jobs, 6, time.Hour) {
			of, is := chanqjobs.InBatch(&l.Delivery)
			switch l.Body.Bytes()[0] {
			case '1':
				require.NoError(w, l.Nack(chanq.DeadLetter(errBad)))
			case '2':
				ids, err := w.jobs.Cancel(w.Soon(), l.ID)
				require.NoError(w, err)
				require.Len(w, ids, 1)
			case '3':
				last = l
				continue
			case '9':
				require.False(w, is)
				require.NoError(w, l.Ack())
				continue
			default:
				require.NoError(w, l.Ack())
			}
			require.True(w, is)
			require.Equal(w, batch, of)
		}
		require.NotNil(w, last)
		s, _ = w.status(batch)
		require.Equal(w, []int{1, 1}, []int{s.Left, s.Dead})
		time.Sleep(3 * time.Second)
		require.Equal(w, 1, testdb.Counted(w, w.jobs).Leased)
		require.Zero(w, testdb.Counted(w, w.jobs).Ready, "a leased job is not done")

		ended := time.Now()
		require.NoError(w, last.Ack())
		w.Eventually("done is sent", func() bool { return testdb.Counted(w, w.jobs).Ready == 1 })
		if w.Engine.Bubble {
			require.LessOrEqual(w, time.Since(ended), 1100*time.Millisecond)
		}
		require.Equal(w, []chanqjobs.BatchResult{{Batch: batch, Sent: 5, Dead: 1}}, w.done())

		redriven, err := testdb.Redrive(w.Soon(), w.jobs, 10)
		require.NoError(w, err)
		require.Equal(w, 1, redriven)
		again := testdb.Lease(w, w.jobs, 1, time.Hour)[0]
		err = w.inTx(func(ctx context.Context, tx *sql.Tx) error { return w.AddTx(ctx, tx, batch, pieces(6)...) })
		require.ErrorIs(w, err, chanqjobs.ErrBatchDone)
		require.NoError(w, again.Ack())
		time.Sleep(3 * time.Second)
		require.True(w, testdb.Empty(w, w.jobs), "a redrive does not send done again")
		_, done = w.status(batch)
		require.True(w, done)
	})
}

// A job adds jobs and is acked in one transaction, over some generations.
func TestABatchIsOpenUntilTheJobsThatJobsAddHaveEnded(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		batch := w.send(3, 2)
		_, b := w.process()
		w.run(b)
		m := chanqjobs.NewMux()
		handled := make(chan int, 100)
		chanqjobs.Handle(m, piece, func(ctx context.Context, l *chanq.Lease[int]) error {
			time.Sleep(700 * time.Millisecond)
			batch, _ := chanqjobs.InBatch(&l.Delivery)
			return chanq.InTx(ctx, w.DB, func(ctx context.Context, tx *sql.Tx) error {
				if l.Body > 0 {
					if err := w.AddTx(ctx, tx, batch, pieces(l.Body-1, l.Body-1)...); err != nil {
						return err
					}
				}
				handled <- l.Body
				return l.AckTx(ctx, tx)
			})
		}, chanqjobs.Options{})
		results := make(chan chanqjobs.BatchResult, 10)
		before := -1
		chanqjobs.Handle(m, report, func(_ context.Context, l *chanq.Lease[string]) error {
			before = len(handled)
			r, _ := chanqjobs.BatchOf(&l.Delivery)
			results <- r
			return nil
		}, chanqjobs.Options{})
		handle(w.World, w.jobs, 15+7+1, m.Handle, chanq.ConsumerConfig{})
		require.Equal(w, chanqjobs.BatchResult{Batch: batch, Sent: 2}, <-results)
		require.Equal(w, 15+7, before)
		require.Empty(w, results)
	})
}

func TestAnEmptyBatchIsDoneImmediately(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		batch := w.send()
		require.Equal(w, []chanqjobs.BatchResult{{Batch: batch}}, w.done())
		_, done := w.status(batch)
		require.True(w, done)
		_, b := w.process()
		w.run(b)
		time.Sleep(3 * time.Second)
		require.True(w, testdb.Empty(w, w.jobs))
	})
}

// Other processes look while a process is between its look and its transaction.
func TestAnAddFromOutsideIsInTheBatchOrRefused(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		batch := w.send(1)
		require.NoError(w, testdb.Lease(w, w.jobs, 1, time.Hour)[0].Ack())
		connect := w.Connect
		if w.Engine.ConnectWith != nil { // the default of a database can be another one
			connect = w.repeatableReads
		}
		faults, b := w.processOn(connect())
		gate := make(chan struct{})
		strike := testdb.NewStrike(faultdb.Hold(gate), func(op faultdb.Op) bool { return op.Kind == faultdb.Begin })
		faults.Inject(strike.Choose)
		w.run(b)
		w.Eventually("it has looked", func() bool { return len(strike.Struck()) > 0 })

		// A transaction begins to add when the batch is empty, and commits while the process wants to mark it done.
		adding, other := w.Connect()
		_, adder := w.processOn(adding, other)
		commit := make(chan struct{})
		inserts := testdb.NewStrike(faultdb.Hold(commit), func(op faultdb.Op) bool {
			return strings.Contains(statement(op), "INSERT INTO") && strings.Contains(statement(op), "chanq_jobs")
		})
		if w.Engine.Dialect.Traits().OneWriter {
			close(commit) // the transaction excludes the process
		}
		adding.Inject(inserts.Choose)
		committed := make(chan error, 1)
		go func() {
			committed <- chanq.InTx(w.Soon(), other, func(ctx context.Context, tx *sql.Tx) error {
				return adder.AddTx(ctx, tx, batch, pieces(2)...)
			})
		}()
		w.Eventually("it is about to insert", func() bool { return len(inserts.Struck()) > 0 })
		if !w.Engine.Dialect.Traits().OneWriter {
			close(gate)
			time.Sleep(3 * time.Second)
			require.Zero(w, testdb.Counted(w, w.jobs).Ready)
			close(commit)
		}
		require.NoError(w, testdb.Receive(w, committed, "the commit"))
		if w.Engine.Dialect.Traits().OneWriter {
			close(gate)
		}
		time.Sleep(3 * time.Second)
		left := testdb.Lease(w, w.jobs, 1, time.Hour)[0]
		require.Equal(w, piece.Name(), left.Type, "done is not sent early")
		testdb.RequireNone(w, w.jobs)
		require.NoError(w, left.Ack())
		w.Eventually("done is sent", func() bool { return testdb.Counted(w, w.jobs).Ready == 1 })
		require.Len(w, w.done(), 1)
	})
}

// A handler has acked its job in a transaction that is open for a long time. Batches wait for none of it.
func TestAnOpenAckHoldsItsBatchAndNoOther(t *testing.T) {
	onEachBatch(t, []testdb.Engine{testdb.Emulator, testdb.EmulatorVersions, testdb.Postgres}, func(w *batchWorld) {
		held := w.send(1)
		time.Sleep(2 * time.Millisecond) // the locked job must not be the next one after the range of the other batch
		other := w.send(2)
		leases := testdb.Lease(w, w.jobs, 2, time.Hour)
		_, b := w.process()
		w.run(b)
		failed, cancel := context.WithCancel(context.Background())
		defer cancel()
		for _, rolledBack := range []bool{true, false} {
			end := make(chan error)
			acked := make(chan error, 1)
			ended := make(chan error, 1)
			go func() {
				ended <- w.inTx(func(ctx context.Context, tx *sql.Tx) error {
					acked <- leases[0].AckTx(ctx, tx)
					select {
					case err := <-end:
						return err
					case <-failed.Done():
						return failed.Err()
					}
				})
			}()
			require.NoError(w, testdb.Receive(w, acked, "the ack"))
			if rolledBack {
				require.NoError(w, leases[1].Ack())
				w.Eventually("the other one is done", func() bool { _, done := w.status(other); return done })
			}
			time.Sleep(5 * time.Second)
			_, done := w.status(held)
			require.False(w, done)
			if rolledBack {
				end <- errBad
				require.ErrorIs(w, testdb.Receive(w, ended, "the end"), errBad)
				time.Sleep(3 * time.Second)
				_, done := w.status(held)
				require.False(w, done)
				continue
			}
			end <- nil
			require.NoError(w, testdb.Receive(w, ended, "the end"))
		}
		w.Eventually("it is done", func() bool { _, done := w.status(held); return done })
	})
}

// statement returns the text of a statement.
func statement(op faultdb.Op) string {
	if len(op.Args) > 0 && op.Text == "sp_executesql" {
		text, _ := op.Args[0].Value.(string)
		return text
	}
	return op.Text
}

// batchCounter counts the statements of a process on the table of batches, by their first words.
type batchCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func countBatches(faults *faultdb.Connector) *batchCounter {
	c := &batchCounter{counts: map[string]int{}}
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Exec || op.Kind == faultdb.Query {
			text := statement(op)
			c.mu.Lock()
			defer c.mu.Unlock()
			if strings.Contains(text, "chanq__batches") {
				c.counts[strings.Fields(text)[0]]++
			}
			c.counts["all"]++
		}
		return faultdb.Fault{}
	})
	return c
}

func (c *batchCounter) take(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[what]
	c.counts = map[string]int{}
	return n
}

func TestALookIsOneReadPerSecondWhileABatchIsOpen(t *testing.T) {
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		faults, b := w.process()
		w.run(b)
		time.Sleep(2 * time.Minute)
		reads := countBatches(faults)
		time.Sleep(10 * time.Minute)
		require.InDelta(w, 60, reads.take("SELECT"), 2, "no batch is open")

		for range 50 {
			w.send(1, 2)
		}
		time.Sleep(20 * time.Second)
		reads.take("")
		time.Sleep(10 * time.Minute)
		require.InDelta(w, 600, reads.take("SELECT"), 10)

		own := countBatches(w.Faults)
		for _, l := range testdb.Lease(w, w.jobs, 100, time.Hour) {
			require.NoError(w, l.Ack())
		}
		testdb.Send(w, w.jobs, piece.New(1))
		require.Zero(w, own.take("SELECT"), "the jobs of a batch do nothing for it")
		w.Eventually("all are done", func() bool { return testdb.Counted(w, w.jobs).Ready == 51 })
	})
}

// The process that has sent a batch looks for it each second, and finds a batch whose jobs have ended quickly.
func TestTheSenderOfABatchLooksEachSecond(t *testing.T) {
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		w.run(w.Batches)
		time.Sleep(2*time.Minute + 3*time.Second)
		w.send(1)
		require.NoError(w, testdb.Lease(w, w.jobs, 1, time.Hour)[0].Ack())
		began := time.Now()
		w.Eventually("done is sent", func() bool { return testdb.Counted(w, w.jobs).Ready == 1 })
		require.LessOrEqual(w, time.Since(began), 1100*time.Millisecond)
	})
}

func TestDoneBatchesAreTrimmedAfterSevenDays(t *testing.T) {
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		empty, open := w.send(), w.send(1)
		_, b := w.process()
		runAfter := func(d time.Duration) {
			time.Sleep(d)
			stop := w.run(b)
			time.Sleep(2 * time.Second)
			stop()
		}
		runAfter(7*24*time.Hour - time.Minute)
		list, err := w.List(w.Soon(), 10)
		require.NoError(w, err)
		listed := []chanq.ID{list[0].ID, list[1].ID}
		require.ElementsMatch(w, []chanq.ID{open, empty}, listed)
		require.Positive(w, bytes.Compare(listed[0][:], listed[1][:]), "the latest first; IDs do not follow the clock of the bubble")
		list, err = w.List(w.Soon(), 1)
		require.NoError(w, err)
		require.Len(w, list, 1)
		runAfter(2 * time.Minute)
		_, err = w.Status(w.Soon(), empty)
		require.ErrorIs(w, err, chanqjobs.ErrNoBatch)
		_, done := w.status(open)
		require.False(w, done)
		err = w.inTx(func(ctx context.Context, tx *sql.Tx) error { return w.AddTx(ctx, tx, empty, pieces(6)...) })
		require.ErrorIs(w, err, chanqjobs.ErrNoBatch)
	})
}

// Two commits fail, and the answer of the third is lost.
func TestAFailureOfTheEndIsReportedAndRepeated(t *testing.T) {
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		w.send(1)
		require.NoError(w, testdb.Lease(w, w.jobs, 1, time.Hour)[0].Ack())
		faults, b := w.process()
		var failed []error
		b.Failed = func(err error) { failed = append(failed, err) }
		var mu sync.Mutex
		commits := 0
		faults.Inject(func(op faultdb.Op) faultdb.Fault {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind != faultdb.Commit {
				return faultdb.Fault{}
			}
			commits++
			switch commits {
			case 1, 2:
				return faultdb.Cut(errBad)
			case 3: // it is applied
				return faultdb.Cut(errBad).Applied()
			}
			return faultdb.Fault{}
		})
		stop := w.run(b)
		time.Sleep(time.Second / 2)
		require.Zero(w, testdb.Counted(w, w.jobs).Ready, "it is sent by the commit")
		time.Sleep(time.Minute)
		stop()
		require.Len(w, failed, 3)
		require.ErrorContains(w, failed[0], "chanq: end batch ")
		require.Len(w, w.done(), 1)
	})
}

func TestTheFieldsOfADoneJobAreKept(t *testing.T) {
	require.Equal(t, 11, reflect.TypeFor[chanq.Message[int]]().NumField(), "Batches.encode must keep each field")
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		batch := chanqjobs.NewBatch()
		done := report.New("as it is")
		done.Headers = map[string]string{"a": "b"}
		done.Priority, done.Delay, done.TTL = chanq.PriorityHigh, time.Minute, time.Hour
		require.NoError(w, w.inTx(func(ctx context.Context, tx *sql.Tx) error {
			return w.SendTx(ctx, tx, batch, done, pieces(1)...)
		}))
		require.NoError(w, testdb.Lease(w, w.jobs, 1, time.Hour)[0].Ack())
		w.run(w.Batches)
		w.Eventually("done is sent", func() bool { return testdb.Counted(w, w.jobs).Scheduled == 1 })
		time.Sleep(time.Minute)
		l := testdb.Lease(w, w.jobs, 1, time.Minute)[0]
		require.Equal(w, []any{batch, "as it is", "b", chanq.PriorityHigh, time.Hour},
			[]any{l.ID, string(l.Body.Bytes()), l.Headers["a"], l.Priority, l.ExpiresAt.Sub(l.EnqueuedAt)})
		require.NoError(w, l.Ack())
	})
}

func TestBadInputOfBatches(t *testing.T) {
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		other := jobsOf(w.World, "other", chanq.Config{})
		elsewhere := chanqjobs.NewBatches(other)
		sent := w.send(1)
		withID := piece.New(1)
		withID.ID = chanq.NewID()
		keyed := report.New("")
		keyed.DedupKey = "one"
		late := report.New("")
		late.Delay = -time.Second
		all := report.New("all")
		tooMany := make([]chanq.Message[chanqjobs.Job], 1_000_001)
		for want, call := range map[string]func(ctx context.Context, tx chanq.Tx) error{
			"no such batch": func(ctx context.Context, tx chanq.Tx) error {
				return w.AddTx(ctx, tx, chanqjobs.NewBatch(), pieces(1)...)
			},
			fmt.Sprintf("chanq: add to batch %s: no such batch", sent): func(ctx context.Context, tx chanq.Tx) error {
				return elsewhere.AddTx(ctx, tx, sent, pieces(1)...)
			},
			"must be one of NewBatch": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, chanq.NewID(), all, pieces(1)...)
			},
			"the done job: Message.Type ": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, chanqjobs.NewBatch(), chanq.Message[chanqjobs.Job]{})
			},
			"the done job: Message.ID ": func(ctx context.Context, tx chanq.Tx) error { return w.SendTx(ctx, tx, chanqjobs.NewBatch(), withID) },
			"the done job: Message.DedupKey must be unset": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, chanqjobs.NewBatch(), keyed, pieces(1)...)
			},
			fmt.Sprintf("chanq: send batch %s: the ID belongs to another batch: call NewBatch again", sent): func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, sent, all, pieces(1, 2)...)
			},
			fmt.Sprintf("%s: the ID belongs to another batch", sent): func(ctx context.Context, tx chanq.Tx) error {
				return elsewhere.SendTx(ctx, tx, sent, all, pieces(1)...)
			},
			sent.String() + ": the ID belongs": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, sent, piece.New(1), pieces(1)...)
			},
			"Message.Delay is -1s": func(ctx context.Context, tx chanq.Tx) error { return w.SendTx(ctx, tx, chanqjobs.NewBatch(), late) },
			"Message.ID of a job":  func(ctx context.Context, tx chanq.Tx) error { return w.AddTx(ctx, tx, sent, withID) },
			"1000001 jobs: must be at most 1000000": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, chanqjobs.NewBatch(), all, tooMany...)
			},
			"is stored already":  func(ctx context.Context, tx chanq.Tx) error { return w.SendTx(ctx, tx, sent, all, pieces(1)...) },
			"tx must not be nil": func(ctx context.Context, _ chanq.Tx) error { return w.SendTx(ctx, nil, chanqjobs.NewBatch(), all) },
			"tx is a *sql.DB":    func(ctx context.Context, _ chanq.Tx) error { return w.AddTx(ctx, w.DB, sent, pieces(1)...) },
			"0000000001: Message.Body: chanqjobs: the Job has no kind": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, chanqjobs.NewBatch(), all, chanq.Message[chanqjobs.Job]{})
			},
			"the done job: chanq: encode jobs: Message.Body: chanqjobs: the Job has no kind": func(ctx context.Context, tx chanq.Tx) error {
				return w.SendTx(ctx, tx, chanqjobs.NewBatch(), chanq.Message[chanqjobs.Job]{Type: "x"})
			},
		} {
			err := w.inTx(func(ctx context.Context, tx *sql.Tx) error { return call(ctx, tx) })
			require.ErrorContains(w, err, want)
		}
		require.Equal(w, 1, testdb.Counted(w, w.jobs).Ready)

		_, is := chanqjobs.InBatch(&chanq.Delivery{ID: chanq.NewID()})
		require.False(w, is)
		_, is = chanqjobs.InBatch(&chanq.Delivery{ID: sent})
		require.False(w, is, "the done job is not a job of the batch")
		_, is = chanqjobs.BatchOf(&chanq.Delivery{ID: sent})
		require.False(w, is)
	})
}

// A client does not know the outcome of a SendTx and repeats it, while the first transaction is still open.
func TestARepeatedBatchWaitsForTheFirstOne(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		faults, db := w.Connect()
		_, client := w.processOn(faults, db)
		for i, end := range []error{nil, errBad} {
			batch, repeated := chanqjobs.NewBatch(), make(chan error, 1)
			err := w.inTx(func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(w, w.SendTx(ctx, tx, batch, report.New("all"), pieces(1, 2)...))
				go func() {
					repeated <- chanq.InTx(w.Soon(), db, func(ctx context.Context, tx *sql.Tx) error {
						return client.SendTx(ctx, tx, batch, report.New("all"), pieces(1, 2)...)
					})
				}()
				time.Sleep(50 * time.Millisecond)
				require.Empty(w, repeated, "it waits")
				return end
			})
			require.Equal(w, end, err)
			err = testdb.Receive(w, repeated, "the repetition")
			if end == nil {
				require.ErrorIs(w, err, chanqjobs.ErrBatchSent)
			} else {
				require.NoError(w, err)
			}
			require.Equal(w, 2*(i+1), testdb.Counted(w, w.jobs).Ready)
		}
	})
}

func TestBatchesNameTheirMigration(t *testing.T) {
	testdb.OnEach(t, batchBubbles, func(w *testdb.World) {
		jobs := jobsOf(w, "jobs", chanq.Config{})
		err := chanqjobs.NewBatches(jobs).Run(w.Soon())
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "run chanqjobs.Migrate, or the command: chanq jobs migrate")
		_, err = chanqjobs.OpenBatchTable(w.Soon(), w.DB, chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.DB, chanq.Config{}))
		table, err := chanqjobs.OpenBatchTable(w.Soon(), w.DB, chanq.Config{})
		require.NoError(w, err)
		list, err := table.List(w.Soon(), 10)
		require.NoError(w, err)
		require.Empty(w, list)
	})
}

// 12,000 jobs are encoded in parts. A statement stores 500.
func TestALargeBatchIsSentInParts(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		if strings.HasPrefix(w.Engine.Name, "emulator") {
			w.Skip("slow there, and nothing differs")
		}
		numbers := make([]int, 12_000)
		counter := countBatches(w.Faults)
		batch := w.send(numbers...)
		require.InDelta(w, 12_000/500+1, counter.take("all"), 4)
		s, err := w.Status(w.Soon(), batch)
		require.NoError(w, err)
		require.Equal(w, []int{12_000, 10_000}, []int{s.Sent, s.Left}, "Status counts up to 10,000")
		require.Equal(w, 12_000, w.count("live"))
		require.NoError(w, w.inTx(func(ctx context.Context, tx *sql.Tx) error {
			return w.AddTx(ctx, tx, batch, pieces(numbers...)...)
		}))
		require.Equal(w, 24_000, w.count("live"))
	})
}

func TestTheJobsOfABatchAreListed(t *testing.T) {
	onEachBatch(t, batchEngines, func(w *batchWorld) {
		batch := w.send(1, 2, 3)
		first := testdb.Lease(w, w.jobs, 1, time.Minute)[0]
		require.NoError(w, first.Nack(chanq.DeadLetter(errors.New("no"))))
		testdb.Send(w, w.jobs, piece.New(9)) // of no batch
		s, err := w.Status(w.Soon(), batch)
		require.NoError(w, err)
		left, dead, err := w.Jobs(w.Soon(), s.Batch, 10)
		require.NoError(w, err)
		require.Equal(w, []chanq.ID{first.ID}, dead)
		require.Len(w, left, 2)
		require.Negative(w, bytes.Compare(left[0][:], left[1][:]), "in their order")
		for _, id := range left {
			of, is := chanqjobs.InBatch(&chanq.Delivery{ID: id})
			require.True(w, is)
			require.Equal(w, batch, of)
		}
		left, dead, err = w.Jobs(w.Soon(), s.Batch, 1)
		require.NoError(w, err)
		require.Len(w, left, 1)
		require.Len(w, dead, 1)
	})
}

// count counts the rows of a table of the queue.
func (w *batchWorld) count(table string) (n int) {
	w.Helper()
	text := chanq.Names{Dialect: w.Engine.ChanqDialect(), Queue: "jobs"}.SQL("SELECT count(*) FROM {" + table + "}")
	require.NoError(w, w.DB.QueryRowContext(w.Soon(), text).Scan(&n))
	return n
}

// The second process has seen that the batch is done before the first one ends it, and goes on after the done job was
// handled.
func TestABatchThatAnotherProcessHasEndedIsNotEndedAgain(t *testing.T) {
	onEachBatch(t, batchBubbles, func(w *batchWorld) {
		w.send(1)
		require.NoError(w, testdb.Lease(w, w.jobs, 1, time.Hour)[0].Ack())
		faults, slow := w.process()
		gate := make(chan struct{})
		strike := testdb.NewStrike(faultdb.Hold(gate), func(op faultdb.Op) bool { return op.Kind == faultdb.Begin })
		faults.Inject(strike.Choose)
		w.run(slow)
		w.Eventually("it has looked", func() bool { return len(strike.Struck()) > 0 })
		_, b := w.process()
		w.run(b)
		w.Eventually("done is sent", func() bool { return testdb.Counted(w, w.jobs).Ready == 1 })
		require.Len(w, w.done(), 1)
		close(gate)
		time.Sleep(3 * time.Second)
		require.True(w, testdb.Empty(w, w.jobs))
	})
}

// A DeathFunc has locked a dead job of the batch for a long time.
func TestStatusDoesNotWaitForADeadJob(t *testing.T) {
	onEachBatch(t, []testdb.Engine{testdb.Emulator, testdb.EmulatorVersions, testdb.Postgres}, func(w *batchWorld) {
		batch := w.send(1)
		handle(w.World, w.jobs, 1, func(context.Context, *chanq.Lease[chanqjobs.Job]) error { return chanq.DeadLetter(errBad) }, chanq.ConsumerConfig{})
		require.NoError(w, w.inTx(func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, w.jobs.Names().SQL("UPDATE {dead} SET last_error = 'noticed'"))
			require.NoError(w, err)
			soon, cancel := context.WithTimeout(w.Soon(), time.Second)
			defer cancel()
			s, err := w.Status(soon, batch)
			require.NoError(w, err)
			require.Equal(w, 1, s.Dead)
			return nil
		}))
	})
}
