package guarantees

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var stopping = []test{
	{"G06_StopReturnsWhatWasNotTakenUncountedInItsOrder", stopReturns},
	{"G06_StopWritesAcksBeforeItReleases", acksFirst},
	{"G06_ShutdownWaitsForDeliveredLeases", shutdownWaits},
	{"G06_CancellingItsContextStopsAConsumer", contextStops},
	{"G06_StopDuringAClaimReturnsItsMessages", stopDuringClaim},
	{"G11_StopNeedsNoReader", stopNeedsNoReader},
	{"ShutdownReturnsWithItsContextThoughTheDatabaseIsAway", shutdownDead},
	{"ShutdownMayBeCalledAgain", shutdownAgain},
	{"G06_AfterARollbackALeaseOfAckTxIsSettledByAStoppedConsumer", stopsInTx},
	{"ShutdownWaitsForARollbackOnlyAsLongAsTheLeaseLasts", shutdownOutlastsTx},
	{"HandleDoesNotWaitForATransactionThatItsHandlerLeftOpen", handleLeavesTx},
}

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%03d", i)
	}
	return out
}

// closed reads the channel of a stopped consumer to its end and releases the leases that it still
// delivers.
func closed[T any](w *world, c *chanq.Consumer[T]) {
	w.Helper()
	timeout := time.After(testdb.Patience)
	for {
		select {
		case l, open := <-c.C():
			if !open {
				return
			}
			_ = l.Release() // if the consumer has given up, the lease expires
		case <-timeout:
			require.Fail(w, "the channel does not close")
		}
	}
}

func stopReturns(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(12)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	taken := testdb.Take(w, c, 2)
	w.Eventually("the rest is buffered", func() bool { return c.Stats().Buffered == 10 })
	require.Equal(w, chanqadmin.Stats{Leased: 12}, testdb.Counted(w, q))
	c.Stop()
	// This works immediately, although the leases last an hour.
	back := testdb.Leases(testdb.Lease(w, q, 10, time.Minute))
	require.Equal(w, numbers(12)[2:], testdb.Bodies(back))
	for _, l := range back {
		require.Equal(w, 1, l.Attempt, "the attempt was counted")
	}
	closed(w, c)
	w.Eventually("the statistics show the releases", func() bool { return c.Stats().Released == 10 })
	for _, l := range taken {
		require.NoError(w, l.Context().Err(), "delivered leases remain valid")
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	for _, l := range taken {
		require.NoError(w, l.Wait(w.Soon()))
	}
}

func acksFirst(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(20)...)...)
	var mu sync.Mutex
	var order []string
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case acks(op, st):
			order = append(order, "ack")
		case testdb.Runs(op, st.Release(nil)):
			order = append(order, "release")
		case claims(op, st):
			order = append(order, "claim")
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	leases := testdb.Take(w, c, 5)
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	mu.Lock()
	defer mu.Unlock()
	last := func(what string) int {
		for i, s := range slices.Backward(order) {
			if s == what {
				return i
			}
		}
		return -1
	}
	require.Contains(w, order, "ack")
	require.Contains(w, order, "release")
	require.Less(w, last("ack"), slices.Index(order, "release"), order)
	require.Less(w, last("claim"), slices.Index(order, "release"), order)
}

func shutdownWaits(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 3 * steadyLease})
	l := testdb.Take(w, c, 1)[0]
	ended := make(chan error, 1)
	go func() { ended <- c.Shutdown(w.Soon()) }()
	w.within("Shutdown begins", c.Done())
	first := testdb.Get(w, q, l.ID).LeaseUntil
	w.Eventually("the lease is still extended", func() bool { return testdb.Get(w, q, l.ID).LeaseUntil.Sub(first) > steadyLease })
	require.Empty(w, ended)
	require.NoError(w, l.Ack())
	require.NoError(w, <-ended)
	require.NoError(w, l.Wait(w.Soon()))
	w.requireState(q, l.ID, "")
}

func contextStops(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	ctx, end := context.WithCancel(context.WithValue(context.Background(), aKey{}, "a value"))
	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(w, err)
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, "a value", l.Context().Value(aKey{}), "leases inherit the values")
	end()
	closed(w, c)
	require.NoError(w, l.Context().Err(), "but not the cancellation")
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
	require.NoError(w, c.Err())
	require.NoError(w, c.Shutdown(w.Soon()))
}

type aKey struct{}

func stopDuringClaim(w *world) {
	q := w.Queue("work", chanq.Config{})
	ids := testdb.Send(w, q, testdb.Texts("a", "b")...)
	gate := make(chan struct{})
	st := w.Statements("work")
	hit := w.Strike(faultdb.Hold(gate).Applied(), func(op faultdb.Op) bool { return claims(op, st) })
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	w.Eventually("the claim is running", func() bool { return hit.Struck() != "" })
	c.Stop()
	close(gate)
	require.NoError(w, c.Shutdown(w.Soon()))
	for _, id := range ids {
		e := testdb.Get(w, q, id)
		require.Equal(w, chanqadmin.StateReady, e.State)
		require.Zero(w, e.Attempts)
	}
}

