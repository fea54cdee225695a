package guarantees

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// A panic of the driver ends the consumer whose statement panics, with an error. Nothing hangs, and other consumers and producers on the
// *sql.DB continue.
var falling = []test{
	{"APanicOfTheDriverInAClaimEndsTheConsumer", func(w *world) { w.falls(claims, readsSlots) }},
	{"APanicOfTheDriverInALookEndsTheConsumer", func(w *world) {
		w.falls(func(op faultdb.Op, q sqlbatch.Queue) bool { return testdb.Runs(op, q.Rescan()) },
			func(op faultdb.Op, q sqlbatch.Queue) bool { return testdb.Runs(op, q.Slots()) })
	}},
	{"APanicOfTheDriverInAnExtensionEndsTheConsumer", func(w *world) { w.falls(extends, extends) }},
	{"APanicOfTheDriverInASettleEndsTheConsumer", func(w *world) { w.falls(acks, acks) }},
	{"APanicOfTheDriverInAHeartbeatEndsTheConsumer", func(w *world) {
		joins := func(op faultdb.Op, q sqlbatch.Queue) bool { return testdb.Runs(op, q.Join(sqlbatch.Consumer{})) }
		w.falls(joins, joins)
	}},
	{"APanicOfTheDriverAfterASettleIsNoLostLease", fallsAfterASettle},
	{"APanicOfTheDriverInASendIsItsErrorAndTheProducerGoesOn", fallsInASend},
	{"APanicOfTheDriverInAPipeEndsTheConsumerAndTheInputsStay", fallsInAPipe},
	{"APanicOfTheDriverInTheHistoryIsReportedAndStopsNothingElse", fallsInTheHistory},
}

// falls makes the driver panic in one kind of consumer statement, first of a plain queue and then of an ordered queue.
func (w *world) falls(plain, ordered func(faultdb.Op, sqlbatch.Queue) bool) {
	w.Helper()
	w.fallsIn(w.Queue("plain", chanq.Config{}), func(op faultdb.Op) bool { return plain(op, w.Statements("plain")) })
	w.fallsIn(w.keys(chanq.Config{}), func(op faultdb.Op) bool { return ordered(op, w.orderedStatements()) })
}

func (w *world) fallsIn(q *chanq.Queue[string], meant func(faultdb.Op) bool) {
	w.Helper()
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	w.panicIn(meant)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	var held []*chanq.Lease[string]
	for open := true; open; {
		var l *chanq.Lease[string]
		select {
		case l, open = <-c.C():
		case <-w.Soon().Done():
			require.Fail(w, "the consumer continues")
		}
		if !open {
			break
		}
		if held = append(held, l); len(held) == 1 {
			require.NoError(w, l.Ack()) // the lease of the other message is extended
		}
	}
	<-c.Done()
	w.Faults.Inject(nil)
	require.ErrorContains(w, c.Err(), "aargh")
	for _, l := range held {
		_ = l.Release()
	}
	require.Equal(w, c.Err(), c.Shutdown(w.Soon()))
	again := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("the others continue", func() bool {
		select {
		case l := <-again.C():
			w.ack(l)
		case <-time.After(time.Millisecond):
		}
		return testdb.Counted(w, q) == (chanqadmin.Stats{})
	})
	require.NoError(w, again.Shutdown(w.Soon()))
}

// panicIn makes the driver panic in each statement that meant accepts, until Inject(nil).
func (w *world) panicIn(meant func(faultdb.Op) bool) {
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if meant(op) {
			return faultdb.Panic(errors.New("aargh"))
		}
		return faultdb.Fault{}
	})
}

// fallsAfterASettle: the acks are stored. A repetition that does not find the messages must not report lost leases.
func fallsAfterASettle(w *world) {
	var lost atomic.Int64
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{LeaseLost: func(chanq.LeaseLostEvent) { lost.Add(1) }}})
	testdb.Send(w, q, testdb.Texts("a", "b", "c", "d")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, 4)
	var panics atomic.Int64
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, w.Statements("work")) && panics.Add(1) == 1 {
			return faultdb.Panic(errors.New("aargh")).Applied()
		}
		return faultdb.Fault{}
	})
	err := chanq.Ack(w.Soon(), leases...)
	w.Faults.Inject(nil)
	require.NotErrorIs(w, err, chanq.ErrLeaseLost)
	require.Zero(w, lost.Load())
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
}

func fallsInASend(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	w.panicIn(func(op faultdb.Op) bool { return enqueues(op, w.Statements("work")) })
	receipt, err := p.Send(w.Soon(), testdb.Texts("a")[0])
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.ErrorContains(w, op, "aargh")
	require.True(w, op.Unknown)
	p.C() <- testdb.Texts("b")[0]
	require.ErrorContains(w, p.Flush(w.Soon()), "aargh")
	w.Faults.Inject(nil)
	_, err = p.Send(w.Soon(), chanq.Message[string]{Body: "a", ID: receipt.ID})
	require.NoError(w, err)
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(w, p.Close(w.Soon()), &unsent)
	require.Len(w, unsent.Unsent, 1)
	require.Equal(w, "b", unsent.Unsent[0].Message.Body)
	require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
}

func fallsInAPipe(w *world) {
	from, to := w.Queue("work", chanq.Config{}), w.Queue("output", chanq.Config{})
	ids := testdb.Send(w, from, testdb.Texts("a", "b")...)
	// Not in a statement of the transaction: database/sql then keeps a goroutine permanently.
	w.panicIn(func(op faultdb.Op) bool { return op.Kind == faultdb.Begin })
	c := testdb.Start(w, from, chanq.ConsumerConfig{LeaseFor: steadyLease})
	err := chanq.Pipe(c, to, 2, func(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error) {
		return testdb.Texts("out"), nil
	})
	require.ErrorContains(w, err, "aargh")
	require.Equal(w, err, c.Shutdown(w.Soon()))
	w.Faults.Inject(nil)
	for _, id := range ids {
		require.NotEmpty(w, testdb.Get(w, from, id).State)
	}
	require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, to))
}

func fallsInTheHistory(w *world) {
	reported := make(chan chanq.HousekeepingEvent, 1)
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Housekeeping: func(e chanq.HousekeepingEvent) {
		if e.Task == "history" {
			reported <- e
		}
	}}})
	sample := w.Statements("work").Sample(sqlbatch.Sample{})
	w.panicIn(func(op faultdb.Op) bool { return testdb.Runs(op, sample) })
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	select {
	case e := <-reported:
		require.ErrorContains(w, e.Err, "aargh")
	case <-w.Soon().Done():
		require.Fail(w, "the panic is not reported")
	}
	w.Faults.Inject(nil)
	_, err := p.Send(w.Soon(), testdb.Texts("a")[0])
	require.NoError(w, err)
	require.NoError(w, p.Close(w.Soon()))
}
