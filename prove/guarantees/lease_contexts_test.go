package guarantees

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Contexts of leases and ends of producers in unusual states.
var contexts = []test{
	{"AContextIsCancelledAtItsDeadlineAfterARolledBackAckTx", contextAfterRollback},
	{"TheContextOfABatchIsCancelledAtADeadlineAfterARolledBackAckTx", contextOfBatchAfterRollback},
	{"ALeaseCanBePrintedWhileItIsExtended", printWhileExtended},
	{"ASecondCloseWaitsForTheFirstAndReturnsNoMessages", closeTwice},
	{"OneNotifierServesBothNamesOfTheDefaultSchema", notifierOfDefaultSchema},
}

func contextAfterRollback(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
	kept := testdb.Take(w, c, 2)
	used, late := kept[0].Context(), kept[1].Context()
	require.NoError(w, used.Err())
	tx := w.begin(w.DB)
	require.NoError(w, chanq.AckTx(w.Soon(), tx, kept...))
	require.NoError(w, tx.Rollback())
	for range kept {
		again := testdb.Take(w, c, 1)[0]
		require.Equal(w, 2, again.Attempt)
	}
	require.ErrorIs(w, context.Cause(late), chanq.ErrLeaseLost, "its first use is after the next delivery has begun")
	w.ended(kept[0]) // at about the same time: the timer might be slightly late
	require.ErrorIs(w, context.Cause(used), chanq.ErrLeaseLost)
	require.NoError(w, kept[0].Ack(), "Ack accepts the settle")
	require.ErrorIs(w, kept[0].Wait(w.Soon()), chanq.ErrLeaseLost)
}

func contextOfBatchAfterRollback(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
	first, ended := true, make(chan error, 1)
	done := make(chan error, 1)
	go func() {
		done <- c.HandleBatches(1, 10, 0, func(ctx context.Context, ls []*chanq.Lease[string]) error {
			if !first {
				return nil
			}
			first = false
			tx, err := w.DB.BeginTx(ctx, nil)
			if err == nil {
				err = errors.Join(chanq.AckTx(ctx, tx, ls...), tx.Rollback())
			}
			if err == nil {
				<-ctx.Done()
				if early := time.Until(ls[0].Deadline()); early > 0 {
					err = fmt.Errorf("the context ended %v before the deadline", early)
				}
			}
			ended <- err
			return nil
		})
	}()
	require.NoError(w, testdb.Receive(w, ended, "the context ends"))
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, <-done)
}

// printWhileExtended exists for the race detector.
func printWhileExtended(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a body")...)
	l := testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease}), 1)[0]
	first := l.Deadline()
	w.Eventually("it is extended twice", func() bool {
		fmt.Fprintf(io.Discard, "%v %+v %#v %v", l, l, l, *l)
		return l.Deadline().Sub(first) > lastingLease/2
	})
	require.Contains(w, fmt.Sprintf("%+v", l), "a body")
	require.NoError(w, l.Ack())
}

func closeTwice(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 1})
	st := w.Statements("work")
	struck, free := w.stick(func(op faultdb.Op) bool { return enqueues(op, st) })
	for _, m := range testdb.Texts("a", "b") {
		p.C() <- m
	}
	w.within("an INSERT hangs", struck)
	first := make(chan error, 1)
	bounded, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	go func() { first <- p.Close(bounded) }()
	w.within("the first Close has begun", p.Done())
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := p.Close(short)
	require.ErrorIs(w, err, context.DeadlineExceeded)
	var unsent *chanq.UnsentError[string]
	require.False(w, errors.As(err, &unsent), "the first call reports the unsent messages")
	require.Empty(w, first, "the first call has not returned")
	second := make(chan error, 1)
	go func() { second <- p.Close(w.Soon()) }()
	giveUp()
	require.ErrorAs(w, <-first, &unsent)
	require.Len(w, unsent.Unsent, 2)
	free()
	require.NoError(w, <-second, "it waits for the goroutines")
	require.NoError(w, p.Close(w.Soon()))
}

func notifierOfDefaultSchema(w *world) {
	standard := w.Engine.Dialect.Traits().Schema
	cfgs := []chanq.Config{alone, alone}
	cfgs[1].Schema = standard
	short := w.Queue("work", cfgs[0])
	long := testdb.OpenOn[string](w, w.DB, "work", cfgs[1])
	for _, pair := range [][2]*chanq.Queue[string]{{short, long}, {long, short}} {
		c := paused(w, pair[0])
		testdb.Send(w, pair[1], testdb.Texts("a")...)
		require.NoError(w, w.woken(c).Ack())
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}
