package guarantees

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var reading = []test{
	{"ABreakFromAllStopsAndReleasesTheRest", allStops},
	{"BatchesAreFullWhileMessagesWaitAndShortAfterTheLinger", batches},
	{"AWaitForMoreIsOverWhenItsContextIsCancelledOrTheConsumerStops", batchesEnd},
	{"ReceiveWaitsForTheFirstAndReturnsWhatIsThere", receive},
	{"ReceiveSkipsWhatWasLostInTheBuffer", receiveSkips},
	{"ReceiveReportsACancelledContextAndAStoppedConsumer", receiveEnds},
	{"HandleUsesItsNumberOfWorkersAndReturnsAfterTheLast", handleWorkers},
}

func allStops(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(10)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for l := range c.All() {
		require.Equal(w, "000", l.Body)
		w.Eventually("the rest is buffered", func() bool { return c.Stats().Buffered == 9 })
		break
	}
	w.Eventually("the rest is released", func() bool { return testdb.Stats(w, q).Ready == 9 })
	closed(w, c)
	for range c.All() {
		require.Fail(w, "the channel is closed")
	}
}

func batches(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(10)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 10 })
	var sizes []int
	var got []string
	for len(got) < 10 {
		batch, err := c.Receive(w.Soon(), 4, 50*time.Millisecond)
		require.NoError(w, err)
		sizes = append(sizes, len(batch))
		for _, l := range batch {
			got = append(got, l.Body)
			require.NoError(w, l.Ack())
		}
	}
	require.Equal(w, []int{4, 4, 2}, sizes)
	require.Equal(w, numbers(10), got)
}

func batchesEnd(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(3)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 3 })
	ctx, cancel := context.WithCancel(w.Soon())
	onceTaken := func(do func()) { // all that is buffered
		for c.Stats().Buffered > 0 {
			pass(time.Millisecond)
		}
		do()
	}
	go onceTaken(cancel)
	batch, err := c.Receive(ctx, 4, time.Hour)
	require.NoError(w, err)
	require.Equal(w, numbers(3), testdb.Bodies(batch), "the end of ctx ends the wait for more")

	testdb.Send(w, q, testdb.Texts("last")...)
	w.Eventually("it is buffered", func() bool { return c.Stats().Buffered == 1 })
	go onceTaken(c.Stop)
	batch, err = c.Receive(w.Soon(), 4, time.Hour)
	require.NoError(w, err)
	require.Equal(w, []string{"last"}, testdb.Bodies(batch), "the end of the consumer ends it")
}

func receive(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	got := make(chan []*chanq.Lease[string], 1)
	go func() {
		leases, err := c.Receive(w.Soon(), 4, 0)
		if err != nil {
			w.Errorf("receive: %v", err)
		}
		got <- leases
	}()
	testdb.Send(w, q, testdb.Texts("first")...)
	require.Equal(w, []string{"first"}, testdb.Bodies(<-got), "Receive does not wait for more messages")
	testdb.Send(w, q, testdb.Texts(numbers(6)...)...)
	w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 6 })
	for _, want := range [][]string{numbers(6)[:4], numbers(6)[4:]} {
		leases, err := c.Receive(w.Soon(), 4, 0)
		require.NoError(w, err)
		require.Equal(w, want, testdb.Bodies(leases))
		for _, l := range leases {
			require.Equal(w, "work", l.Queue)
		}
	}
	_, err := c.Receive(w.Soon(), 0, 0)
	require.ErrorContains(w, err, "maxBatch is 0")
	_, err = c.Receive(w.Soon(), 1, -1)
	require.ErrorContains(w, err, "wait is -1ns")
}

func receiveSkips(w *world) {
	q := w.Queue("work", chanq.Config{})
	sent := testdb.Send(w, q, testdb.Texts("lost", "kept", "lost", "kept")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * steadyLease})
	w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 4 })
	_, err := q.Cancel(w.Soon(), sent[0], sent[2])
	require.NoError(w, err)
	w.Eventually("the loss is detected", func() bool { return c.Stats().Held == 2 })
	leases, err := c.Receive(w.Soon(), 4, 0)
	require.NoError(w, err)
	require.Equal(w, []string{"kept", "kept"}, testdb.Bodies(leases))
}

func receiveEnds(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	ctx, cancel := context.WithCancelCause(w.Soon())
	thought := errors.New("the caller thinks better of it")
	time.AfterFunc(10*time.Millisecond, func() { cancel(thought) })
	_, err := c.Receive(ctx, 1, 0)
	require.ErrorIs(w, err, thought)
	testdb.Send(w, q, testdb.Texts("a")...)
	w.Eventually("it is buffered", func() bool { return c.Stats().Buffered == 1 })
	_, err = c.Receive(ctx, 1, 0)
	require.ErrorIs(w, err, thought, "buffered messages are left for other readers")
	require.Equal(w, 1, c.Stats().Buffered)

	select {
	case <-c.Done():
		require.Fail(w, "it has not stopped")
	default:
	}
	c.Stop()
	<-c.Done()
	closed(w, c)
	_, err = c.Receive(w.Soon(), 1, 0)
	require.ErrorIs(w, err, chanq.ErrClosed)

	st := w.Statements("work")
	refused := w.Failure(sqlbatch.Permanent)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, st) {
			return faultdb.Fail(refused)
		}
		return faultdb.Fault{}
	})
	broken := testdb.Start(w, q, chanq.ConsumerConfig{})
	<-broken.Done()
	_, err = broken.Receive(w.Soon(), 1, 0)
	require.ErrorIs(w, err, refused)
	require.Equal(w, broken.Err(), err)
}

// settled returns the number of stored settles of a consumer. Counting the remaining messages is
// not possible because that count skips locked ones.
func settled[T any](c *chanq.Consumer[T]) int64 {
	s := c.Stats()
	return s.Acked + s.Nacked + s.Released + s.Dead
}

func handleWorkers(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(10)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	inside, gate := make(chan struct{}, 10), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- c.Handle(3, func(context.Context, *chanq.Lease[string]) error {
			inside <- struct{}{}
			<-gate
			return nil
		})
	}()
	w.Eventually("three work at once", func() bool { return len(inside) == 3 })
	c.Stop()
	closed(w, c)
	require.Len(w, inside, 3, "and no more")
	require.Empty(w, ended)
	close(gate)
	require.NoError(w, <-ended)
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Ready: 7}, testdb.Counted(w, q))
}
