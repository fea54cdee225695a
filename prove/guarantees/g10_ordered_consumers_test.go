package guarantees

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Ordered queues: several consumers that join, leave and fail.

var orderedConsumers = []test{
	{"G10_TheOrderOfKeysIsKeptWhileAConsumerIsDisconnected", keysCutOff},
	{"G10_AHeartbeatAnsweredAfterTheMembershipExpiredDelaysNoKey", keysOfLateHeartbeat},
	{"AStoppedConsumerReturnsASlotOnceItsAckTxHasCommitted", slotInTx},
}

// orderedStatements returns the statements of the queue, to recognize operations.
func (w *world) orderedStatements() sqlbatch.Queue {
	return w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "work", Slots: 4})
}

// readsSlots reports whether an operation is the read of an owner of slots.
func readsSlots(op faultdb.Op, q sqlbatch.Queue) bool {
	for n := 1; n <= 2; n++ { // one slot has a statement of its own
		if testdb.Runs(op, q.Read(sqlbatch.ReadParams{Slots: make([]sqlbatch.OwnedSlot, n)})) {
			return true
		}
	}
	return false
}

// keysOfLateHeartbeat: the answer comes when the consumer has given up its slots. It joins again at once.
func keysOfLateHeartbeat(w *world) {
	leaseFor, bound := steadyLease, 20*time.Second
	if w.Engine.Bubble {
		leaseFor, bound = 30*time.Second, 5*time.Second // the former membership does not have to expire
	}
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	faults, db := w.Connect()
	slow := testdb.OpenOn[string](w, db, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 1}})
	c := testdb.Start(w, slow, chanq.ConsumerConfig{LeaseFor: leaseFor, PollEvery: 20 * time.Millisecond})
	st, gate := w.orderedStatements(), make(chan struct{})
	late := sync.OnceFunc(func() { close(gate) })
	var last time.Time // when the last heartbeat began that is answered in time
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case !testdb.Runs(op, st.Join(sqlbatch.Consumer{})):
		case time.Since(last) >= leaseFor: // it is answered in time
			last = time.Now()
		case time.Since(last) < leaseFor*9/10:
			return faultdb.Fail(w.Failure(sqlbatch.RolledBack))
		default:
			time.AfterFunc(leaseFor*21/20-time.Since(last), late)
			return faultdb.Stick(gate)
		}
		return faultdb.Fault{}
	})
	select {
	case <-gate:
	case <-w.Soon().Done():
	}
	faults.Inject(nil)
	began := time.Now()
	testdb.Send(w, q, keyed("a", 1, 1)...)
	w.ack(w.next(c, "a/1"))
	require.Less(w, time.Since(began), bound)
}

// keysCutOff disconnects one of two consumers from its database for longer than its lease.
func keysCutOff(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 8}})
	ms, sent := manyKeys(30, 20/testdb.Slowness)
	testdb.Send(w, q, ms...)
	r := newRecorder()
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 8}}
	var done sync.WaitGroup
	start := func() (*faultdb.Connector, *chanq.Consumer[string]) {
		faults, db := w.Connect()
		c := testdb.Start(w, testdb.OpenOn[string](w, db, "work", cfg), chanq.ConsumerConfig{LeaseFor: steadyLease, Prefetch: 50})
		done.Go(func() {
			_ = c.Handle(3, func(_ context.Context, l *chanq.Lease[string]) error {
				from := time.Now()
				<-time.After(5 * time.Millisecond)
				until := time.Now() // its next message might be delivered before Wait returns
				err := l.Ack()
				if err == nil {
					ctx, cancel := context.WithTimeout(context.Background(), time.Until(l.Deadline()))
					defer cancel()
					err = l.Wait(ctx)
				}
				r.noteUntil(l, from, until, !errors.Is(err, chanq.ErrLeaseLost)) // a message whose outcome is unknown is done or will be redelivered
				return nil
			})
		})
		return faults, c
	}
	faults, a := start()
	_, b := start()
	w.Eventually("both have slots", func() bool { return a.Stats().Slots > 0 && b.Stats().Slots > 0 })
	for range 2 {
		broken := w.Broken(false)
		faults.Inject(func(faultdb.Op) faultdb.Fault { return broken })
		faults.CutAll(w.Failure(sqlbatch.Unknown))
		w.Eventually("the other consumer has all slots", func() bool { return b.Stats().Slots == 8 })
		faults.Inject(nil)
		w.Eventually("both have slots again", func() bool { return a.Stats().Slots > 0 })
	}
	w.emptied(q, r, sent)
	require.NoError(w, a.Shutdown(w.Soon()))
	require.NoError(w, b.Shutdown(w.Soon()))
	done.Wait()
	r.judge(w, sent)
}

// slotInTx: a lease held by a reader delays the end of the stopped consumer, which releases all
// slots.
func slotInTx(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 2}})
	other := "b"
	for i := 0; sqlbatch.SlotOf(other, chanq.ID{}, 2) == sqlbatch.SlotOf("a", chanq.ID{}, 2); i++ {
		other = fmt.Sprint("b", i)
	}
	testdb.Send(w, q, append(keyed("a", 1, 2), keyed(other, 1, 1)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, 2)
	if leases[0].Key != "a" {
		leases[0], leases[1] = leases[1], leases[0]
	}
	tx := w.begin(w.DB)
	require.NoError(w, leases[0].AckTx(w.Soon(), tx))
	c.Stop()
	require.NoError(w, tx.Commit())
	d := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	w.ack(w.next(d, "a/2"))
	w.ack(leases[1])
}
