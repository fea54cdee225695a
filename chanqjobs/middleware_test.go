package chanqjobs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
)

// The old program of a rollout gets jobs that only the new one knows. They wait for it, and lose no attempt.
func TestUnknownKindsOfARolloutReachTheNewProgram(t *testing.T) {
	testdb.OnEach(t, inBubbles, rollout)
}

func rollout(w *testdb.World) {
	w.Within(48 * time.Hour)
	const n = 20
	q := jobsOf(w, "jobs", chanq.Config{Spec: chanq.Spec{MaxAttempts: 3}})
	// These were sent long before: a queue may have a backlog.
	for i := range n {
		m := charge.New(i)
		m.Delay = 25 * time.Hour
		testdb.Send(w, q, m)
	}
	time.Sleep(25 * time.Hour)
	program := func(m *chanqjobs.Mux) *chanq.Consumer[chanqjobs.Job] {
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		go func() { _ = c.Handle(2, m.Handle) }()
		return c
	}
	old := program(chanqjobs.NewMux())
	time.Sleep(5 * time.Minute)
	require.Greater(w, old.Stats().Released, int64(5*n), "they were released again and again")
	var got tally
	program(counting(&got)) // the two programs run for another while
	w.Eventually("the new program has handled them", func() bool { return testdb.Empty(w, q) })
	require.Len(w, got.counts(), n)
	require.Zero(w, old.Stats().Dead)
}

func TestAMisspeltKindIsDeadWithinItsBound(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(3 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{})
		id := testdb.Send(w, q, chanqjobs.Define[int]("chrage").New(1))[0]
		began := time.Now()
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		go func() { _ = c.Handle(1, chanqjobs.NewMux().Handle) }()
		time.Sleep(time.Hour - time.Minute)
		require.Equal(w, 1, testdb.Counted(w, q).Scheduled, "it waits for a program that handles it")
		w.Eventually("it is dead", func() bool { return c.Stats().Dead == 1 })
		e := testdb.Get(w, q, id)
		require.WithinRange(w, e.EndedAt, began.Add(time.Hour-time.Second), began.Add(time.Hour+32*time.Second))
		require.Equal(w, `no handler for the kind "chrage"`, e.LastError)
		require.Equal(w, chanq.CauseRejected, e.Cause)

		later := testdb.Send(w, q, chanqjobs.Define[int]("chrage").New(2))[0]
		w.Eventually("the next one is dead", func() bool { return c.Stats().Dead == 2 })
		require.Less(w, testdb.Get(w, q, later).EndedAt.Sub(e.EndedAt), time.Minute)
	})
}

// A kind that was unknown in an earlier rollout has all of its time in the next one.
func TestTheTimeOfAnUnknownKindBeginsAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := chanqjobs.UnknownWaits(time.Hour)
		meet := func(kind string) chanq.HandlerOutcome {
			return chanq.Outcome(unknown(t.Context(), received(t, kind, "")))
		}
		require.Equal(t, chanq.HandlerOutcome{Kind: chanq.OutcomeSnooze, Delay: 30 * time.Second, Reason: `no handler for the kind "a"`}, meet("a"))
		time.Sleep(time.Hour - time.Second)
		require.Equal(t, chanq.OutcomeSnooze, meet("a").Kind)
		require.Equal(t, chanq.OutcomeSnooze, meet("b").Kind, "each kind has a time")
		time.Sleep(time.Second)
		require.Equal(t, chanq.OutcomeDeadLetter, meet("a").Kind)
		time.Sleep(time.Hour + time.Second)
		require.Equal(t, chanq.OutcomeSnooze, meet("a").Kind)
		require.Equal(t, chanq.OutcomeSnooze, meet("b").Kind)
	})
	require.Equal(t, chanq.OutcomeDeadLetter, chanq.Outcome(chanqjobs.UnknownWaits(0)(t.Context(), received(t, "a", ""))).Kind)
}

// everySecond is a limiter, as *rate.Limiter is one.
type everySecond struct{ calls atomic.Int64 }

func (e *everySecond) Wait(context.Context) error {
	if e.calls.Add(1) == 3 {
		return errors.New("the limit is away")
	}
	time.Sleep(time.Second)
	return nil
}

