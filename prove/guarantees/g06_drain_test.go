package guarantees

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// The end of a consumer: each row of the table in the package comment, for each way to handle leases.
var draining = []test{
	{"G06_HandlersThatReturnInTimeSettle", endInTime},
	{"G06_HandlersThatReturnLateReleaseUncounted", endLate},
	{"G06_AHandlerThatNeverReturnsLosesItsLeaseAndIsReported", endNever},
	{"G06_ASecondSignalEndsTheTimeToDrain", endTwice},
	{"G06_TheStopIsBoundedThoughTheDatabaseIsAway", endLost},
	{"G06_ASettleThatTakesSecondsIsStoredAfterTheTimeToDrain", endSlowly},
	{"G06_WhatIsBufferedIsReleasedWhileHandlersDrain", endBuffered},
	{"G06_DeadLetterAndSnoozeOfLateHandlersAreStored", endDecided},
	{"G06_ABatchThatFailsAfterTheTimeToDrainIsReleased", endOfBatch},
	{"G06_ABatchThatWasReceivedBeforeTheStopIsHandled", endBeforeBatch},
	{"G06_APermanentErrorLetsHandlersDrain", endBroken},
	{"G06_EachShutdownReportsWhatWasNotSettled", endOfEach},
	{"ExtendAfterShutdownReturnsErrLeaseLost", extendAfterEnd},
	{"G06_HandleAndPipeReturnThoughAHookOrTheDriverHangs", endStuck},
	{"G06_ShutdownReleasesWhatReadersHold", endReaders},
	{"ATransactionStaysUsableThoughTheTimeToDrainIsOver", endInTx},
	{"AHandlerLearnsThatItsConsumerStops", stopped},
}

// untilStopped is a handler that returns when its context ends, which is at the latest when the time to drain ends.
func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// way is a way to handle the leases of a consumer, with a call of its own.
type way struct {
	name string
	run  func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error
}

// drainFor is the DrainFor of these tests. An end up to atEnd later is not late.
var (
	drainFor = slowness * 300 * time.Millisecond
	atEnd    = 6 * time.Second
)

// onEachWay runs a test with a consumer of six messages, for each way with two handlers.
func (w *world) onEachWay(cfg chanq.Config, test func(e *drain)) {
	w.Helper()
	w.onEachWayOf("work", cfg, drainFor, test)
}

// inTime is onEachWay for handlers that return within DrainFor, also on a machine that stalls.
func (w *world) inTime(test func(e *drain)) {
	w.Helper()
	w.onEachWayOf("work", chanq.Config{}, time.Minute, test)
}

func (w *world) onEachWayOf(name string, cfg chanq.Config, most time.Duration, test func(e *drain)) {
	w.Helper()
	ways := []way{
		{"handle", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return c.Handle(2, fn)
		}},
		{"batches", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return c.HandleBatches(2, 1, 0, func(ctx context.Context, ls []*chanq.Lease[string]) error { return fn(ctx, ls[0]) })
		}},
		{"pipe", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return chanq.Pipe(c, w.Queue("output", chanq.Config{}), 2, func(ctx context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				return testdb.Texts("out"), fn(ctx, l)
			})
		}},
		{"ordered", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return c.Handle(2, fn)
		}},
	}
	for _, way := range ways {
		cfg := cfg
		if way.name == "ordered" {
			cfg.Kind, cfg.Slots = chanq.KindOrdered, 4
		}
		e := &drain{world: w, way: way, begun: make(chan *chanq.Lease[string], 6), left: make(chan error, 1)}
		cfg.Hooks.Handled = func(h chanq.HandledEvent) {
			switch {
			case h.Outcome == chanq.OutcomeRelease:
				e.released.Add(1)
			case h.Err != nil:
				e.failed.Add(1)
			}
		}
		e.q = w.Queue(name+"_"+way.name, cfg)
		w.sendApart(e.q, numbers(6)...)
		e.c = testdb.Start(w, e.q, chanq.ConsumerConfig{LeaseFor: time.Hour, DrainFor: most})
		test(e)
	}
}

