package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/prove/keyorder"
	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Ordered queues: what one consumer, or one after another, does with the messages of a key.
// Several at once: ordered_members.go.

var ordered = []test{
	{"G10_EachKeysMessagesAreHandledInTheirOrderOneAtATime", keysInOrder},
	{"G10_AKeyIsClosedUntilItsNackedMessageComesAgain", keyNacked},
	{"G10_AKeyIsClosedUntilItsSnoozedMessageComesAgain", keySnoozed},
	{"G10_AKeyStaysClosedThoughItsConsumerEnds", keyNackedThenEnded},
	{"G10_AReleasedMessageComesBeforeThoseBehindIt", keyReleased},
	{"G10_ADeadMessageOpensItsKey", keyDead},
	{"G10_ADeadMessageHoldsItsKeyUntilItIsRedriven", keyHeld},
	{"G10_ADeadMessageHoldsItsKeyUntilItIsDiscarded", keyHeldThenDiscarded},
	{"G10_ADeadMessageHoldsItsKeyForTheNextConsumerToo", keyHeldForTheNext},
	{"G10_AMessageThatExpiredOpensItsKey", keyExpired},
	{"G10_AMessageThatCannotBeDecodedOpensItsKey", keyUndecodable},
	{"G10_ACancelledMessageOpensItsKey", keyCancelled},
	{"G10_AMessageWhoseCancelTxIsRolledBackKeepsItsKeyClosed", keyCancelRolledBack},
	{"G10_AMessageThatCommitsLateComesBeforeThoseThatWereSentAfterIt", keyLate},
	{"G10_TheNextOfAKeyWaitsForTheCommitOfAckTx", keyInTx},
	{"G10_AfterARollbackOfAckTxTheMessageComesAgainFirst", keyRolledBack},
	{"G10_ALeaseThatRunsOutComesAgainFirst", keyRanOut},
	{"G10_AClaimOfUnknownOutcomeIsNotOvertaken", keyClaimLost},
	{"ABatchHasOneMessageOfAKey", keysOfABatch},
	{"ReceiveTakesOneMessageOfAKey", keysOfReceive},
	{"G10_TryLeaseTakesOneMessageOfAKeyAndClosesIt", keysOfTryLease},
	{"G10_PipesKeepTheOrderOfKeys", keysThroughPipes},
	{"MaxExtendOfAnOrderedMessageCountsFromItsHandOut", keyMaxExtend},
	{"AnAckForWhichTheNextOfItsKeyWaitsDoesNotLinger", keyAwaited},
	{"G11_AHotKeyFillsNoBufferAndStallsItsSlotAlone", keyHot},
	{"G11_WhatWaitsForItsKeyKeepsNoRetryFromBeingClaimed", keyOfLarge},
	{"NoMoreKeysThanMaxKeysAreAtWork", keysAtWork},
	{"NoMoreKeysThanMaxKeysAreLeasedByTryLease", keysOfGuests},
	{"G06_StopGivesBackWhatWaitsForItsKey", keyStopped},
	{"G07_OfSuspectsOfAnOrderedQueueOneIsHeldAtATime", keySuspects},
}

// keys is a queue that keeps the order of keys.
func (w *world) keys(cfg chanq.Config) *chanq.Queue[string] {
	w.Helper()
	if w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "work", Slots: 4}).Slots(nil).Text == "" {
		w.Skip("this engine has no ordered queues yet")
	}
	cfg.Kind = chanq.KindOrdered
	if cfg.Slots == 0 {
		cfg.Slots = 4
	}
	return w.Queue("work", cfg)
}

// keyed are messages of a key, numbered.
func keyed(key string, from, to int) (ms []chanq.Message[string]) {
	for i := from; i <= to; i++ {
		ms = append(ms, chanq.Message[string]{Key: key, Body: fmt.Sprint(key, "/", i)})
	}
	return ms
}

// take receives one message, which must be this one.
func (w *world) next(c *chanq.Consumer[string], body string) *chanq.Lease[string] {
	w.Helper()
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, body, l.Body)
	return l
}

// closed sends a message of another key, and receives that: those of the key that is
// closed did not come before, though they had more time.
func (w *world) closed(q *chanq.Queue[string], c *chanq.Consumer[string]) {
	w.Helper()
	for i, found := 0, 0; found < 3; i++ {
		key := fmt.Sprint("other", i)
		if slot := sqlbatch.SlotOf(key, chanq.ID{}, 4); slot == sqlbatch.SlotOf("hot", chanq.ID{}, 4) {
			continue // which may be stalled
		}
		found++
		testdb.Send(w, q, chanq.Message[string]{Key: key, Body: "other"})
		require.NoError(w, w.next(c, "other").Ack())
		require.NoError(w, c.Flush(w.Soon()))
	}
}

