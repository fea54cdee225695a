package guarantees

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Ordered queues: progress while a key, a row or a statement is blocked.

var orderedBlocked = []test{
	{"G11_ASlowKeyStaysWithinItsBoundsAndDelaysNoOtherKeyOfItsSlot", keySlow},
	{"G12_ManyMessagesBehindAHeldKeyDelayNoOtherKey", func(w *world) { keysInFront(w, 1, sqlbatch.MostWalked+2000) }},
	{"G12_ManyMessagesBehindManyHeldKeysDelayNoOtherKey", func(w *world) { keysInFront(w, 60, 300) }},
	{"G11_KeysThatWaitForARetryTakeNoRoomOfOthers", keysThatFail},
	{"G10_ARedriveAtAnyMomentIsNotOvertaken", keyRedrivenAtAnyMoment},
	{"G11_AnAckTxBlocksItsKeyAlone", keyInLongTx},
	{"G10_AKeyHeldByADeadMessageThatWasSentAgainOpensWhenTheDeadOneIsDiscarded", keyHeldTwice},
	{"APausedOrderedQueueWithARetryCostsAsMuchAsAnIdleOne", keyOfPaused},
	{"StopWhenIdleHandlesAnOrderedQueueWithTheShortestLeases", keysOfShortLeases},
	{"StopWhenIdleWaitsForTheSlotsOfItsFormerMembership", keysOfFormerMembership},
	{"G12_ALockedRowOfAnotherTableThanTheMessagesLosesNoLease", keysBesideLocks},
}

// keySlow has a key with many messages whose first message is being handled.
func keySlow(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	body := func(i int) string { return fmt.Sprint(strings.Repeat("x", 4000), "/", i) }
	var ms []chanq.Message[string]
	for i := range 300 {
		ms = append(ms, chanq.Message[string]{Key: "slow", Body: body(i)})
	}
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 16, PrefetchBytes: 64 << 10})
	first := w.next(c, body(0))
	for i := range 12 { // enough for a read from the beginning
		began := time.Now()
		testdb.Send(w, q, keyed(fmt.Sprint("other", i), 1, 3)...)
		for n := range 3 {
			w.ack(w.next(c, fmt.Sprint("other", i, "/", n+1)))
		}
		if w.Engine.Bubble {
			require.Less(w, time.Since(began), 2*time.Second)
		}
		w.pass(time.Second)
		s := c.Stats()
		require.LessOrEqual(w, s.Waiting, 5)
		require.Equal(w, 1, s.Held)
		require.Equal(w, 1, s.BlockedKeys)
	}
	w.ack(first)
	for i := range 20 {
		w.ack(w.next(c, body(i+1)))
	}
}