// drain is a consumer that is stopped while its handlers run.
type drain struct {
	*world
	way      way
	q        *chanq.Queue[string]
	c        *chanq.Consumer[string]
	begun    chan *chanq.Lease[string]
	left     chan error
	failed   atomic.Int64 // Handled events with an error
	released atomic.Int64 // Handled events with a release
	at       time.Time    // when Stop was called
}

// stop starts two handlers, waits until the other messages are buffered, and stops the consumer.
func (e *drain) stop(fn func(context.Context, *chanq.Lease[string]) error) (held []*chanq.Lease[string]) {
	e.Helper()
	held = e.begin(fn)
	e.at = time.Now()
	e.c.Stop()
	return held
}

// begin starts two handlers and waits until the other messages are buffered.
func (e *drain) begin(fn func(context.Context, *chanq.Lease[string]) error) (held []*chanq.Lease[string]) {
	e.Helper()
	go func() {
		e.left <- e.way.run(e.c, func(ctx context.Context, l *chanq.Lease[string]) error {
			e.begun <- l
			return fn(ctx, l)
		})
	}()
	held = append(held, testdb.Receive(e, e.begun, "a handler begins"), testdb.Receive(e, e.begun, "another one begins"))
	e.Eventually(e.way.name+": the others are buffered", func() bool { return e.c.Stats().Held == 6 })
	return held
}

// returns requires that the call returns between low and high after the stop, and returns its error.
func (e *drain) returns(low, high time.Duration) error {
	e.Helper()
	err := testdb.Receive(e, e.left, e.way.name+" returns")
	require.GreaterOrEqual(e, time.Since(e.at), low, e.way.name)
	if e.Engine.Bubble {
		require.LessOrEqual(e, time.Since(e.at), high+50*time.Millisecond, e.way.name)
	}
	require.Zero(e, e.c.Stats().Held, "%s: nothing is held", e.way.name)
	return err
}

// again requires that n messages are ready and that their attempts were not counted.
func (e *drain) again(n int) {
	e.Helper()
	require.Equal(e, chanqadmin.Stats{Ready: n}, testdb.Counted(e, e.q), e.way.name)
	for _, l := range testdb.Lease(e, e.q, n, time.Minute) {
		require.Equal(e, 1, l.Attempt, "%s: the attempt is not counted", e.way.name)
		require.NoError(e, l.Ack())
	}
}

func endInTime(w *world) {
	w.inTime(func(e *drain) {
		held := e.stop(func(ctx context.Context, l *chanq.Lease[string]) error {
			<-l.Stopping()
			time.Sleep(drainFor / 2)
			return ctx.Err()
		})
		require.NoError(e, e.returns(drainFor/2, drainFor/2))
		for _, l := range held {
			require.NoError(e, l.Wait(e.Soon()), "the ack is stored")
		}
		e.again(4)
	})
}

func endLate(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		e.stop(func(ctx context.Context, l *chanq.Lease[string]) error {
			require.ErrorIs(e, untilStopped(ctx), chanq.ErrStopped)
			return ctx.Err()
		})
		require.NoError(e, e.returns(drainFor, drainFor))
		require.Zero(e, e.failed.Load(), "the attempt does not count as failed")
		e.again(6)
	})
}

func endNever(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		gate := make(chan struct{})
		held := e.stop(func(context.Context, *chanq.Lease[string]) error {
			<-gate
			return nil
		})
		err := e.returns(drainFor+time.Second, drainFor+time.Second)
		require.ErrorIs(e, err, chanq.ErrStopped)
		require.ErrorContains(e, err, "leases not settled: 2, settles not confirmed: 0, handlers not returned: 2")
		require.Equal(e, chanqadmin.Stats{Ready: 6}, testdb.Counted(e, e.q), e.way.name)
		over, cancel := context.WithTimeout(e.Soon(), 50*time.Millisecond)
		defer cancel()
		require.ErrorContains(e, e.c.Shutdown(over), "leases not settled: 0, settles not confirmed: 0, handlers not returned: 2")
		time.AfterFunc(2*time.Second, func() { close(gate) }) // longer than the time that handlers had
		require.NoError(e, e.c.Shutdown(e.Soon()), "Shutdown waits for the handlers")
		for _, l := range held {
			require.ErrorIs(e, l.Ack(), chanq.ErrLeaseLost)
			require.ErrorIs(e, l.Wait(e.Soon()), chanq.ErrLeaseLost, "the release is not the outcome for the former holder")
		}
		e.again(6)
	})
}

