package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Ordered queues: each way to read, and how much is read at once.

var orderedReading = []test{
	{"TheHistoryHasHowLongMessagesHadBeenDue", orderedWait},
	{"G10_PipesKeepTheOrderOfKeys", keysThroughPipes},
	{"G09_AnExpiredLeaseOfAnOrderedMessageIsNotExtended", keyExtendTooLate},
	{"G09_AnExtensionThatIsAnsweredAfterAnAckInATransactionCounts", keyExtendedInTx},
	{"AnAckForWhichTheNextOfItsKeyWaitsDoesNotLinger", keyAwaited},
	{"G11_MessagesThatWaitForTheirKeyDoNotPreventARetry", keyOfLarge},
	{"NoMoreKeysThanMaxKeysAreAtWork", keysAtWork},
}

func orderedWait(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	pass(time.Minute)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	first := w.next(c, "a/1")
	pass(time.Minute)
	w.ack(first)
	w.ack(w.next(c, "a/2")) // this message also waited for the first
	require.NoError(w, c.Shutdown(w.Soon()))
	samples, err := testdb.Admin(q).History(w.Soon(), time.Time{}, time.Hour)
	require.NoError(w, err)
	var delivered int64
	var waits chanqadmin.Times
	for _, s := range samples {
		delivered += s.Delivered
		waits.Add(s.Waits)
	}
	require.EqualValues(w, 2, delivered)
	require.Equal(w, chanqadmin.Times{16: 1, 17: 1}, waits, "1 min is up to 65.536 s, and 2 min up to 131.072 s")
}

func keysThroughPipes(w *world) {
	q := w.keys(chanq.Config{})
	out := w.Queue("out", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	ms, sent := manyKeys(6, 20)
	testdb.Send(w, q, ms...)
	from := testdb.Start(w, q, chanq.ConsumerConfig{})
	c := testdb.Start(w, out, chanq.ConsumerConfig{})
	r := newRecorder()
	var done sync.WaitGroup
	done.Go(func() {
		_ = chanq.Pipe(from, out, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			return []chanq.Message[string]{{Key: l.Key, Body: l.Body}}, nil
		})
	})
	done.Go(func() { _ = c.Handle(4, r.handle) })
	w.emptied(out, r, sent)
	require.NoError(w, from.Shutdown(w.Soon()))
	require.NoError(w, c.Shutdown(w.Soon()))
	done.Wait()
	r.judge(w, sent)
}

// keyExtendTooLate extends a lease that has expired while its message is being made ready again. An Extend that returned nil would promise
// a lease that a second handler has as well.
func keyExtendTooLate(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 1)...)
	st := w.orderedStatements()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	lapse := w.Strike(faultdb.Hold(gate), func(op faultdb.Op) bool { return testdb.Runs(op, st.ReleaseOrdered([16]byte{}, nil, true)) })
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 2 * steadyLease, MaxExtend: steadyLease})
	l := w.next(c, "a/1")
	w.ended(l)
	w.Eventually("the consumer makes the message ready again", func() bool { return lapse.Struck() != "" })
	require.ErrorIs(w, l.Extend(w.Soon(), 2*steadyLease), chanq.ErrLeaseLost)
	open()
	again := w.next(c, "a/1")
	require.Equal(w, 2, again.Attempt)
	require.NoError(w, again.Ack())
	require.NoError(w, again.Wait(w.Soon()))
}

// keyExtendedInTx acks a message in a transaction while an extension has been applied and not answered, and rolls back. The message is not
// delivered again before the deadline that the answer sets.
func keyExtendedInTx(w *world) {
	q := w.keys(chanq.Config{})
	for try := 1; !extendedInTx(w, q, try); try++ { // on a slow machine the extension might be given up before it is answered
		require.Less(w, try, 5)
	}
}

func extendedInTx(w *world, q *chanq.Queue[string], n int) (answered bool) {
	lease := 4 * steadyLease
	testdb.Send(w, q, keyed("a", n, n)...)
	st := w.orderedStatements()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	var began atomic.Int64
	extension := w.Strike(faultdb.Hold(gate).Applied(), func(op faultdb.Op) bool {
		return extends(op, st) && (began.Load() > 0 || began.CompareAndSwap(0, time.Now().UnixNano()))
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lease})
	body := fmt.Sprint("a/", n)
	l := w.next(c, body)
	before := l.Deadline()
	w.Eventually("the lease is extended", func() bool { return extension.Struck() != "" })
	tx := w.begin(w.DB)
	defer func() { _ = tx.Rollback() }() // for the second time
	require.NoError(w, l.AckTx(w.Soon(), tx))
	open()
	if answered = time.Since(time.Unix(0, began.Load())) < lease/12; answered { // half of what an extension gets
		w.Eventually("the answer counts", func() bool { return l.Deadline().After(before) })
	}
	require.NoError(w, tx.Rollback())
	again := w.next(c, body)
	require.False(w, time.Now().Before(l.Deadline()))
	require.Error(w, l.Context().Err())
	w.ack(again)
	require.NoError(w, c.Shutdown(w.Soon()))
	return answered
}

func keyAwaited(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := w.next(c, "a/1")
	w.Eventually("the next messages wait", func() bool { return c.Stats().Waiting == 2 })
	began := time.Now()
	require.NoError(w, l.Ack())
	require.NoError(w, w.next(c, "a/2").Ack())
	w.ack(w.next(c, "a/3"))
	if w.Engine.Bubble {
		require.Less(w, time.Since(began), 5*time.Millisecond, "without the linger of other settles")
	}
}

func keyOfLarge(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	body := func(i int) string { return fmt.Sprint(strings.Repeat("x", 1000), i) }
	const count = 10
	for i := range count {
		testdb.Send(w, q, chanq.Message[string]{Key: "a", Body: body(i)})
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 4000})
	first := w.next(c, body(0))
	w.Eventually("there is no room for more bytes", func() bool { return c.Stats().Waiting >= 2 })
	require.NoError(w, first.Nack(chanq.RetryAfter(0, errors.New("again"))))
	for i := range count {
		w.ack(w.next(c, body(i)))
	}
}

func keysAtWork(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 2, MaxKeys: 3}})
	ms, sent := manyKeys(40, 3)
	testdb.Send(w, q, ms...)
	r := newRecorder()
	var now, most atomic.Int64
	var done sync.WaitGroup
	for range 2 {
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		done.Go(func() {
			_ = c.Handle(20, func(_ context.Context, l *chanq.Lease[string]) error {
				from := time.Now()
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-time.After(2 * time.Millisecond)
				for most.Load() < 3 && time.Since(from) < time.Second { // the others are still being delivered
					<-time.After(time.Millisecond)
				}
				now.Add(-1)
				r.note(l, from, true)
				return nil
			})
		})
		defer c.Stop()
	}
	w.emptied(q, r, sent)
	r.judge(w, sent)
	require.EqualValues(w, 3, most.Load())
}
