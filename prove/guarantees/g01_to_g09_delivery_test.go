package guarantees

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var delivery = []test{
	{"G01_NothingIsLostWhicheverOperationIsCutBeforeItIsApplied", func(w *world) { breakEach(w, false) }},
	{"G01_NothingIsLostWhicheverOperationIsCutAfterItWasApplied", func(w *world) { breakEach(w, true) }},
	{"G01_NothingIsLostWhenConnectionsBreakRepeatedly", connectionsDie},
	{"G01_MessagesWhoseLeasesExpiredAreRedelivered", holderVanishes},
	{"G02_EachMessageGoesToOneOfManyConsumers", manyClaimers},
	{"G02_NoOtherConsumerGetsAMessageWhileItsLeaseIsExtended", heldIsHeld},
	{"G02_ALeaseStartsAfterThePreviousOneExpiredByTheDatabasesClock", leasesDoNotOverlap},
	{"G04_NoMessageOfAClaimThatFailedAfterSomeRowsReachesTheReader", failedClaim},
	{"G04_NoMessageReachesTheReaderBeforeItsClaimIsConfirmed", unconfirmedClaim},
	{"G07_AMessageWhoseLeasesExpireIsDeadLetteredAfterMaxCrashes", poison},
	{"G07_AMessageThatKeepsFailingIsDeadLetteredWithItsLastError", alwaysFails},
	{"WithUnlimitedAttemptsNoFailureDeadLettersAMessage", unlimited},
	{"G07_AnUndecodableBodyIsDeadLetteredWithItsBytes", undecodable},
	{"G09_TheLocalDeadlineCountsFromBeforeTheClaimWasSent", earlyDeadline},
	{"G09_TheLocalDeadlineOfAnExtensionCountsFromBeforeItWasSent", earlyExtension},
	{"G09_TheLocalDeadlineOfAnAutomaticExtensionCountsFromBeforeItWasSent", earlyAutomaticExtension},
	{"G09_ALeaseExpiresLocallyAtItsDeadlineEvenWhileAnExtendOfAnotherHangs", hangingExtend},
	{"G09_TheTimeInAnIDHasNoEffect", clientClock},
}

// breakEach repeats the life cycle of three messages and cuts the connection at another operation
// each time.
func breakEach(w *world, applied bool) {
	q := w.Queue("walk", chanq.Config{})
	for i := 0; ; i++ {
		hit := w.StrikeNth(i, w.Broken(applied))
		p, err := q.Producer(context.Background(), chanq.ProducerConfig{})
		require.NoError(w, err)
		receipts, err := p.SendBatch(w.Soon(), testdb.Texts("a", "b", "c")...)
		require.NoError(w, err, hit.Struck())
		require.NoError(w, p.Close(w.Soon()), hit.Struck())

		c, err := q.Consume(w.Soon(), chanq.ConsumerConfig{LeaseFor: shortLease})
		require.NoError(w, err)
		delivered := map[chanq.ID]bool{}
		for !delivered[receipts[0].ID] || !delivered[receipts[1].ID] || !delivered[receipts[2].ID] {
			l := testdb.Take(w, c, 1)[0]
			_ = l.Ack()
			err := l.Wait(w.Soon())
			var op *chanq.OpError
			switch {
			case errors.Is(err, chanq.ErrLeaseLost):
			case errors.As(err, &op) && op.Unknown && time.Now().After(l.Deadline()):
				// On a busy machine the lease might end before the ack is repeated. A missing row
				// does not show which session deleted it; in this test no other session does.
				_, err := testdb.Admin(q).Get(w.Soon(), l.ID)
				delivered[l.ID] = errors.Is(err, chanq.ErrNotFound)
			default:
				require.NoError(w, err, hit.Struck())
				delivered[l.ID] = true
			}
		}
		require.NoError(w, c.Shutdown(w.Soon()), hit.Struck())
		require.Len(w, delivered, 3, hit.Struck())
		w.Faults.Inject(nil)
		require.Zero(w, testdb.Counted(w, q), hit.Struck())
		if hit.Struck() == "" {
			require.Greater(w, i, 3, "no fault was injected")
			return
		}
	}
}