func (w *world) ack(l *chanq.Lease[string]) {
	w.Helper()
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
}

// recorder notes what handlers were given.
type recorder struct {
	mu      sync.Mutex
	history []keyorder.Handled
	seen    map[string]bool // bodies
}

// note notes a lease whose handler began at from, and is done; ended says that its ack is
// in the database.
func (r *recorder) note(l *chanq.Lease[string], from time.Time, ended bool) {
	r.noteUntil(l, from, time.Now(), ended)
}

// noteUntil is note for a handler that was done with it at until.
func (r *recorder) noteUntil(l *chanq.Lease[string], from, until time.Time, ended bool) {
	if d := l.Deadline(); d.Before(until) {
		until = d
	}
	key, number, _ := strings.Cut(l.Body, "/")
	n, _ := strconv.Atoi(number)
	r.mu.Lock()
	r.history = append(r.history, keyorder.Handled{Key: key, Number: n, From: from, Until: until, Ended: ended})
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[l.Body] = true
	r.mu.Unlock()
}

// messages is how many were handled, each counted once.
func (r *recorder) messages() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// handle is a handler that notes what it is given.
func (r *recorder) handle(_ context.Context, l *chanq.Lease[string]) error {
	r.note(l, time.Now(), true)
	return nil
}

func (r *recorder) judge(w *world, sent map[string]int) {
	w.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	v := keyorder.Judge(r.history, sent)
	require.True(w, v.OK(), v.String())
}

// manyKeys are messages of so many keys, of each so many, one of each key after another.
func manyKeys(keys, each int) (ms []chanq.Message[string], sent map[string]int) {
	sent = map[string]int{}
	for i := range each {
		for k := range keys {
			key := fmt.Sprint("key", k)
			sent[key] = each
			ms = append(ms, keyed(key, i+1, i+1)...)
		}
	}
	return ms, sent
}

// emptied waits until all messages were handled, and the queue has nothing more to hand out.
// Counts alone do not tell: some databases leave out what somebody has locked.
func (w *world) emptied(q *chanq.Queue[string], r *recorder, sent map[string]int) {
	w.Helper()
	n := 0
	for _, each := range sent {
		n += each
	}
	w.Eventually("all are handled", func() bool { return r.messages() >= n })
	w.Eventually("the queue is empty", func() bool {
		s := testdb.Counted(w, q)
		return s.Ready+s.Leased+s.Scheduled == 0
	})
}

func keysInOrder(w *world) {
	q := w.keys(chanq.Config{})
	ms, sent := manyKeys(20, 30)
	ms = append(ms, testdb.Texts("x/1", "y/1")...) // without a key
	sent["x"], sent["y"] = 1, 1
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	r := &recorder{}
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
	const delay = 5 * time.Second
	require.NoError(w, l.Nack(delay, errors.New("not now")))
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

func keySnoozed(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	var got []string
	var mu sync.Mutex
	var done sync.WaitGroup
	done.Go(func() {
		_ = c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, l.Body)
			switch len(got) {
			case 1:
				return chanq.Snooze(200*time.Millisecond, nil)
			case 2:
				return chanq.RetryAfter(200*time.Millisecond, errors.New("again"))
			}
			return nil
		})
	})
	w.Eventually("four have come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= 4
	})
	require.NoError(w, c.Shutdown(w.Soon()))
	done.Wait()
	require.Equal(w, []string{"a/1", "a/1", "a/1", "a/2"}, got)
}

func keyNackedThenEnded(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	first := testdb.Start(w, q, chanq.ConsumerConfig{})
	const delay = 700 * time.Millisecond
	l, began := w.next(first, "a/1"), time.Now()
	require.NoError(w, l.Nack(delay, nil))
	require.NoError(w, first.Shutdown(w.Soon()))
	second := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.ack(w.next(second, "a/1")) // the other one was free all the time
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
	require.NoError(w, w.next(c, "a/1").DeadLetter(errors.New("bad")))
	two := w.next(c, "a/2")
	require.Equal(w, chanq.StateDead, testdb.Get(w, q, ids[0]).State)
	n, err := q.RedriveIDs(w.Soon(), ids[0])
	require.NoError(w, err)
	require.Len(w, n, 1)
	w.ack(two)
	got := map[string]bool{}
	for range 2 { // the redriven one is found within a second
		l := testdb.Take(w, c, 1)[0]
		got[l.Body] = true
		w.ack(l)
	}
	require.Len(w, got, 2)
}