// keysInFront has many messages behind held keys, and then those of other keys. A second consumer knows nothing of them.
func keysInFront(w *world, keys, behind int) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 4}})
	ms, _ := manyKeys(keys, behind)
	testdb.Send(w, q, ms...)
	var firsts, others []string
	for i := range keys {
		firsts = append(firsts, fmt.Sprintf("key%d/1", i))
	}
	for i := range 40 {
		others = append(others, fmt.Sprintf("other%d/1", i))
		testdb.Send(w, q, keyed(fmt.Sprint("other", i), 1, 1)...)
	}
	st := w.orderedStatements()
	var reads atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if readsSlots(op, st) {
			reads.Add(1)
		}
		return faultdb.Fault{}
	})
	for range 2 {
		reads.Store(0)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		leases := testdb.Take(w, c, keys+len(others))
		require.ElementsMatch(w, append(slices.Clone(firsts), others...), testdb.Bodies(leases))
		require.LessOrEqual(w, reads.Load(), int32(30))
		w.pass(2 * time.Second)
		require.Less(w, reads.Load(), int32(60), "and later reads do not walk them again")
		for _, l := range leases {
			require.NoError(w, l.Release())
		}
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// keysThatFail has more keys wait for a retry than fit as messages into the buffer, and a message that has lost a lease being handled.
func keysThatFail(w *world) {
	for name, cfg := range map[string]chanq.Config{"free": {Spec: chanq.Spec{Slots: 1}}, "bounded": {Spec: chanq.Spec{Slots: 1, MaxKeys: 3}}} {
		cfg.Kind = chanq.KindOrdered
		q := w.Queue(name, cfg)
		const failing, others = 60, 100
		id := testdb.Send(w, q, keyed("lapsed", 1, 2)...)[0]
		w.Exec("UPDATE chanq_" + name + " SET attempts = 1, lapses = 1 WHERE id = " + w.sqlID(id))
		c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 16})
		lapsed := w.next(c, "lapsed/1")
		for i := range failing {
			testdb.Send(w, q, keyed(fmt.Sprint("failing", i), 1, 2)...)
			l := w.next(c, fmt.Sprint("failing", i, "/1"))
			require.NoError(w, l.Nack(chanq.RetryAfter(time.Hour, errors.New("not now"))))
			require.NoError(w, l.Wait(w.Soon()))
		}
		began := time.Now()
		ms, _ := manyKeys(others, 2)
		testdb.Send(w, q, ms...)
		var got []string
		for range ms {
			l := testdb.Take(w, c, 1)[0]
			got = append(got, l.Body)
			require.NoError(w, l.Ack())
		}
		if w.Engine.Bubble {
			require.Less(w, time.Since(began), 3*time.Second)
		}
		slices.Sort(got)
		var want []string
		for _, m := range ms {
			want = append(want, m.Body)
		}
		slices.Sort(want)
		require.Equal(w, want, got)
		w.ack(lapsed)
		w.ack(w.next(c, "lapsed/2"))
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// keyRedrivenAtAnyMoment redrives the dead message of a key at each statement of the consumer: before it runs, and before its response
// arrives.
func keyRedrivenAtAnyMoment(w *world) {
	w.Within(10 * time.Minute)
	n := 0
	for more := true; more; n++ {
		for i := range testdb.Of(2, 4) { // half of the cases in the default tier
			lapsed, applied := (n+i)%2 == 0, (n+i)/2%2 == 0
			more = w.redrivenAt(fmt.Sprint("work_", n, "_", i), n, lapsed, applied)
		}
	}
	require.Greater(w, n, 3)
}

// redrivenAt reports whether the consumer runs more than n queries before its next query about the key has returned.
func (w *world) redrivenAt(name string, n int, lapsed, applied bool) (more bool) {
	q := w.Queue(name, chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 1, DeadKey: chanq.DeadKeyHolds}, History: chanq.HistoryOff})
	faults, db := w.Connect()
	away := testdb.OpenOn[string](w, db, name, chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 1, DeadKey: chanq.DeadKeyHolds}, History: chanq.HistoryOff})
	id := testdb.Send(w, q, keyed("a", 1, 3)...)[0]
	c := testdb.Start(w, away, chanq.ConsumerConfig{LeaseFor: time.Minute})
	require.NoError(w, w.next(c, "a/1").Nack(chanq.DeadLetter(errors.New("bad"))))
	require.NoError(w, c.Flush(w.Soon()))
	gate, queries := make(chan struct{}), 0
	struck := make(chan struct{})
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind != faultdb.Query {
			return faultdb.Fault{}
		}
		if queries++; queries != n+1 {
			return faultdb.Fault{}
		}
		close(struck)
		if applied {
			return faultdb.Hold(gate).Applied()
		}
		return faultdb.Hold(gate)
	})
	select {
	case <-struck:
		more = true
	case <-time.After(1100 * time.Millisecond):
	}
	moved := w.redriveIDs(q, id)
	require.Len(w, moved, 1)
	if lapsed {
		w.Exec("UPDATE chanq_" + name + " SET lapses = 1, attempts = 1 WHERE id = " + w.sqlID(id))
	}
	close(gate)
	for i := range 3 {
		w.ack(w.next(c, fmt.Sprint("a/", i+1)))
	}
	faults.Inject(nil)
	require.NoError(w, c.Shutdown(w.Soon()))
	return more
}