func connectionsDie(w *world) {
	const count = 100
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1000}, MaxCrashes: 1000})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, Prefetch: 20})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 10})
	broken := w.Failure(sqlbatch.Unknown)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch op.N % 17 {
		case 3:
			return faultdb.Cut(broken)
		case 9:
			return faultdb.Cut(broken).Applied()
		}
		return faultdb.Fault{}
	})
	var sent sync.Map
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for i := range count / 4 {
				r, err := p.Send(w.Soon(), chanq.Message[string]{Body: fmt.Sprint(s, "/", i)})
				if err == nil {
					sent.Store(r.ID, true)
				} else {
					w.Errorf("send: %v", err)
				}
			}
		})
	}
	seen := map[chanq.ID]bool{}
	for len(seen) < count {
		l := testdb.Take(w, c, 1)[0]
		seen[l.ID] = true
		_ = l.Ack()
	}
	senders.Wait()
	w.Faults.Inject(nil)
	sent.Range(func(id, _ any) bool {
		require.True(w, seen[id.(chanq.ID)], "a message was stored and not delivered")
		return true
	})
	// Messages whose ack failed are redelivered, and then the queue is empty.
	w.Eventually("the queue is empty", func() bool {
		select {
		case l := <-c.C():
			_ = l.Ack()
		default:
		}
		return testdb.Counted(w, q) == chanqadmin.Stats{}
	})
}

func holderVanishes(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	gone := testdb.Leases(testdb.Lease(w, q, 2, steadyLease))
	again := testdb.Leases(testdb.Lease(w, q, 2, time.Minute))
	require.Equal(w, []string{"a", "b"}, testdb.Bodies(again))
	require.Equal(w, testdb.IDs(gone), testdb.IDs(again))
	require.Equal(w, 2, again[0].Attempt)
}

func manyClaimers(w *world) {
	const count = 300
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(make([]string, count)...)...)
	_, other := w.Connect()
	queues := []*chanq.Queue[string]{q, testdb.OpenOn[string](w, other, "work", chanq.Config{})}
	var mu sync.Mutex
	claimed := map[chanq.ID]int{}
	var claimers sync.WaitGroup
	defer claimers.Wait()
	for i := range 8 {
		c := testdb.Start(w, queues[i%2], chanq.ConsumerConfig{Prefetch: 7, LeaseFor: time.Hour})
		claimers.Go(func() {
			for l := range c.C() {
				mu.Lock()
				if claimed[l.ID]++; claimed[l.ID] > 1 || l.Attempt != 1 {
					w.Errorf("message %v was leased twice", l.ID)
				}
				mu.Unlock()
			}
		})
		defer c.Stop()
	}
	w.Eventually("all are leased", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(claimed) == count || w.Failed()
	})
}

func heldIsHeld(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("read", "buffered")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
	l := testdb.Take(w, c, 1)[0]
	w.Eventually("the other is buffered", func() bool { return c.Stats().Buffered == 1 })
	first := testdb.Get(w, q, l.ID).LeaseUntil
	w.Eventually("the leases were extended beyond their length", func() bool {
		testdb.RequireNone(w, q)
		return testdb.Get(w, q, l.ID).LeaseUntil.Sub(first) > lastingLease*5/4
	})
	require.Equal(w, chanqadmin.Stats{Leased: 2}, testdb.Counted(w, q))
	require.NoError(w, l.Context().Err())
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
}

func leasesDoNotOverlap(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 100}})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	const d = 150 * time.Millisecond
	var end time.Time
	for range 4 {
		w.Hold(q.Name(), 1, d)
		next := testdb.Get(w, q, id).LeaseUntil
		require.False(w, next.Add(-d).Before(end), "a lease began at %v, the one before ended at %v", next.Add(-d), end)
		end = next
	}
}