func keyHeld(w *world) {
	q := w.keys(chanq.Config{DeadKey: chanq.DeadKeyHolds})
	ids := testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(c, "a/1").DeadLetter(errors.New("bad")))
	require.NoError(w, c.Flush(w.Soon()))
	w.closed(q, c)
	testdb.Send(w, q, keyed("a", 4, 4)...)
	w.closed(q, c)
	_, err := q.RedriveIDs(w.Soon(), ids[0])
	require.NoError(w, err)
	for i := range 4 {
		w.ack(w.next(c, fmt.Sprint("a/", i+1)))
	}
}

func keyHeldThenDiscarded(w *world) {
	q := w.keys(chanq.Config{DeadKey: chanq.DeadKeyHolds})
	ids := testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(c, "a/1").DeadLetter(errors.New("bad")))
	require.NoError(w, c.Flush(w.Soon()))
	w.closed(q, c)
	_, err := q.PurgeIDs(w.Soon(), ids[0])
	require.NoError(w, err)
	w.ack(w.next(c, "a/2"))
}

func keyHeldForTheNext(w *world) {
	q := w.keys(chanq.Config{DeadKey: chanq.DeadKeyHolds})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	first := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(first, "a/1").DeadLetter(errors.New("bad")))
	require.NoError(w, first.Shutdown(w.Soon()))
	second := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.closed(q, second)
	leases, err := q.TryLease(w.Soon(), 10, time.Minute)
	require.NoError(w, err)
	require.Empty(w, leases)
}

func keyExpired(w *world) {
	q := w.keys(chanq.Config{})
	ms := keyed("a", 1, 2)
	ms[0].TTL = time.Millisecond
	id := testdb.Send(w, q, ms...)[0]
	w.Eventually("it has expired", func() bool { return testdb.Get(w, q, id).ExpiresAt.Before(time.Now().Add(-10 * time.Millisecond)) })
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.ack(w.next(c, "a/2"))
	require.Equal(w, chanq.StateDead, testdb.Get(w, q, id).State)
}

func keyUndecodable(w *world) {
	q := w.keys(chanq.Config{})
	raw := testdb.OpenOn[[]byte](w, w.DB, "work", chanq.Config{Kind: chanq.KindOrdered, Slots: 4})
	testdb.Send(w, raw, chanq.Message[[]byte]{Key: "a", Body: []byte{0xff}}, chanq.Message[[]byte]{Key: "a", Body: []byte("fine")})
	numbers := testdb.OpenOn[map[string]int](w, w.DB, "work", chanq.Config{Kind: chanq.KindOrdered, Slots: 4})
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
	require.NoError(w, l.Nack(time.Hour, nil))
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
	require.NoError(w, l.Nack(time.Hour, nil))
	require.NoError(w, l.Wait(w.Soon()))
	_, db := w.Connect()
	tx, err := db.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	gone, err := q.CancelTx(w.Soon(), tx, ids[0])
	require.NoError(w, err)
	require.Len(w, gone, 1)
	for range 2 { // by claims that begin where claims do, and by such as look again
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

// sweeps has the one consumer of a queue claim from the beginning, and waits until that is over.
func (w *world) sweeps(q *chanq.Queue[string]) {
	w.Helper()
	var claims atomic.Int64
	st := w.orderedStatements()
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claimsSlots(op, st) {
			claims.Add(1)
		}
		return faultdb.Fault{}
	})
	for n := range int64(2) { // the first may be under way
		q.Wake()
		w.Eventually("it claims", func() bool { return claims.Load() > n })
	}
	w.Faults.Inject(nil)
}

// keyLate has a message commit when others with greater numbers were handled.
func keyLate(w *world) {
	q := w.keys(chanq.Config{Slots: 1})
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("an open transaction keeps all others from writing")
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for round := range 5 {
		tx, err := w.DB.BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		_, err = q.SendTx(w.Soon(), tx, keyed("a", 2*round+1, 2*round+1)...)
		require.NoError(w, err)
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
	tx, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
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
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease})
	for range 2 { // its lease is extended no more, and runs out
		l := w.next(c, "a/1") // before the transaction, which keeps others from writing to SQLite
		tx, err := w.DB.BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		require.NoError(w, l.AckTx(w.Soon(), tx))
		require.NoError(w, tx.Rollback())
	}
	w.ack(w.next(c, "a/1"))
	l := w.next(c, "a/2") // and settled after the rollback
	tx, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	require.NoError(w, l.AckTx(w.Soon(), tx))
	require.NoError(w, tx.Rollback())
	require.NoError(w, l.Nack(0, nil))
	w.ack(w.next(c, "a/2"))
	w.ack(w.next(c, "a/3"))
}