func endTwice(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		e.stop(func(ctx context.Context, l *chanq.Lease[string]) error { return untilStopped(ctx) })
		e.c.Stop() // has no effect
		over, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(e, e.c.Shutdown(over))
		require.NoError(e, e.returns(0, 0))
		e.again(6)
	})
}

func endLost(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		e.stop(func(ctx context.Context, l *chanq.Lease[string]) error {
			if l.Body == "000" {
				e.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Cut(e.Failure(sqlbatch.Unknown)) })
				return nil
			}
			return untilStopped(ctx)
		})
		err := testdb.Receive(e, e.left, e.way.name+" returns")
		if e.Engine.Bubble {
			require.LessOrEqual(e, time.Since(e.at), drainFor+atEnd+50*time.Millisecond, e.way.name)
		}
		require.ErrorIs(e, err, chanq.ErrStopped)
		require.Regexp(e, ": leases not settled: 0, settles not confirmed: [1-6], handlers not returned: 0", err.Error())
		e.Heal()
	})
}

// endSlowly makes a settle end after the time to drain but within the time for settles.
func endSlowly(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := testdb.Take(w, c, 1)[0]
	st := w.Statements("work")
	gate := make(chan struct{})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, st) {
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	require.NoError(w, l.Ack())
	over, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	context.AfterFunc(over, func() { time.AfterFunc(1500*time.Millisecond, func() { close(gate) }) })
	require.NoError(w, c.Shutdown(over))
	require.NoError(w, l.Wait(w.Soon()))
	require.Zero(w, testdb.Counted(w, q))
}

func endBuffered(w *world) {
	w.inTime(func(e *drain) {
		gate := make(chan struct{})
		e.stop(func(context.Context, *chanq.Lease[string]) error {
			<-gate
			return nil
		})
		e.Eventually(e.way.name+": four are released", func() bool { return e.c.Stats().Released == 4 && e.c.Stats().Held == 2 })
		require.Empty(e, e.left, "handlers continue")
		close(gate)
		require.NoError(e, e.returns(0, drainFor))
		e.again(4)
	})
}

func endDecided(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		e.stop(func(ctx context.Context, l *chanq.Lease[string]) error {
			err := untilStopped(ctx)
			if l.Body == "000" {
				return chanq.DeadLetter(err)
			}
			return chanq.Snooze(time.Hour, err)
		})
		require.NoError(e, e.returns(drainFor, drainFor))
		require.Equal(e, chanqadmin.Stats{Ready: 4, Scheduled: 1, Dead: 1}, testdb.Counted(e, e.q), e.way.name)
	})
}

// endOfBatch has a batch fail as a whole, and the time to drain ends while its messages are handled one by one.
func endOfBatch(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(10)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, DrainFor: drainFor})
	calls := 0
	require.NoError(w, c.HandleBatches(1, 10, time.Minute, func(ctx context.Context, batch []*chanq.Lease[string]) error {
		if calls++; calls == 3 {
			c.Stop()
			require.ErrorIs(w, untilStopped(ctx), chanq.ErrStopped)
			return nil
		}
		return chanq.DeadLetter(errors.New("it cannot be done"))
	}))
	require.Equal(w, 3, calls, "the batch, then its first and second message alone")
	require.Equal(w, chanqadmin.Stats{Ready: 8, Dead: 1}, testdb.Counted(w, q))
	for _, l := range testdb.Lease(w, q, 8, time.Minute) {
		require.Equal(w, 1, l.Attempt, "the attempt is not counted")
	}
}