func failedClaim(w *world) {
	for _, f := range []faultdb.Fault{
		faultdb.Cut(w.Failure(sqlbatch.Unknown)).AfterRows(3),
		faultdb.Fail(w.Failure(sqlbatch.RolledBack)).AfterRows(2),
	} {
		q := w.Queue("work", chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
		st := w.Statements("work")
		hit := w.Strike(f, func(op faultdb.Op) bool { return claims(op, st) })
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
		for _, l := range testdb.Take(w, c, 3) {
			// The failed claim was applied, so the next attempt is the second.
			require.Equal(w, 2, l.Attempt, "a message of the failed claim was delivered")
			require.NoError(w, l.Ack())
			require.NoError(w, l.Wait(w.Soon()))
		}
		require.NotEmpty(w, hit.Struck())
		require.NoError(w, c.Shutdown(w.Soon()))
		require.EqualValues(w, 3, c.Stats().Claimed)
	}
}

func unconfirmedClaim(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	_, other := w.Connect()
	observer := testdb.OpenOn[string](w, other, "work", chanq.Config{})
	gate := make(chan struct{})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, w.Statements("work")) {
			return faultdb.Hold(gate).Applied()
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("the database has the claim", func() bool { return testdb.Stats(w, observer).Leased == 2 })
	require.Zero(w, c.Stats().Held)
	require.Empty(w, c.C())
	close(gate)
	require.Equal(w, []string{"a", "b"}, testdb.Bodies(testdb.Take(w, c, 2)))
}

func poison(w *world) {
	var dead []chanq.DeadEvent
	var mu sync.Mutex
	cfg := chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}, Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e)
	}}}
	q := w.Queue("work", cfg)
	id := testdb.Send(w, q, chanq.Message[string]{Body: "poison", Headers: map[string]string{"k": "v"}})[0]
	lapse(w, q, 1, mortal)
	testdb.Send(w, q, testdb.Texts("good")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.Equal(w, "good", testdb.Take(w, c, 1)[0].Body)
	w.Eventually("the poison is dead", func() bool { return testdb.Stats(w, q).Dead == 1 })
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.Equal(w, []byte("poison"), e.Body)
	require.Equal(w, map[string]string{"k": "v"}, e.Headers)
	require.Contains(w, e.LastError, "8 attempts")
	w.Eventually("the hook is called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(dead) == 1 && reflect.DeepEqual(dead[0], chanq.DeadEvent{Queue: "work", ID: id, Headers: e.Headers, Attempt: mortal, Cause: chanq.CauseKilled, Reason: e.LastError})
	})
}

func alwaysFails(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 3}})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	for attempt := 1; attempt <= 3; attempt++ {
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, attempt, l.Attempt)
		require.NoError(w, l.Release(), "a release does not count")
		l = testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, attempt, l.Attempt)
		l.Attempt = 0 // readers may change the fields
		require.NoError(w, l.Nack(chanq.RetryAfter(0, fmt.Errorf("failure %d", attempt))))
	}
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.Equal(w, "failure 3", e.LastError)
	require.Equal(w, 3, e.Attempts)
}

func unlimited(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: chanq.UnlimitedAttempts}})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	for attempt := 1; attempt <= 11; attempt++ { // one more than the default MaxAttempts
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, attempt, l.Attempt)
		require.NoError(w, l.Nack(chanq.RetryAfter(0, errors.New("not yet"))))
	}
	lapse(w, q, 1, 1)
	w.Eventually("it is ready again", func() bool { return testdb.Get(w, q, id).State == chanqadmin.StateReady })
	require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Nack(chanq.DeadLetter(errors.New("enough"))))
	w.requireState(q, id, chanqadmin.StateDead)
	_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{Spec: chanq.Spec{MaxAttempts: -2}})
	require.ErrorContains(w, err, "Spec.MaxAttempts is -2")
}