func keyRanOut(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, MaxExtend: shortLease})
	l := w.next(c, "a/1")
	<-l.Context().Done()
	again := w.next(c, "a/1")
	require.NoError(w, l.Ack())
	require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrLeaseLost)
	w.ack(again)
	w.ack(w.next(c, "a/2"))
}

// keyClaimLost has the connection break behind a claim that was carried out.
func keyClaimLost(w *world) {
	q := w.keys(chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	w.closed(q, c)
	st := w.orderedStatements()
	for round := range 3 {
		strike := w.Strike(w.Broken(true), func(op faultdb.Op) bool { return claimsSlots(op, st) })
		testdb.Send(w, q, keyed("a", 2*round+1, 2*round+1)...)
		w.Eventually("a claim broke", func() bool { return strike.Struck() != "" })
		testdb.Send(w, q, keyed("a", 2*round+2, 2*round+2)...)
		w.ack(w.next(c, fmt.Sprint("a/", 2*round+1)))
		w.ack(w.next(c, fmt.Sprint("a/", 2*round+2)))
	}
}

func keysOfABatch(w *world) {
	q := w.keys(chanq.Config{})
	ms, sent := manyKeys(5, 10)
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	r := &recorder{}
	n := 0
	for batch := range c.Batches(100, 20*time.Millisecond) {
		keys := map[string]bool{}
		from := time.Now()
		for _, l := range batch {
			require.False(w, keys[l.Key], l.Key)
			keys[l.Key] = true
			r.note(l, from, true)
		}
		require.NoError(w, chanq.AckAll(w.Soon(), batch...))
		if n += len(batch); n == len(ms) {
			break
		}
	}
	r.judge(w, sent)
}

func keysOfReceive(w *world) {
	q := w.keys(chanq.Config{})
	ms, sent := manyKeys(3, 4)
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	r := &recorder{}
	for n := 0; n < len(ms); {
		got, err := c.Receive(w.Soon(), 100)
		require.NoError(w, err)
		keys := map[string]bool{}
		for _, l := range got {
			require.False(w, keys[l.Key], l.Key)
			keys[l.Key] = true
			r.note(l, time.Now(), true)
		}
		require.NoError(w, chanq.AckAll(w.Soon(), got...))
		n += len(got)
	}
	r.judge(w, sent)
}

func keysOfTryLease(w *world) {
	q := w.keys(chanq.Config{})
	ms, _ := manyKeys(3, 2)
	testdb.Send(w, q, ms...)
	first, err := q.TryLease(w.Soon(), 10, time.Minute)
	require.NoError(w, err)
	require.ElementsMatch(w, []string{"key0/1", "key1/1", "key2/1"}, testdb.Bodies(first))
	more, err := q.TryLease(w.Soon(), 10, time.Minute)
	require.NoError(w, err)
	require.Empty(w, more, "their keys are closed")
	require.NoError(w, first[0].Ack())
	require.NoError(w, first[1].Nack(time.Hour, nil))
	more, err = q.TryLease(w.Soon(), 10, time.Minute)
	require.NoError(w, err)
	require.Equal(w, []string{first[0].Key + "/2"}, testdb.Bodies(more))
	require.Equal(w, 1, more[0].Attempt, "what was given back does not count")
	require.NoError(w, first[2].Extend(w.Soon(), 2*time.Minute))
	require.Greater(w, time.Until(first[2].Deadline()), time.Minute)
}

func keysThroughPipes(w *world) {
	q := w.keys(chanq.Config{})
	out := w.Queue("out", chanq.Config{Kind: chanq.KindOrdered, Slots: 4})
	ms, sent := manyKeys(6, 20)
	testdb.Send(w, q, ms...)
	from := testdb.Start(w, q, chanq.ConsumerConfig{})
	to := testdb.Produce(w, out, chanq.ProducerConfig{})
	c := testdb.Start(w, out, chanq.ConsumerConfig{})
	r := &recorder{}
	var done sync.WaitGroup
	done.Go(func() {
		_ = chanq.Pipe(from, to, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
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

func keyMaxExtend(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	began := time.Now()
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, MaxExtend: steadyLease})
	l := w.next(c, "a/1")
	w.Eventually("the next one waits", func() bool { return c.Stats().Waiting == 1 })
	w.Eventually("MaxExtend is over", func() bool {
		require.NoError(w, l.Extend(w.Soon(), steadyLease))
		return time.Since(began) > 2*steadyLease
	})
	w.ack(l)
	two := w.next(c, "a/2")
	require.Equal(w, 1, two.Attempt, "it was not lost while it waited")
	w.ack(two)
}

func keyAwaited(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Linger: time.Minute})
	l := w.next(c, "a/1")
	w.Eventually("the next ones wait", func() bool { return c.Stats().Waiting == 2 })
	began := time.Now()
	require.NoError(w, l.Ack())
	require.NoError(w, w.next(c, "a/2").Ack())
	w.ack(w.next(c, "a/3"))
	require.Less(w, time.Since(began), time.Minute)
}

func keyHot(w *world) {
	q := w.keys(chanq.Config{})
	const hot = 2000
	testdb.Send(w, q, keyed("hot", 1, hot)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 100})
	l := w.next(c, "hot/1")
	w.Eventually("its slot is stalled", func() bool { return c.Stats().StalledSlots == 1 })
	w.closed(q, c)
	s := c.Stats()
	require.LessOrEqual(w, s.Waiting, 100/4+1)
	require.LessOrEqual(w, s.Held, 100/4+2)
	w.ack(l)
	for i := 2; i <= 200; i++ {
		w.ack(w.next(c, fmt.Sprint("hot/", i)))
	}
}

