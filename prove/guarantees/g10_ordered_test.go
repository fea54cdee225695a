package guarantees

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Ordered queues: messages of a key with one consumer, or with one after another. Tests of
// concurrent consumers are in g10_ordered_consumers_test.go.

var ordered = []test{
	{"G10_EachKeysMessagesAreHandledInTheirOrderOneAtATime", keysInOrder},
	{"G10_SendComesAfterWhatTheSameGoroutineHasSentOnC", sendAfterC},
	{"G10_AKeyIsClosedUntilItsNackedMessageIsRedelivered", keyNacked},
	{"G10_AKeyStaysClosedThoughItsConsumerStops", keyNackedThenEnded},
	{"G10_AReleasedMessageComesBeforeThoseBehindIt", keyReleased},
	{"G10_ADeadMessageOpensItsKey", keyDead},
	{"G10_ADeadMessageHoldsItsKeyUntilItIsRedriven", keyHeld},
	{"G10_ADeadMessageHoldsItsKeyForTheNextConsumer", keyHeldForTheNext},
	{"G10_AMessageThatExpiredOpensItsKey", keyExpired},
	{"G10_AMessageThatCannotBeDecodedOpensItsKey", keyUndecodable},
	{"G10_ACancelledMessageOpensItsKey", keyCancelled},
	{"G10_AMessageWhoseCancelTxIsRolledBackKeepsItsKeyClosed", keyCancelRolledBack},
	{"G10_AMessageThatCommitsLateComesBeforeThoseThatWereSentAfterIt", keyLate},
	{"G10_TheNextOfAKeyWaitsForTheCommitOfAckTx", keyInTx},
	{"G10_AfterARollbackOfAckTxTheMessageIsRedeliveredFirst", keyRolledBack},
	{"G10_AMessageWhoseLeaseExpiresIsRedeliveredFirst", keyRanOut},
}

// slowBody is a body whose encoding may take a while.
type slowBody struct {
	N    int
	Slow bool
}

func (b slowBody) MarshalJSON() ([]byte, error) {
	if b.Slow {
		time.Sleep(time.Millisecond)
	}
	return strconv.AppendInt(nil, int64(b.N), 10), nil
}

func (b *slowBody) UnmarshalJSON(data []byte) (err error) {
	b.N, err = strconv.Atoi(string(data))
	return err
}

// sendAfterC sends on C what takes long to encode. A Send that does not wait for it overtakes it.
func sendAfterC(w *world) {
	q := testdb.QueueOf[slowBody](w, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	const messages = 30
	for i := range messages {
		m := chanq.Message[slowBody]{Key: "a", Body: slowBody{i, i%3 != 2}}
		if m.Body.Slow {
			p.C() <- m
		} else {
			testdb.SendBy(w, p, m)
		}
	}
	require.NoError(w, p.Close(w.Soon()))
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for i := range messages {
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, i, l.Body.N)
		require.NoError(w, l.Ack())
	}
}

func keysInOrder(w *world) {
	q := w.keys(chanq.Config{})
	ms, sent := manyKeys(20, 30)
	ms = append(ms, testdb.Texts("x/1", "y/1")...) // messages without a key
	sent["x"], sent["y"] = 1, 1
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	r := newRecorder()
	var done sync.WaitGroup
	done.Go(func() { _ = c.Handle(8, r.handle) })
	w.emptied(q, r, sent)
	require.NoError(w, c.Shutdown(w.Soon()))
	done.Wait()
	r.judge(w, sent)
}

func keyNacked(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := w.next(c, "a/1")
	began := time.Now()
	delay := testdb.Of[time.Duration](5, 15) * time.Second // longer than what follows takes on a loaded machine
	require.NoError(w, l.Nack(chanq.RetryAfter(delay, errors.New("not now"))))
	require.NoError(w, l.Wait(w.Soon()))
	w.closed(q, c)
	again := w.next(c, "a/1")
	require.GreaterOrEqual(w, time.Since(began), delay-10*time.Millisecond)
	require.Equal(w, 2, again.Attempt)
	w.closed(q, c)
	w.ack(again)
	w.ack(w.next(c, "a/2"))
	w.ack(w.next(c, "a/3"))
}

