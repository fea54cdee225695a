package guarantees

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var delivery = []test{
	{"G01_NothingIsLostWhicheverOperationIsCutBeforeItIsApplied", func(w *world) { breakEach(w, false) }},
	{"G01_NothingIsLostWhicheverOperationIsCutAfterItWasApplied", func(w *world) { breakEach(w, true) }},
	{"G01_NothingIsLostWhenConnectionsDieAgainAndAgain", connectionsDie},
	{"G01_MessagesOfAHolderThatVanishedAreDeliveredAgain", holderVanishes},
	{"G02_EachMessageGoesToOneOfManyClaimers", manyClaimers},
	{"G02_NobodyElseGetsAMessageWhileItsLeaseIsExtended", heldIsHeld},
	{"G02_ALeaseBeginsAfterTheOneBeforeItEndedByTheDatabasesClock", leasesDoNotOverlap},
	{"G04_NoMessageOfAClaimThatFailedAfterSomeRowsReachesTheReader", failedClaim},
	{"G04_NoMessageReachesTheReaderBeforeItsClaimIsConfirmed", unconfirmedClaim},
	{"G07_AMessageThatKillsItsHandlersIsSetAside", poison},
	{"G07_AMessageThatFailsAgainAndAgainIsSetAsideWithItsLastError", alwaysFails},
	{"WithUnlimitedAttemptsNoFailureIsTheLast", unlimited},
	{"G07_AnUndecodableBodyIsSetAsideWithItsBytes", undecodable},
	{"G07_ABodyThatPanicsTheCodecIsSetAside", panickingCodec},
	{"G09_TheLocalDeadlineCountsFromBeforeTheClaimWasSent", earlyDeadline},
	{"G09_TheLocalDeadlineOfAnExtensionCountsFromBeforeItWasSent", earlyExtension},
	{"G09_ALeaseEndsLocallyAtItsDeadlineEvenWhileAnExtensionHangs", hangingExtension},
	{"G09_ALeaseEndsLocallyAtItsDeadlineEvenWhileAnExtendOfAnotherHangs", hangingExtend},
	{"G09_TheClockInAnIDDecidesNothing", clientClock},
}

// breakEach runs a life of messages once for each of its operations on the
// database, and cuts the connection at that operation.
func breakEach(w *world, applied bool) {
	q := w.queue("walk", chanq.Config{})
	for i := 0; ; i++ {
		hit := w.strikeNth(i, w.broken(applied))
		p, err := q.Producer(chanq.ProducerConfig{})
		require.NoError(w, err)
		receipts, err := p.SendBatch(w.soon(), texts("a", "b", "c")...)
		require.NoError(w, err, hit.struck())
		require.NoError(w, p.Close(w.soon()), hit.struck())

		c, err := q.Consume(w.soon(), chanq.ConsumerConfig{LeaseFor: shortLease})
		require.NoError(w, err)
		delivered := map[chanq.ID]bool{}
		for !delivered[receipts[0].ID] || !delivered[receipts[1].ID] || !delivered[receipts[2].ID] {
			l := take(w, c, 1)[0]
			_ = l.Ack()
			err := l.Wait(w.soon())
			var op *chanq.OpError
			switch {
			case errors.Is(err, chanq.ErrLeaseLost):
			case errors.As(err, &op) && op.Unknown && time.Now().After(l.Deadline()):
				// On a busy machine the lease may end before the ack is tried again.
				// Who finds the message gone cannot know who ended it; here nobody else could.
				_, err := q.Get(w.soon(), l.ID)
				delivered[l.ID] = errors.Is(err, chanq.ErrNotFound)
			default:
				require.NoError(w, err, hit.struck())
				delivered[l.ID] = true
			}
		}
		require.NoError(w, c.Shutdown(w.soon()), hit.struck())
		require.Len(w, delivered, 3, hit.struck())
		w.faults.Inject(nil)
		require.Zero(w, counted(w, q), hit.struck())
		if hit.struck() == "" {
			require.Greater(w, i, 3, "no operation was struck")
			return
		}
	}
}