// endBeforeBatch stops the consumer while a batch waits for more messages.
func endBeforeBatch(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(3)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	handed := 0
	left := make(chan error, 1)
	go func() {
		left <- c.HandleBatches(1, 10, time.Hour, func(_ context.Context, batch []*chanq.Lease[string]) error {
			handed += len(batch)
			return nil
		})
	}()
	w.Eventually("all are received", func() bool { return c.Stats().Held == 3 && c.Stats().Buffered == 0 })
	c.Stop()
	require.NoError(w, testdb.Receive(w, left, "it returns"))
	require.Equal(w, 3, handed)
	require.Zero(w, testdb.Counted(w, q))
}

// endBroken makes claims fail for good while handlers run.
func endBroken(w *world) {
	w.inTime(func(e *drain) {
		names := sqlbatch.Names{Queue: e.q.Name()}
		if e.way.name == "ordered" {
			names.Slots = 4
		}
		st := e.Engine.Dialect.Queue(names)
		gate := make(chan struct{})
		held := e.begin(func(context.Context, *chanq.Lease[string]) error {
			<-gate
			return nil
		})
		cause := e.Failure(sqlbatch.Permanent)
		e.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if names.Slots == 0 && (claims(op, st) || looks(op, st)) || names.Slots > 0 && testdb.Runs(op, st.Slots()) {
				return faultdb.Fail(cause)
			}
			return faultdb.Fault{}
		})
		e.within("it stops", e.c.Done())
		require.ErrorIs(e, e.c.Err(), cause)
		time.Sleep(drainFor / 2)
		require.NoError(e, held[0].Context().Err(), "handlers continue")
		close(gate)
		require.ErrorIs(e, testdb.Receive(e, e.left, "it returns"), cause)
		e.Heal()
		require.Zero(e, testdb.Counted(e, e.q).Leased, "acks are stored, and the other messages are released")
	})
}

func endStuck(w *world) {
	for _, where := range []string{"hook", "driver"} {
		var hang atomic.Pointer[chan struct{}] // if set, the Settled hook waits for this channel
		w.onEachWayOf(where, chanq.Config{Hooks: chanq.Hooks{Settled: func(chanq.SettledEvent) {
			if gate := hang.Load(); gate != nil {
				<-*gate
			}
		}}}, drainFor, func(e *drain) {
			gate := make(chan struct{})
			free := func() { hang.Store(nil); close(gate) }
			begin := func() { hang.Store(&gate) }
			if where == "driver" {
				begin = func() { _, free = e.stick(func(op faultdb.Op) bool { return op.Kind != faultdb.Connect }) }
			}
			var once sync.Once
			e.stop(func(_ context.Context, l *chanq.Lease[string]) error {
				<-l.Stopping()
				once.Do(begin)
				return nil
			})
			err := testdb.Receive(e, e.left, e.way.name+" returns")
			if e.Engine.Bubble {
				require.LessOrEqual(e, time.Since(e.at), drainFor+atEnd+200*time.Millisecond, "%s, %s", e.way.name, where)
			}
			if err != nil { // the hook might be called before the last batch
				require.ErrorIs(e, err, chanq.ErrStopped, e.way.name)
			}
			free()
			_ = e.c.Shutdown(e.Soon())
		})
	}
}

func endReaders(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(8)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Prefetch: 4})
	taken := testdb.Take(w, c, 3)
	contexts := []context.Context{taken[0].Context(), taken[1].Context()}
	require.NoError(w, contexts[0].Err())
	waits := make(chan error, 1)
	go func() { waits <- taken[0].Wait(w.Soon()) }()
	go func() {
		if errors.Is(untilStopped(contexts[1]), chanq.ErrStopped) {
			_ = taken[1].Ack() // Shutdown leaves a second for the ack
		}
	}()
	over, cancel := context.WithTimeoutCause(context.Background(), drainFor, errors.New("the time is over"))
	defer cancel()
	began := time.Now()
	err := c.Shutdown(over)
	require.ErrorContains(w, err, "leases not settled: 2, settles not confirmed: 0, handlers not returned: 0: the time is over")
	if w.Engine.Bubble {
		require.LessOrEqual(w, time.Since(began), drainFor+1050*time.Millisecond)
	}
	require.Equal(w, chanqadmin.Stats{Ready: 7}, testdb.Counted(w, q), "immediately, although the leases last an hour")
	require.ErrorIs(w, context.Cause(contexts[0]), chanq.ErrStopped)
	require.ErrorIs(w, context.Cause(taken[2].Context()), chanq.ErrLeaseLost, "its first use is after the release")
	require.ErrorIs(w, taken[0].Ack(), chanq.ErrLeaseLost)
	require.ErrorIs(w, <-waits, chanq.ErrLeaseLost)
	require.NoError(w, taken[1].Wait(w.Soon()))
	again := testdb.Lease(w, q, 7, time.Minute)
	require.Equal(w, append([]string{"000"}, numbers(8)[2:]...), testdb.Bodies(testdb.Leases(again)), "in their original order")
	for _, l := range again {
		require.Equal(w, 1, l.Attempt, "the attempt is not counted")
	}
}