func keyNackedThenEnded(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	first := testdb.Start(w, q, chanq.ConsumerConfig{})
	const delay = 700 * time.Millisecond
	l, began := w.next(first, "a/1"), time.Now()
	require.NoError(w, l.Nack(chanq.RetryAfter(delay, nil)))
	require.NoError(w, first.Shutdown(w.Soon()))
	second := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.ack(w.next(second, "a/1")) // the key was not held
	require.GreaterOrEqual(w, time.Since(began), delay-10*time.Millisecond)
	w.ack(w.next(second, "a/2"))
}

func keyReleased(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for range 3 {
		l := w.next(c, "a/1")
		require.Equal(w, 1, l.Attempt)
		require.NoError(w, l.Release())
	}
	w.ack(w.next(c, "a/1"))
	w.ack(w.next(c, "a/2"))
}

func keyDead(w *world) {
	q := w.keys(chanq.Config{})
	ids := testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(c, "a/1").Nack(chanq.DeadLetter(errors.New("bad"))))
	two := w.next(c, "a/2")
	require.Equal(w, chanqadmin.StateDead, testdb.Get(w, q, ids[0]).State)
	n := w.redriveIDs(q, ids[0])
	require.Len(w, n, 1)
	w.ack(two)
	got := map[string]bool{}
	for range 2 { // the redriven message is found within a second
		l := testdb.Take(w, c, 1)[0]
		got[l.Body] = true
		w.ack(l)
	}
	require.Len(w, got, 2)
}

func keyHeld(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{DeadKey: chanq.DeadKeyHolds}})
	ids := testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(c, "a/1").Nack(chanq.DeadLetter(errors.New("bad"))))
	require.NoError(w, c.Flush(w.Soon()))
	w.closed(q, c)
	testdb.Send(w, q, keyed("a", 4, 4)...)
	w.closed(q, c)
	w.redriveIDs(q, ids[0])
	for i := range 4 {
		w.ack(w.next(c, fmt.Sprint("a/", i+1)))
	}
}

func keyHeldForTheNext(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{DeadKey: chanq.DeadKeyHolds}})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	first := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(first, "a/1").Nack(chanq.DeadLetter(errors.New("bad"))))
	require.NoError(w, first.Shutdown(w.Soon()))
	second := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.closed(q, second)
	testdb.RequireNone(w, q)
}

func keyExpired(w *world) {
	q := w.keys(chanq.Config{})
	ms := keyed("a", 1, 2)
	ms[0].TTL = time.Millisecond
	id := testdb.Send(w, q, ms...)[0]
	w.Eventually("the message has expired", func() bool { return testdb.Get(w, q, id).ExpiresAt.Before(time.Now().Add(-10 * time.Millisecond)) })
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.ack(w.next(c, "a/2"))
	require.Equal(w, chanqadmin.StateDead, testdb.Get(w, q, id).State)
}

func keyUndecodable(w *world) {
	q := w.keys(chanq.Config{})
	raw := testdb.OpenOn[[]byte](w, w.DB, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	testdb.Send(w, raw, chanq.Message[[]byte]{Key: "a", Body: []byte{0xff}}, chanq.Message[[]byte]{Key: "a", Body: []byte("fine")})
	numbers := testdb.OpenOn[map[string]int](w, w.DB, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	_ = q
	testdb.Send(w, numbers, chanq.Message[map[string]int]{Key: "a", Body: map[string]int{"a": 1}})
	c := testdb.Start(w, numbers, chanq.ConsumerConfig{})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, map[string]int{"a": 1}, l.Body)
	require.NoError(w, l.Ack())
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, 2, testdb.Counted(w, numbers).Dead)
}

