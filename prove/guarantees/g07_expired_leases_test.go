package guarantees

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Expired leases are no failed attempts.
var expiredLeases = []test{
	{"G07_AnExpiredLeaseIsNoFailedAttempt", lapsesCountNothing},
	{"G07_ASettleResetsTheCountOfCrashes", settleClears},
	{"G07_AnExpiredLeaseLeavesAllAttemptsForFailures", attemptsForFailures},
	{"G07_ADeadMessageSaysHowOftenItWasTried", deadSaysWhy},
}

// lapse lets the leases of n messages expire, the given number of times. They are claimed together and never settled. A lapse is counted by
// the next claim.
func lapse(w *world, q *chanq.Queue[string], n, times int) {
	w.Helper()
	for range times {
		w.Hold(q.Name(), n, 100*time.Millisecond)
	}
}

// lapsesCountNothing: messages held by a process that died have not failed, whatever MaxAttempts is.
func lapsesCountNothing(w *world) {
	for _, most := range []int{1, 2} {
		name := fmt.Sprint("work", most)
		q := w.Queue(name, chanq.Config{Spec: chanq.Spec{MaxAttempts: most}})
		testdb.Send(w, q, testdb.Texts("killer", "beside")...)
		lapse(w, q, 2, 1)
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "killer", l.Body)
		require.Equal(w, 2, l.Attempt)
		require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
		beside := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "beside", beside.Body)
		require.Equal(w, 2, beside.Attempt)
		require.NoError(w, beside.Ack())
		require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
	}
}

// attemptsForFailures: a message that was only held together with one that kills its process has not been handled yet, and may fail as
// often as any other.
func attemptsForFailures(w *world) {
	const most = 3
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: most}})
	id := testdb.Send(w, q, testdb.Texts("beside")...)[0]
	lapse(w, q, 1, 1)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.Equal(w, 2, l.Attempt)
	require.Zero(w, l.Failures())
	for failure := 1; failure < most; failure++ {
		require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
		require.Equal(w, failure, testdb.Get(w, q, id).Attempts, "lapses are not counted as attempts")
		l = testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, failure+1, l.Attempt)
		require.Equal(w, failure, l.Failures())
	}
	require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.Equal(w, most, e.Attempts)
}

// settleClears: after a nack or a snooze the next expired lease is the first one in a row. A release says nothing about a message.
func settleClears(w *world) {
	for kind, cfg := range idleKinds {
		q := w.Queue(kind, cfg)
		id := testdb.Send(w, q, testdb.Texts("a")...)[0]
		of := func() (lapses int) {
			return w.count("SELECT lapses FROM chanq_" + kind)
		}
		for _, c := range []struct {
			settle func(*testdb.Held[string]) error
			lapses int
		}{
			{func(l *testdb.Held[string]) error { return l.Nack(chanq.RetryAfter(0, errors.New("no"))) }, 0},
			{func(l *testdb.Held[string]) error { return l.Nack(chanq.Snooze(0, nil)) }, 0},
			{func(l *testdb.Held[string]) error { return l.Release() }, 1},
		} {
			w.Exec("UPDATE chanq_" + kind + " SET lapses = 1, attempts = 1 WHERE id = " + w.sqlID(id))
			l := testdb.Lease(w, q, 1, time.Minute)[0]
			require.Equal(w, 2, l.Attempt)
			require.NoError(w, c.settle(l))
			require.Equal(w, c.lapses, of(), kind)
		}
	}
}

func deadSaysWhy(w *world) {
	for _, c := range []struct{ attempts, crashes int }{{1, 0}, {3, 1}, {20, 2}, {chanq.UnlimitedAttempts, 4}} {
		var mu sync.Mutex
		var dead []chanq.DeadEvent
		most := cmp.Or(c.crashes, mortal)
		name := fmt.Sprint("work", most)
		q := w.Queue(name, chanq.Config{Spec: chanq.Spec{MaxAttempts: c.attempts}, MaxCrashes: c.crashes, Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
			mu.Lock()
			defer mu.Unlock()
			dead = append(dead, e)
		}}})
		id := testdb.Send(w, q, testdb.Texts("killer")...)[0]
		lapse(w, q, 1, most)
		w.Eventually("a consumer dead-letters it", func() bool {
			testdb.RequireNone(w, q)
			return testdb.Stats(w, q).Dead == 1
		})
		e := testdb.Get(w, q, id)
		require.Equal(w, most, e.Attempts, "each attempt was a delivery")
		require.Contains(w, e.LastError, fmt.Sprintf("%d attempts; the last %d leases expired without a settle", most, most))
		require.Equal(w, []chanq.DeadEvent{{Queue: name, ID: id, Attempt: most, Cause: chanq.CauseKilled, Reason: e.LastError}}, dead)
		require.Equal(w, chanq.CauseKilled, e.Cause)
		require.Empty(w, e.Fingerprint)
	}
}