// keyInLongTx has a slot with a backlog and a transaction that acks a message and stays open during a read from the beginning.
func keyInLongTx(w *world) {
	w.skipWithoutRowLocks()
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	testdb.Send(w, q, slices.Concat(keyed("a", 1, 2), keyed("b", 1, 2), keyed("c", 1, 2))...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := w.next(c, "a/1")
	tx := w.begin(w.DB)
	require.NoError(w, l.AckTx(w.Soon(), tx))
	for _, body := range []string{"b/1", "c/1", "b/2", "c/2"} {
		w.ack(w.next(c, body))
	}
	for i := range 12 {
		began := time.Now()
		testdb.Send(w, q, keyed(fmt.Sprint("d", i), 1, 2)...)
		for n := range 2 {
			w.ack(w.next(c, fmt.Sprint("d", i, "/", n+1)))
		}
		if w.Engine.Bubble {
			require.Less(w, time.Since(began), 2*time.Second)
		}
		w.pass(time.Second)
	}
	require.NoError(w, tx.Commit())
	w.ack(w.next(c, "a/2"))
}

// keyHeldTwice sends a dead message again with its ID: a redrive leaves the dead message.
func keyHeldTwice(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{DeadKey: chanq.DeadKeyHolds}})
	ids := testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(c, "a/1").Nack(chanq.DeadLetter(errors.New("bad"))))
	require.NoError(w, c.Flush(w.Soon()))
	testdb.Send(w, q, chanq.Message[string]{ID: ids[0], Key: "a", Body: "a/1"})
	w.closed(q, c)
	moved := w.redriveIDs(q, ids[0])
	require.Empty(w, moved, "the ID is also that of a live message")
	w.closed(q, c)
	gone, err := testdb.PurgeIDs(w.Soon(), q, ids[0])
	require.NoError(w, err)
	require.Len(w, gone, 1)
	w.ack(w.next(c, "a/2"))
	w.ack(w.next(c, "a/1"))
	w.requireEmpty(q)
}

// isHeartbeat reports whether op is a part of a heartbeat of queue work, of which each consumer has one every 10 s, or of what follows it
// on SQLite: a commit, and in a file the release of pages.
func (w *world) isHeartbeat(op faultdb.Op) bool {
	st := w.Statements("work")
	join := st.Join(sqlbatch.Consumer{})
	for _, part := range append(join.Prior, join, st.Version()) {
		if testdb.Runs(op, part) {
			return true
		}
	}
	return op.Text == "BEGIN IMMEDIATE" || op.Text == "COMMIT" || strings.Contains(op.Text, "incremental_vacuum")
}

// keyOfPaused counts the statements of a consumer while its queue is paused, and then while it is idle.
func keyOfPaused(w *world) {
	q := w.keys(chanq.Config{History: chanq.HistoryOff})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	faults, db := w.Connect()
	c := testdb.Start(w, testdb.OpenOn[string](w, db, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}, History: chanq.HistoryOff}), chanq.ConsumerConfig{LeaseFor: time.Hour})
	span := 10 * time.Second
	if w.Engine.Bubble {
		span *= 10
	}
	count := func() int64 {
		w.pass(3 * time.Second)
		var n atomic.Int64
		faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if (op.Kind == faultdb.Query || op.Kind == faultdb.Exec) && !w.isHeartbeat(op) {
				n.Add(1)
			}
			return faultdb.Fault{}
		})
		w.pass(span)
		faults.Inject(nil)
		return n.Load()
	}
	l := w.next(c, "a/1")
	require.NoError(w, testdb.Pause(w.Soon(), q))
	require.NoError(w, l.Nack(chanq.RetryAfter(time.Second, errors.New("again"))))
	require.NoError(w, l.Wait(w.Soon()))
	paused := count()
	require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{}))
	w.ack(w.next(c, "a/1"))
	w.ack(w.next(c, "a/2"))
	idle := count()
	w.Logf("statements within %v: %d paused, %d idle", span, paused, idle)
	require.LessOrEqual(w, paused, 2*idle)
	if w.Engine.Bubble {
		require.LessOrEqual(w, max(paused, idle), int64(215+10), "2.1 per second, a poll after each heartbeat, and a few more depending on the phase of the periods")
	}
}