func connectionsDie(w *world) {
	const count = 100
	q := w.queue("work", chanq.Config{MaxAttempts: 1000})
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, Prefetch: 20})
	p := produce(w, q, chanq.ProducerConfig{BatchRows: 10})
	broken := w.failure(sqlbatch.Unknown)
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
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
				r, err := p.Send(w.soon(), chanq.Message[string]{Body: fmt.Sprint(s, "/", i)})
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
		l := take(w, c, 1)[0]
		seen[l.ID] = true
		_ = l.Ack()
	}
	senders.Wait()
	w.faults.Inject(nil)
	sent.Range(func(id, _ any) bool {
		require.True(w, seen[id.(chanq.ID)], "a message was stored and not delivered")
		return true
	})
	// What was acked without success is delivered again, and then the queue is empty.
	w.eventually("the queue is empty", func() bool {
		select {
		case l := <-c.C():
			_ = l.Ack()
		default:
		}
		return counted(w, q) == chanq.Stats{}
	})
}

func holderVanishes(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("a", "b")...)
	gone := lease(w, q, 2, shortLease)
	again := lease(w, q, 2, time.Minute)
	require.Equal(w, []string{"a", "b"}, bodies(again))
	require.Equal(w, ids(gone), ids(again))
	require.Equal(w, 2, again[0].Attempt)
}

func manyClaimers(w *world) {
	const count = 300
	q := w.queue("work", chanq.Config{})
	send(w, q, texts(make([]string, count)...)...)
	_, other := w.connect()
	queues := []*chanq.Queue[string]{q, openOn[string](w, other, "work", chanq.Config{})}
	var mu sync.Mutex
	claimed := map[chanq.ID]int{}
	var claimers sync.WaitGroup
	for i := range 8 {
		claimers.Go(func() {
			for {
				mu.Lock()
				all := len(claimed) == count
				mu.Unlock()
				if all || w.Failed() {
					return
				}
				leases, err := queues[i%2].TryLease(w.soon(), 7, time.Hour)
				if err != nil {
					w.Errorf("claim: %v", err)
				}
				mu.Lock()
				for _, l := range leases {
					if claimed[l.ID]++; claimed[l.ID] > 1 || l.Attempt != 1 {
						w.Errorf("message %v was leased twice", l.ID)
					}
				}
				mu.Unlock()
			}
		})
	}
	claimers.Wait()
}

func heldIsHeld(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("read", "buffered")...)
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	l := take(w, c, 1)[0]
	w.eventually("the other is buffered", func() bool { return c.Stats().Buffered == 1 })
	first := get(w, q, l.ID).At
	w.eventually("the leases were extended over twice their length", func() bool {
		others, err := q.TryLease(w.soon(), 10, time.Minute)
		require.NoError(w, err)
		require.Empty(w, others)
		return get(w, q, l.ID).At.Sub(first) > 2*steadyLease
	})
	require.Equal(w, chanq.Stats{Leased: 2}, counted(w, q))
	require.NoError(w, l.Context().Err())
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.soon()))
}

func leasesDoNotOverlap(w *world) {
	q := w.queue("work", chanq.Config{MaxAttempts: 100})
	id := send(w, q, texts("a")...)[0]
	const d = 150 * time.Millisecond
	var end time.Time
	for range 4 {
		lease(w, q, 1, d)
		next := get(w, q, id).At
		require.False(w, next.Add(-d).Before(end), "a lease began at %v, the one before ended at %v", next.Add(-d), end)
		end = next
	}
}

func failedClaim(w *world) {
	for _, f := range []faultdb.Fault{
		faultdb.Cut(w.failure(sqlbatch.Unknown)).AfterRows(3),
		faultdb.Fail(w.failure(sqlbatch.RolledBack)).AfterRows(2),
	} {
		q := w.queue("work", chanq.Config{})
		send(w, q, texts("a", "b", "c")...)
		st := w.statements("work")
		hit := w.strike(f, func(op faultdb.Op) bool { return claims(op, st) })
		c := start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease})
		for _, l := range take(w, c, 3) {
			// The claim that failed was applied here, so the next one is the second.
			require.Equal(w, 2, l.Attempt, "a message of the failed claim was delivered")
			require.NoError(w, l.Ack())
			require.NoError(w, l.Wait(w.soon()))
		}
		require.NotEmpty(w, hit.struck())
		require.NoError(w, c.Shutdown(w.soon()))
		require.EqualValues(w, 3, c.Stats().Claimed)
	}
}