func keyCancelled(w *world) {
	q := w.keys(chanq.Config{})
	ids := testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := w.next(c, "a/1")
	require.NoError(w, l.Nack(chanq.RetryAfter(time.Hour, nil)))
	require.NoError(w, l.Wait(w.Soon()))
	w.closed(q, c)
	gone, err := q.Cancel(w.Soon(), ids[0])
	require.NoError(w, err)
	require.Len(w, gone, 1)
	w.ack(w.next(c, "a/2"))
}

func keyCancelRolledBack(w *world) {
	w.skipWithoutRowLocks()
	q := w.keys(chanq.Config{})
	ids := testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := w.next(c, "a/1")
	require.NoError(w, l.Nack(chanq.RetryAfter(time.Hour, nil)))
	require.NoError(w, l.Wait(w.Soon()))
	_, db := w.Connect()
	tx := w.begin(db)
	gone, err := q.CancelTx(w.Soon(), tx, ids[0])
	require.NoError(w, err)
	require.Len(w, gone, 1)
	for range 2 { // by claims from the usual position, and by claims from the beginning
		w.sweeps(q)
	}
	w.closed(q, c)
	require.NoError(w, tx.Rollback())
	w.sweeps(q)
	w.closed(q, c)
	_, err = q.Cancel(w.Soon(), ids[0])
	require.NoError(w, err)
	w.ack(w.next(c, "a/2"))
}

// sweeps makes the only consumer of a queue claim from the beginning, and waits until that claim
// has ended.
func (w *world) sweeps(q *chanq.Queue[string]) {
	w.Helper()
	var claims atomic.Int64
	st := w.orderedStatements()
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if readsSlots(op, st) {
			claims.Add(1)
		}
		return faultdb.Fault{}
	})
	for n := range int64(2) { // the first claim might already be running
		q.Wake()
		w.Eventually("it claims", func() bool { return claims.Load() > n })
	}
	w.Faults.Inject(nil)
}

// keyLate commits a message after messages with greater numbers were handled.
func keyLate(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("an open transaction blocks all other writes")
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for round := range 5 {
		tx := w.begin(w.DB)
		w.sendTx(q, tx, keyed("a", 2*round+1, 2*round+1)...)
		w.closed(q, c)
		require.NoError(w, tx.Commit())
		testdb.Send(w, q, keyed("a", 2*round+2, 2*round+2)...)
		w.ack(w.next(c, fmt.Sprint("a/", 2*round+1)))
		w.ack(w.next(c, fmt.Sprint("a/", 2*round+2)))
	}
}

func keyInTx(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := w.next(c, "a/1")
	tx := w.begin(w.DB)
	require.NoError(w, l.AckTx(w.Soon(), tx))
	if !w.Engine.Dialect.Traits().OneWriter {
		w.closed(q, c)
	}
	require.NoError(w, tx.Commit())
	w.ack(w.next(c, "a/2"))
}

func keyRolledBack(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 3)...)
	ackTx := func(l *chanq.Lease[string]) error {
		tx := w.begin(w.DB)
		err := l.AckTx(w.Soon(), tx)
		require.NoError(w, tx.Rollback())
		return err
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := w.next(c, "a/1")
	require.NoError(w, ackTx(l))
	require.NoError(w, l.Nack(chanq.RetryAfter(0, nil))) // it is settled after the rollback
	w.ack(w.next(c, "a/1"))
	c.Stop()
	closed(w, c)
	require.NoError(w, c.Shutdown(w.Soon()))

	c = testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease})
	for range 2 { // its lease is not extended any more and expires
		if err := ackTx(w.next(c, "a/2")); err != nil {
			require.ErrorIs(w, err, chanq.ErrLeaseLost) // on a loaded machine it expires before
		}
	}
	w.ackAtLast(c, "a/2")
	w.ackAtLast(c, "a/3")
}

func keyRanOut(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 2 * steadyLease, MaxExtend: 100 * time.Millisecond})
	l := w.next(c, "a/1")
	<-l.Context().Done()
	again := w.next(c, "a/1")
	require.NoError(w, l.Ack())
	require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrLeaseLost)
	w.ack(again)
	w.ack(w.next(c, "a/2"))
}