func undecodable(w *world) {
	type order struct{ Number int }
	raw := w.Queue("work", chanq.Config{})
	bad := testdb.Send(w, raw, testdb.Texts(`{"Number": 1`)...)[0]
	testdb.Send(w, raw, testdb.Texts(`{"Number": 2}`)...)
	q := testdb.OpenOn[order](w, w.DB, "work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, 2, l.Body.Number)
	require.NoError(w, l.Ack())
	w.Eventually("the other is dead", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Dead: 1} })
	e := testdb.Get(w, q, bad)
	require.Equal(w, []byte(`{"Number": 1`), e.Body)
	require.Contains(w, e.LastError, "cannot decode")
	require.Equal(w, chanq.CauseUndecodable, e.Cause)
	require.NotEmpty(w, e.Fingerprint)

	testdb.Send(w, raw, testdb.Texts(`not a number`)...)
	w.Eventually("it is dead-lettered", func() bool { return testdb.Stats(w, q).Dead == 2 })
}

func earlyDeadline(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	const late = 200 * time.Millisecond
	w.holdFor(late, claims)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute})
	l := testdb.Take(w, c, 1)[0]
	require.WithinRange(w, l.Deadline(), time.Now(), testdb.Get(w, q, id).LeaseUntil.Add(-late*9/10),
		"the claim reached the database %v after it was sent", late)
}

func earlyExtension(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	const late = 200 * time.Millisecond
	w.holdFor(late, extends)
	require.NoError(w, l.Extend(w.Soon(), time.Hour))
	require.WithinRange(w, l.Deadline(), time.Now().Add(50*time.Minute), testdb.Get(w, q, id).LeaseUntil.Add(-late*9/10))
}

func earlyAutomaticExtension(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	const late = 200 * time.Millisecond
	w.holdFor(late, extends)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: slowness * 3 * time.Second})
	l := testdb.Take(w, c, 1)[0]
	claimed := l.Deadline()
	w.Eventually("the lease is extended", func() bool { return l.Deadline().After(claimed.Add(late)) })
	local := l.Deadline()
	require.False(w, local.After(testdb.Get(w, q, id).LeaseUntil.Add(-late*9/10)))
}

// holdFor delays the statements of the queue work that meant accepts.
func (w *world) holdFor(d time.Duration, meant func(faultdb.Op, sqlbatch.Queue) bool) {
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !meant(op, w.Statements("work")) {
			return faultdb.Fault{}
		}
		return faultdb.Hold(after(d))
	})
}

// after returns a channel that is closed after d.
func after(d time.Duration) <-chan struct{} {
	gate := make(chan struct{})
	time.AfterFunc(d, func() { close(gate) })
	return gate
}

func hangingExtend(w *world) {
	timeout := slowness * 5 * time.Second
	q := w.Queue("work", chanq.Config{StatementTimeout: timeout})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease})
	leases := testdb.Take(w, c, 2)
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if extends(op, st) {
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	extended := make(chan error, 1)
	began := time.Now()
	go func() { extended <- leases[0].Extend(context.Background(), time.Hour) }()
	w.ended(leases[1])
	require.Less(w, time.Since(began), timeout-time.Second, "it waited for the statement's deadline")
	require.ErrorIs(w, <-extended, context.DeadlineExceeded, "the deadline also ends an Extend")
}

func clientClock(w *world) {
	q := w.Queue("work", chanq.Config{})
	future := chanq.ID{0xff, 0xff, 0xff}
	past := chanq.ID{0, 0, 1}
	testdb.Send(w, q, chanq.Message[string]{ID: future, Body: "made by a clock of the future"})
	first := testdb.Get(w, q, future).DueAt
	w.Eventually("the database's clock advances", func() bool {
		testdb.Send(w, q, chanq.Message[string]{ID: past, Body: "made by a clock of the past"})
		if testdb.Get(w, q, past).DueAt.After(first) {
			return true
		}
		_, err := q.Cancel(w.Soon(), past)
		require.NoError(w, err)
		return false
	})
	require.Equal(w, []string{"made by a clock of the future", "made by a clock of the past"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 2, time.Minute))))

	id := testdb.Send(w, q, chanq.Message[string]{ID: chanq.ID{0, 0, 2}, Delay: 200 * time.Millisecond})[0]
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.Equal(w, 200*time.Millisecond, l.DueAt.Sub(l.EnqueuedAt))
	require.False(w, testdb.Get(w, q, id).LeaseUntil.Add(-time.Minute).Before(l.DueAt), "claimed before it was due by the database's clock")
}