func stopNeedsNoReader(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(100)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	w.Eventually("the buffer is filled", func() bool { return c.Stats().Buffered >= 16 })
	require.NoError(w, c.Shutdown(w.Soon()), "although the channel is not read")
	require.Equal(w, chanqadmin.Stats{Ready: 100}, testdb.Counted(w, q))
}

func shutdownDead(w *world) {
	for name, f := range map[string]faultdb.Fault{"breaks": faultdb.Cut(w.Failure(sqlbatch.Unknown)), "hangs": faultdb.Hang()} {
		q := w.Queue(name, chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		leases := testdb.Take(w, c, 3)
		w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return f })
		require.NoError(w, leases[0].Ack())
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err := c.Shutdown(ctx)
		cancel()
		require.ErrorIs(w, err, context.DeadlineExceeded, name)
		require.ErrorContains(w, err, "leases not settled", name)
		require.Error(w, leases[0].Wait(w.Soon()), "%s: the ack is not confirmed", name)
		closed(w, c)
		w.Heal()
		require.NoError(w, c.Shutdown(w.Soon()), "%s: its goroutines end", name)
	}
}

func shutdownAgain(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for range 3 {
		c.Stop()
		require.NoError(w, c.Shutdown(w.Soon()))
	}
	ended, end := context.WithCancel(context.Background())
	end()
	for range 20 {
		require.NoError(w, c.Shutdown(ended), "it is shut down, whatever the context")
	}
	require.NoError(w, c.Flush(w.Soon()))
	require.NoError(w, c.Err())
}

// acksInTx acks a lease in a transaction, and returns its rollback.
func (w *world) acksInTx(l *chanq.Lease[string]) (rollback func()) {
	tx := w.begin(w.DB)
	require.NoError(w, l.AckTx(w.Soon(), tx))
	return func() { require.NoError(w, tx.Rollback()) }
}

func stopsInTx(w *world) {
	settles := map[string]struct {
		settle   func(*chanq.Lease[string]) error
		state    chanqadmin.State
		attempts int
	}{
		"Ack":        {(*chanq.Lease[string]).Ack, "", 0},
		"Nack":       {func(l *chanq.Lease[string]) error { return l.Nack(errors.New("no")) }, chanqadmin.StateScheduled, 1},
		"Snooze":     {func(l *chanq.Lease[string]) error { return l.Nack(chanq.Snooze(time.Hour, nil)) }, chanqadmin.StateScheduled, 0},
		"Release":    {(*chanq.Lease[string]).Release, chanqadmin.StateReady, 0},
		"DeadLetter": {func(l *chanq.Lease[string]) error { return l.Nack(chanq.DeadLetter(nil)) }, chanqadmin.StateDead, 1},
	}
	try := func(q *chanq.Queue[string], stop, how string) {
		id := testdb.Send(w, q, testdb.Texts("a")...)[0]
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: later, StopWhenIdle: stop == "idle"})
		require.NoError(w, err)
		var l *chanq.Lease[string]
		var rollback func()
		c.All()(func(taken *chanq.Lease[string]) bool {
			l, rollback = taken, w.acksInTx(taken)
			if stop == "idle" || w.oneWriter() { // a row that is locked keeps it from the end, and a writer other statements
				rollback()
				rollback = func() {}
			}
			switch stop {
			case "Stop":
				c.Stop()
			case "context":
				cancel()
			case "Shutdown":
				go func() { _ = c.Shutdown(w.Soon()) }()
			}
			return stop != "break"
		})
		if w.Engine.Bubble {
			time.Sleep(3 * time.Second)
		}
		rollback()
		s := settles[how]
		require.NoError(w, s.settle(l), "%s after %s", how, stop)
		require.NoError(w, l.Wait(w.Soon()), how)
		require.NoError(w, c.Shutdown(w.Soon()))
		w.requireState(q, id, s.state)
		if s.state != "" {
			require.Equal(w, s.attempts, testdb.Get(w, q, id).Attempts, how)
			purged := w.purge(q, s.state)
			require.Equal(w, 1, purged)
		}
	}
	w.onKinds(func(q *chanq.Queue[string]) {
		for how := range settles {
			try(q, "Stop", how)
		}
		for _, stop := range []string{"context", "Shutdown", "break"} {
			try(q, stop, "Nack")
		}
		if q.Name() == "plain" { // an ordered queue waits for the transaction
			try(q, "idle", "Nack")
		}
	})
}

func shutdownOutlastsTx(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts("forgotten")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease})
		w.acksInTx(testdb.Take(w, c, 1)[0])()
		require.NoError(w, c.Shutdown(w.Soon()))

		if !w.Engine.Bubble {
			return
		}
		c = testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		w.acksInTx(testdb.Take(w, c, 1)[0])()
		began := time.Now()
		over, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		_ = c.Shutdown(over)
		w.soon(began, map[string]time.Duration{"plain": 2 * time.Second, "ordered": 7 * time.Second}[q.Name()])
	})
}

func handleLeavesTx(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	began := time.Now()
	require.NoError(w, c.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error {
		w.acksInTx(l)()
		c.Stop()
		return nil
	}))
	w.soon(began, 5*time.Second)
}