func keysOfShortLeases(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 8}})
	ms, sent := manyKeys(20, 5)
	testdb.Send(w, q, ms...)
	lease := shortLease // on a loaded machine some leases might still expire
	if w.Engine.Bubble {
		lease = 100 * time.Millisecond // the minimum
	}
	r := newRecorder()
	got := w.drains(q, chanq.ConsumerConfig{LeaseFor: lease, Prefetch: 10}, func(l *chanq.Lease[string]) error {
		from := time.Now()
		w.pass(time.Millisecond)
		r.note(l, from, true)
		return nil
	})
	require.GreaterOrEqual(w, len(got), len(ms))
	r.judge(w, sent)
	w.requireEmpty(q)
}

// keysOfFormerMembership loses the responses to heartbeats: the registration of the consumer expires in the process but not in the
// database.
func keysOfFormerMembership(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	testdb.Send(w, q, keyed("a", 1, 2)...)
	faults, db := w.Connect()
	away := testdb.OpenOn[string](w, db, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 1}})
	c := testdb.Start(w, away, chanq.ConsumerConfig{LeaseFor: steadyLease, StopWhenIdle: true})
	first := w.next(c, "a/1")
	st, lost := w.orderedStatements(), w.Failure(sqlbatch.Unknown)
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, st.Join(sqlbatch.Consumer{})) {
			return faultdb.Fail(lost).Applied()
		}
		return faultdb.Fault{}
	})
	w.ended(first)
	faults.Inject(nil)
	w.ack(w.next(c, "a/1"))
	w.ack(w.next(c, "a/2"))
	w.idleEnds(c)
}

// lockRows locks rows in a transaction of another session until unlock is called.
func (w *world) lockRows(update string, args ...any) (unlock func()) {
	w.Helper()
	_, db := w.Connect()
	tx := w.begin(db)
	_, err := tx.ExecContext(w.Soon(), update, args...)
	require.NoError(w, err)
	return sync.OnceFunc(func() { require.NoError(w, tx.Rollback()) })
}

// keysBesideLocks locks rows of the shared tables, one after another, for part of a lease.
func keysBesideLocks(w *world) {
	w.skipWithoutRowLocks()
	var lost losses
	other := w.Queue("other", chanq.Config{})
	q := w.keys(chanq.Config{Hooks: lost.hooks()})
	ms, _ := manyKeys(20, 1)
	testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 4 * steadyLease})
	leases := testdb.Take(w, c, 20)
	w.Eventually("it has joined", func() bool { return len(consumers(w, q)) == 1 })
	for name, update := range map[string]string{
		"the consumer":  "UPDATE chanq__consumers SET name = name WHERE queue = 'work'",
		"another queue": "UPDATE chanq__queues SET paused = paused WHERE name = '" + other.Name() + "'",
		"a slot":        fmt.Sprint("UPDATE chanq__slots SET fence = fence WHERE queue = 'work' AND slot = ", sqlbatch.SlotOf("locked", chanq.ID{}, 4)),
	} {
		unlock := w.lockRows(update)
		for i := range 6 {
			key := fmt.Sprint("free", i)
			if sqlbatch.SlotOf(key, chanq.ID{}, 4) == sqlbatch.SlotOf("locked", chanq.ID{}, 4) {
				continue
			}
			began := time.Now()
			testdb.Send(w, q, keyed(key, 1, 1)...)
			w.ack(w.next(c, key+"/1"))
			if w.Engine.Bubble {
				require.Less(w, time.Since(began), steadyLease, name)
			}
		}
		w.pass(steadyLease)
		unlock()
		w.pass(4 * steadyLease)
		require.Empty(w, lost.but(chanq.ID{}), name)
	}
	for _, l := range leases {
		require.Equal(w, 1, l.Attempt)
		w.ack(l)
	}
}