func unconfirmedClaim(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("a", "b")...)
	_, other := w.connect()
	observer := openOn[string](w, other, "work", chanq.Config{})
	gate := make(chan struct{})
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, w.statements("work")) {
			return faultdb.Hold(gate).Applied()
		}
		return faultdb.Fault{}
	})
	c := start(w, q, chanq.ConsumerConfig{})
	w.eventually("the database has the claim", func() bool { return stats(w, observer).Leased == 2 })
	require.Zero(w, c.Stats().Held)
	require.Empty(w, c.C())
	close(gate)
	require.Equal(w, []string{"a", "b"}, bodies(take(w, c, 2)))
}

func poison(w *world) {
	var dead []chanq.DeadEvent
	var mu sync.Mutex
	cfg := chanq.Config{MaxAttempts: 2, Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e)
	}}}
	q := w.queue("work", cfg)
	id := send(w, q, chanq.Message[string]{Body: "poison", Headers: map[string]string{"k": "v"}})[0]
	for attempt := 1; attempt <= 3; attempt++ { // the last as the only suspect
		require.Equal(w, attempt, lease(w, q, 1, 100*time.Millisecond)[0].Attempt)
	}
	send(w, q, texts("good")...)
	c := start(w, q, chanq.ConsumerConfig{})
	require.Equal(w, "good", take(w, c, 1)[0].Body)
	w.eventually("the poison is dead", func() bool { return stats(w, q).Dead == 1 })
	e := get(w, q, id)
	require.Equal(w, chanq.StateDead, e.State)
	require.Equal(w, []byte("poison"), e.Body)
	require.Equal(w, map[string]string{"k": "v"}, e.Headers)
	require.Contains(w, e.LastError, "3 attempts")
	w.eventually("the hook is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(dead) == 1 && dead[0] == chanq.DeadEvent{Queue: "work", ID: id, Attempt: 3, Reason: e.LastError}
	})
}

func alwaysFails(w *world) {
	q := w.queue("work", chanq.Config{MaxAttempts: 3})
	id := send(w, q, texts("a")...)[0]
	for attempt := 1; attempt <= 3; attempt++ {
		l := lease(w, q, 1, time.Minute)[0]
		require.Equal(w, attempt, l.Attempt)
		require.NoError(w, l.Release(), "a release does not count")
		l = lease(w, q, 1, time.Minute)[0]
		require.Equal(w, attempt, l.Attempt)
		l.Attempt = 0 // the fields are the reader's
		require.NoError(w, l.Nack(0, fmt.Errorf("failure %d", attempt)))
	}
	e := get(w, q, id)
	require.Equal(w, chanq.StateDead, e.State)
	require.Equal(w, "failure 3", e.LastError)
	require.Equal(w, 3, e.Attempts)
}

func unlimited(w *world) {
	q := w.queue("work", chanq.Config{MaxAttempts: chanq.UnlimitedAttempts})
	id := send(w, q, texts("a")...)[0]
	for attempt := 1; attempt <= 11; attempt++ { // one more than the default
		l := lease(w, q, 1, time.Minute)[0]
		require.Equal(w, attempt, l.Attempt)
		require.NoError(w, l.Nack(0, errors.New("not yet")))
	}
	for range 3 { // as a suspect, too
		lease(w, q, 1, 100*time.Millisecond)
	}
	w.eventually("it is ready again", func() bool { return get(w, q, id).State == chanq.StateReady })
	require.NoError(w, lease(w, q, 1, time.Minute)[0].DeadLetter(errors.New("enough")))
	w.requireState(q, id, chanq.StateDead)
	_, err := chanq.Open[string](w.soon(), w.db, "work", chanq.Config{MaxAttempts: -2})
	require.ErrorContains(w, err, "Config.MaxAttempts is -2")
}

func undecodable(w *world) {
	type order struct{ Number int }
	raw := w.queue("work", chanq.Config{})
	bad := send(w, raw, texts(`{"Number": 1`)...)[0]
	send(w, raw, texts(`{"Number": 2}`)...)
	q := openOn[order](w, w.db, "work", chanq.Config{})
	c := start(w, q, chanq.ConsumerConfig{})
	l := take(w, c, 1)[0]
	require.Equal(w, 2, l.Body.Number)
	require.NoError(w, l.Ack())
	w.eventually("the other is dead", func() bool { return counted(w, q) == chanq.Stats{Dead: 1} })
	e := get(w, q, bad)
	require.Equal(w, []byte(`{"Number": 1`), e.Body)
	require.Contains(w, e.LastError, "cannot decode")

	send(w, raw, texts(`not a number`)...)
	none, err := q.TryLease(w.soon(), 1, time.Minute)
	require.NoError(w, err)
	require.Empty(w, none)
	w.eventually("TryLease, or the consumer before it, sets it aside", func() bool { return stats(w, q).Dead == 2 })
}