func keyOfLarge(w *world) {
	q := w.keys(chanq.Config{Slots: 1})
	body := func(i int) string { return fmt.Sprint(strings.Repeat("x", 1000), i) }
	const count = 10
	for i := range count {
		testdb.Send(w, q, chanq.Message[string]{Key: "a", Body: body(i)})
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 4000})
	first := w.next(c, body(0))
	w.Eventually("there is no room for more bytes", func() bool { return c.Stats().Waiting >= 3 })
	require.NoError(w, first.Nack(0, errors.New("again")))
	for i := range count {
		w.ack(w.next(c, body(i)))
	}
}

func keysAtWork(w *world) {
	q := w.keys(chanq.Config{Slots: 2, MaxKeys: 3})
	ms, sent := manyKeys(40, 3)
	testdb.Send(w, q, ms...)
	r := &recorder{}
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

func keysOfGuests(w *world) {
	q := w.keys(chanq.Config{Slots: 2, MaxKeys: 3})
	ms, _ := manyKeys(40, 1)
	testdb.Send(w, q, ms...)
	lease := func(n int) []*chanq.Lease[string] {
		got, err := q.TryLease(w.Soon(), 10, time.Minute)
		require.NoError(w, err)
		require.Len(w, got, n)
		return got
	}
	first := lease(3)
	lease(0)
	require.NoError(w, first[0].Ack())
	require.NoError(w, first[1].Nack(time.Hour, nil))
	lease(2)
	lease(0)
}

func keyStopped(w *world) {
	q := w.keys(chanq.Config{})
	ms, _ := manyKeys(3, 5)
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := testdb.Take(w, c, 1)[0]
	w.Eventually("others wait", func() bool { return c.Stats().Held == len(ms) })
	c.Stop()
	w.Eventually("they are given back", func() bool { return testdb.Counted(w, q).Ready == len(ms)-1 })
	w.ack(l)
	require.NoError(w, c.Shutdown(w.Soon()))
	entries, err := q.Peek(w.Soon(), chanq.StateReady, 100)
	require.NoError(w, err)
	require.Len(w, entries, len(ms)-1)
	for _, e := range entries {
		require.Zero(w, e.Attempts)
	}
	members, err := q.Members(w.Soon())
	require.NoError(w, err)
	require.Empty(w, members)
}

// keySuspects has leases run out twice, as of processes that died.
func keySuspects(w *world) {
	q := w.keys(chanq.Config{})
	ms, _ := manyKeys(4, 2)
	testdb.Send(w, q, ms...)
	for range 2 {
		var all []*chanq.Lease[string]
		all, err := q.TryLease(w.Soon(), 10, shortLease)
		require.NoError(w, err)
		require.Len(w, all, 4)
		for _, l := range all {
			<-l.Context().Done()
		}
		w.Eventually("the leases have ended in the database, too", func() bool { return testdb.Counted(w, q).Leased == 0 })
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for range 4 {
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, 3, l.Attempt)
		select {
		case o := <-c.C():
			require.Fail(w, "a second suspect", o.Body)
		case <-time.After(300 * time.Millisecond):
		}
		w.ack(l)
		w.ack(w.next(c, l.Key+"/2"))
	}
}