// endOfEach has a second Shutdown give up while the first one waits for a lease that a reader holds, or for a settle that cannot be stored.
// Both report it.
func endOfEach(w *world) {
	for _, lost := range []bool{false, true} {
		q := w.Queue(fmt.Sprint("work_", lost), chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		l := testdb.Take(w, c, 1)[0]
		want := "leases not settled: 1, settles not confirmed: 0"
		if lost {
			w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Cut(w.Failure(sqlbatch.Unknown)) })
			require.NoError(w, l.Ack())
			want = "leases not settled: 0, settles not confirmed: 1"
		}
		ends := make(chan error, 2)
		go func() { ends <- c.Shutdown(w.Soon()) }()
		w.within("it stops", c.Done())
		go func() {
			over, cancel := context.WithTimeout(context.Background(), drainFor)
			defer cancel()
			ends <- c.Shutdown(over)
		}()
		for range 2 {
			require.ErrorContains(w, testdb.Receive(w, ends, "Shutdown returns"), want)
		}
		w.Heal()
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// extendAfterEnd: the end of a consumer does not wait for a lease that has expired.
func extendAfterEnd(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts("a")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, MaxExtend: 100 * time.Millisecond})
		l := testdb.Take(w, c, 1)[0]
		w.ended(l)
		require.NoError(w, c.Shutdown(w.Soon()))
		require.ErrorIs(w, l.Extend(w.Soon(), time.Minute), chanq.ErrLeaseLost)
		require.ErrorIs(w, l.Extend(w.Soon(), time.Minute), chanq.ErrLeaseLost, "again")
		again := testdb.Start(w, q, chanq.ConsumerConfig{})
		w.ack(testdb.Take(w, again, 1)[0])
		require.NoError(w, again.Shutdown(w.Soon()))
	})
}

func endInTx(w *world) {
	q := w.Queue("work", chanq.Config{})
	sent := testdb.Send(w, q, testdb.Texts("acked", "in a transaction", "held")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, 3)
	require.NoError(w, leases[0].Ack())
	tx := w.begin(w.DB)
	require.NoError(w, leases[1].AckTx(w.Soon(), tx))
	if w.Engine.Dialect.Traits().OneWriter {
		require.NoError(w, tx.Commit()) // other writes wait for the commit
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorContains(w, c.Shutdown(over), "leases not settled: 1, settles not confirmed: 0")
	require.NoError(w, leases[0].Wait(w.Soon()))
	if !w.Engine.Dialect.Traits().OneWriter {
		require.NoError(w, tx.Commit(), "the transaction stays usable")
	}
	w.requireState(q, sent[0], "")
	w.requireState(q, sent[1], "")
	w.requireState(q, sent[2], chanqadmin.StateReady)
}

func stopped(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := testdb.Take(w, c, 1)[0]
	require.Empty(w, l.Stopping())
	select {
	case <-l.Stopping():
		require.Fail(w, "it has not stopped")
	default:
	}
	c.Stop()
	w.within("it stops", l.Stopping())
	require.NoError(w, l.Context().Err(), "its context has not ended")
	require.NoError(w, l.Ack())
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Nil(w, (&chanq.Lease[string]{}).Stopping())
}