// fussy is a codec that panics on some bodies.
type fussy struct{}

func (fussy) Encode(body any) ([]byte, error) { return json.Marshal(body) }

func (fussy) Decode(data []byte, body any) error {
	if bytes.Contains(data, []byte("panic")) {
		panic("fussy")
	}
	return json.Unmarshal(data, body)
}

func panickingCodec(w *world) {
	q := queueOf[map[string]int](w, "work", chanq.Config{Codec: fussy{}})
	sent := send(w, q, chanq.Message[map[string]int]{Body: map[string]int{"panic": 1}}, chanq.Message[map[string]int]{Body: map[string]int{"fine": 2}})
	c := start(w, q, chanq.ConsumerConfig{})
	require.Equal(w, map[string]int{"fine": 2}, take(w, c, 1)[0].Body)
	w.eventually("the other is dead", func() bool { return get(w, q, sent[0]).State == chanq.StateDead })
}

func earlyDeadline(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, texts("a")...)[0]
	const late = 200 * time.Millisecond
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !claims(op, w.statements("work")) {
			return faultdb.Fault{}
		}
		return faultdb.Hold(after(late))
	})
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute})
	l := take(w, c, 1)[0]
	require.WithinRange(w, l.Deadline(), time.Now(), get(w, q, id).At.Add(-late*9/10),
		"the claim came to the database %v after it was sent", late)
}

func earlyExtension(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, texts("a")...)[0]
	l := lease(w, q, 1, time.Minute)[0]
	const late = 200 * time.Millisecond
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !ends(op, w.statements("work")) {
			return faultdb.Fault{}
		}
		return faultdb.Hold(after(late))
	})
	require.NoError(w, l.Extend(w.soon(), time.Hour))
	require.WithinRange(w, l.Deadline(), time.Now().Add(50*time.Minute), get(w, q, id).At.Add(-late*9/10))
}

// after is a gate that opens later.
func after(d time.Duration) <-chan struct{} {
	gate := make(chan struct{})
	time.AfterFunc(d, func() { close(gate) })
	return gate
}

func hangingExtension(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("a")...)
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if extends(op, w.statements("work")) {
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, StatementTimeout: 10 * time.Second})
	l := take(w, c, 1)[0]
	deadline := l.Deadline()
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
	}
	require.ErrorIs(w, context.Cause(l.Context()), chanq.ErrLeaseLost)
	require.WithinDuration(w, deadline, time.Now(), 3*time.Second)
}

func hangingExtend(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("a", "b")...)
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, StatementTimeout: 5 * time.Second})
	leases := take(w, c, 2)
	st := w.statements("work")
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if extends(op, st) || ends(op, st) {
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	extended := make(chan error, 1)
	began := time.Now()
	go func() { extended <- leases[0].Extend(context.Background(), time.Hour) }()
	w.ended(leases[1])
	require.Less(w, time.Since(began), 4*time.Second, "it waited for the statement's deadline")
	require.ErrorIs(w, <-extended, context.DeadlineExceeded, "which ends an Extend, too")
}

func clientClock(w *world) {
	q := w.queue("work", chanq.Config{})
	future := chanq.ID{0xff, 0xff, 0xff}
	past := chanq.ID{0, 0, 1}
	send(w, q, chanq.Message[string]{ID: future, Body: "made by a clock of the future"})
	first := get(w, q, future).At
	w.eventually("the database's clock goes on", func() bool {
		send(w, q, chanq.Message[string]{ID: past, Body: "made by a clock of the past"})
		if get(w, q, past).At.After(first) {
			return true
		}
		_, err := q.Cancel(w.soon(), past)
		require.NoError(w, err)
		return false
	})
	require.Equal(w, []string{"made by a clock of the future", "made by a clock of the past"}, bodies(lease(w, q, 2, time.Minute)))

	id := send(w, q, chanq.Message[string]{ID: chanq.ID{0, 0, 2}, Delay: 200 * time.Millisecond})[0]
	l := lease(w, q, 1, time.Minute)[0]
	require.Equal(w, 200*time.Millisecond, l.DueAt.Sub(l.EnqueuedAt))
	require.False(w, get(w, q, id).At.Add(-time.Minute).Before(l.DueAt), "claimed before it was due by the database's clock")
}