func TestALimitDelaysCallsAndCountsNoAttempt(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
		testdb.Send(w, q, charge.New(1), charge.New(2), charge.New(3), charge.New(4))
		var called []time.Duration
		began := time.Now()
		m := chanqjobs.NewMux()
		chanqjobs.Handle(m, charge, func(_ context.Context, l *chanq.Lease[int]) error {
			require.Equal(w, 1, l.Attempt)
			called = append(called, time.Since(began).Round(100*time.Millisecond))
			return nil
		}, chanqjobs.Options{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{Middleware: []chanq.Middleware{chanqjobs.Limit(&everySecond{})}})
		go func() { _ = c.Handle(1, m.Handle) }()
		w.Eventually("all are acked", func() bool { return c.Stats().Acked == 4 })
		require.Len(w, called, 4)
		for i, at := range called {
			require.GreaterOrEqual(w, at, time.Duration(i+1)*time.Second)
		}
		require.EqualValues(w, 1, c.Stats().Released)
	})
}

func TestABreakerPausesOneKindAndThenTriesOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := chanqjobs.Breaker(3, time.Minute)
		calls := 0
		call := func(kind string, result error) chanq.HandlerOutcome {
			return chanq.Outcome(b(t.Context(), &chanq.Delivery{Type: kind}, func(context.Context) error {
				calls++
				return result
			}))
		}
		fails := func(n int) {
			for range n {
				call("mail", errBad)
			}
		}
		fails(2)
		call("mail", chanq.DeadLetter(errBad)) // the service answered
		fails(2)
		require.Equal(t, 5, calls, "three failures in a row have not been")
		fails(1)
		paused := call("mail", nil)
		require.Equal(t, 6, calls)
		require.Equal(t, chanq.HandlerOutcome{Kind: chanq.OutcomeSnooze, Delay: time.Minute,
			Reason: `the last 3 calls for the kind "mail" failed: paused`}, paused)
		require.Equal(t, chanq.OutcomeAck, call("other", nil).Kind)

		time.Sleep(time.Minute)
		var during chanq.HandlerOutcome
		_ = b(t.Context(), &chanq.Delivery{Type: "mail"}, func(context.Context) error {
			during = call("mail", nil)
			return chanq.RetryAfter(0, errBad)
		})
		require.Equal(t, chanq.OutcomeSnooze, during.Kind, "one job tries, the others wait for it")
		require.Equal(t, chanq.OutcomeSnooze, call("mail", nil).Kind, "it failed")

		time.Sleep(time.Minute)
		require.Equal(t, chanq.OutcomeAck, call("mail", nil).Kind)
		require.Equal(t, chanq.OutcomeRetry, call("mail", errBad).Kind)
		require.Panics(t, func() {
			_ = b(t.Context(), &chanq.Delivery{Type: "mail"}, func(context.Context) error { panic("aargh") })
		})
		fails(1)
		require.Equal(t, chanq.OutcomeSnooze, call("mail", nil).Kind, "a panic is a failure")

		for range 3 {
			call("charge", chanq.DeadLetterAs(chanq.CauseExhausted, errBad))
		}
		require.Equal(t, chanq.OutcomeSnooze, call("charge", nil).Kind, "a last attempt is a failure")
	})
	require.Panics(t, func() { chanqjobs.Breaker(0, time.Second) })
	require.Panics(t, func() { chanqjobs.Breaker(1, 0) })
}

func TestABreakerReleasesJobsUncounted(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{Spec: chanq.Spec{MaxAttempts: 3}})
		testdb.Send(w, q, charge.New(1), charge.New(2), charge.New(3))
		var down atomic.Bool
		down.Store(true)
		m := chanqjobs.NewMux()
		chanqjobs.Handle(m, charge, func(context.Context, *chanq.Lease[int]) error {
			if down.Load() {
				return errBad
			}
			return nil
		}, chanqjobs.Options{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: soon, Middleware: []chanq.Middleware{chanqjobs.Breaker(1, time.Minute)}})
		go func() { _ = c.Handle(1, m.Handle) }()
		time.Sleep(90 * time.Second) // a failure, and another one after a minute
		require.EqualValues(w, 2, c.Stats().Nacked)
		down.Store(false)
		w.Eventually("all are acked", func() bool { return c.Stats().Acked == 3 })
		require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
	})
}
