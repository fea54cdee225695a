package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Middleware of handlers, and the reports of handler calls.
var middleware = []test{
	{"MiddlewareIsCalledAroundEachHandlerInOrder", middlewareNests},
	{"WhatTheOutermostMiddlewareReturnsSettles", middlewareSettles},
	{"OutputsOfAPipeAreThoseOfTheLastCall", middlewareOfPipes},
	{"MiddlewareIsForHandlersOfOneMessage", middlewareRefused},
	{"BackoffSeesTheDeliveryAndTheError", backoffSees},
	{"EachCallOfAHandlerIsReported", callsReported},
	{"EachMessageThatABatchHasSettledIsReported", batchesReported},
	{"ANackWithACauseIsReported", nacksReported},
	{"AReleaseAfterTheTimeToDrainIsReportedAsARelease", releasesReported},
	{"ADeadLetterHasTheCauseThatItsErrorNames", causesNamed},
	{"AnExhaustedMessageIsReleasedAfterTheTimeToDrain", exhaustedReleased},
}

// singleWays are the ways that handle one message per call. Their outputs are the body.
func (w *world) singleWays() []way {
	return []way{
		{"handle", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return c.Handle(1, fn)
		}},
		{"function", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return errors.Join(chanq.Handle(c.C(), 1, fn), c.Shutdown(w.Soon()))
		}},
		{"pipe", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
			return chanq.Pipe(c, w.Queue("output", chanq.Config{}), 1, func(ctx context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				err := fn(ctx, l)
				return testdb.Texts(l.Body), err
			})
		}},
	}
}

// drained handles n messages in one way, and waits until they are settled and the call has returned.
func (w *world) drained(way way, q *chanq.Queue[string], n int64, cfg chanq.ConsumerConfig, fn func(context.Context, *chanq.Lease[string]) error) {
	w.Helper()
	c := testdb.Start(w, q, cfg)
	ended := make(chan error, 1)
	go func() { ended <- way.run(c, fn) }()
	w.Eventually(way.name+": all are settled", func() bool { return settled(c) >= n })
	c.Stop()
	require.NoError(w, testdb.Receive(w, ended, way.name+" returns"))
}

func middlewareNests(w *world) {
	for _, way := range w.singleWays() {
		q := w.Queue(way.name, chanq.Config{})
		testdb.Send(w, q, testdb.Texts("x")...)
		var calls []string // by one worker
		note := func(name string) chanq.Middleware {
			return func(ctx context.Context, d *chanq.Delivery, next func(context.Context) error) error {
				require.Equal(w, name == "a", ctx == d.Context(), "the outermost middleware has the context of the lease")
				calls = append(calls, fmt.Sprint(name, " ", d.Queue, " ", d.Attempt))
				err := next(context.WithValue(ctx, aKey{}, fmt.Sprint(ctx.Value(aKey{}), name)))
				calls = append(calls, fmt.Sprint(name, " ", err))
				return nil
			}
		}
		cfg := chanq.ConsumerConfig{Middleware: []chanq.Middleware{note("a"), note("b")}}
		w.drained(way, q, 1, cfg, func(ctx context.Context, l *chanq.Lease[string]) error {
			calls = append(calls, fmt.Sprint(l.Body, " ", ctx.Value(aKey{})))
			return errors.New("no")
		})
		require.Equal(w, []string{"a " + way.name + " 1", "b " + way.name + " 1", "x <nil>ab", "b no", "a <nil>"}, calls)
		require.Zero(w, testdb.Counted(w, q), "%s: it is acked", way.name)
	}
}

func middlewareSettles(w *world) {
	bad := errors.New("bad")
	for _, way := range w.singleWays() {
		q := w.Queue(way.name, chanq.Config{})
		bodies := []string{"not called", "made dead", "forgiven", "called again", "snoozed", "panics"}
		sent := testdb.Send(w, q, testdb.Texts(bodies...)...)
		called := map[string]int{}
		body := map[chanq.ID]string{}
		for i, id := range sent {
			body[id] = bodies[i]
		}
		decide := func(ctx context.Context, d *chanq.Delivery, next func(context.Context) error) error {
			switch body[d.ID] {
			case "not called":
				return nil
			case "made dead":
				return chanq.DeadLetter(next(ctx))
			case "forgiven":
				_ = next(ctx)
				return nil
			case "called again":
				_ = next(ctx)
				return next(ctx)
			case "snoozed":
				return chanq.Snooze(time.Hour, next(ctx))
			}
			panic("in a middleware")
		}
		w.drained(way, q, 6, chanq.ConsumerConfig{Backoff: later, Middleware: []chanq.Middleware{decide}}, func(_ context.Context, l *chanq.Lease[string]) error {
			if called[l.Body]++; called[l.Body] == 2 {
				return nil
			}
			return bad
		})
		require.Equal(w, map[string]int{"made dead": 1, "forgiven": 1, "called again": 2, "snoozed": 1}, called, way.name)
		require.Equal(w, chanqadmin.Stats{Scheduled: 2, Dead: 1}, testdb.Counted(w, q), way.name)
		w.requireState(q, sent[1], chanqadmin.StateDead)
		require.Zero(w, testdb.Get(w, q, sent[4]).Attempts)
		require.Contains(w, testdb.Get(w, q, sent[5]).LastError, "in a middleware")
	}
}

func middlewareOfPipes(w *world) {
	in, out := w.Queue("input", chanq.Config{}), w.Queue("output", chanq.Config{})
	testdb.Send(w, in, testdb.Texts("twice", "fails the second time", "panics the second time", "not called")...)
	calls, messages := 0, 0
	c := testdb.Start(w, in, chanq.ConsumerConfig{Middleware: []chanq.Middleware{func(ctx context.Context, _ *chanq.Delivery, next func(context.Context) error) error {
		if messages++; messages < 4 {
			defer func() { _ = recover() }()
			_ = next(ctx)
			_ = next(ctx)
		}
		return nil
	}}})
	ended := make(chan error, 1)
	go func() {
		ended <- chanq.Pipe(c, out, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			switch calls++; calls {
			case 4:
				return testdb.Texts("none of this"), errors.New("the second time")
			case 6:
				panic("the second time")
			}
			return testdb.Texts(fmt.Sprint(l.Body, " ", calls)), nil
		})
	}()
	w.Eventually("all inputs are replaced", func() bool { return c.Stats().Acked == 4 })
	c.Stop()
	require.NoError(w, testdb.Receive(w, ended, "it returns"))
	require.Equal(w, []string{"twice 2"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, out, 1, time.Minute))))
	require.Equal(w, chanqadmin.Stats{Leased: 1}, testdb.Counted(w, out))
}

func middlewareRefused(w *world) {
	q := w.Queue("work", chanq.Config{})
	pass := func(ctx context.Context, _ *chanq.Delivery, next func(context.Context) error) error { return next(ctx) }
	_, err := q.Consume(w.Soon(), chanq.ConsumerConfig{Middleware: []chanq.Middleware{pass, nil}})
	require.ErrorContains(w, err, "ConsumerConfig.Middleware[1] is nil")
	c := testdb.Start(w, q, chanq.ConsumerConfig{Middleware: []chanq.Middleware{func(context.Context, *chanq.Delivery, func(context.Context) error) error {
		return errors.New("it is not called")
	}}})
	testdb.Send(w, q, testdb.Texts("a")...)
	l := testdb.Take(w, c, 1)[0]
	require.NoError(w, l.Settle(nil))
	require.NoError(w, l.Wait(w.Soon()), "a loop settles its leases itself")
	c.Stop()
	err = c.HandleBatches(1, 1, 0, func(context.Context, []*chanq.Lease[string]) error { return nil })
	require.ErrorContains(w, err, "ConsumerConfig.Middleware is set: must be empty for batches")
}

func backoffSees(w *world) {
	busy := errors.New("busy")
	seen := make(chan string, 10)
	backoff := func(d *chanq.Delivery, err error) time.Duration {
		seen <- fmt.Sprint(d.Queue, " ", d.Headers["tenant"], " ", d.Attempt, " ", err)
		if errors.Is(err, busy) {
			return 2 * time.Hour
		}
		return time.Hour
	}
	for _, way := range w.singleWays() {
		q := w.Queue(way.name, chanq.Config{})
		id := testdb.Send(w, q, chanq.Message[string]{Body: "a", Headers: map[string]string{"tenant": "7"}})[0]
		w.drained(way, q, 1, chanq.ConsumerConfig{Backoff: backoff}, func(context.Context, *chanq.Lease[string]) error {
			return fmt.Errorf("call: %w", busy)
		})
		require.Equal(w, way.name+" 7 1 call: busy", testdb.Receive(w, seen, "Backoff is called"))
		require.Greater(w, time.Until(testdb.Get(w, q, id).DueAt), 90*time.Minute)
	}
	q := w.Queue("loop", chanq.Config{})
	ids := testdb.Send(w, q, testdb.Texts("cause", "none")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: backoff})
	leases := testdb.Take(w, c, 2)
	require.NoError(w, leases[0].Nack(busy))
	require.NoError(w, leases[1].Nack(nil))
	require.Equal(w, []string{"loop  1 busy", "loop  1 <nil>"}, []string{<-seen, <-seen})
	require.NoError(w, c.Flush(w.Soon()))
	require.Greater(w, time.Until(testdb.Get(w, q, ids[0]).DueAt), 90*time.Minute)
	require.Less(w, time.Until(testdb.Get(w, q, ids[1]).DueAt), 90*time.Minute)
	require.Empty(w, seen, "once per message")
}

// reports collects Handled events.
type reports struct {
	mu   sync.Mutex
	list []chanq.HandledEvent
}

func (r *reports) hooks() chanq.Hooks {
	return chanq.Hooks{Handled: func(e chanq.HandledEvent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = append(r.list, e)
	}}
}

// take returns the events since the last call: outcome, delay and error of each message.
func (r *reports) take(w *world, body map[chanq.ID]string) (lines []string) {
	w.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		require.Equal(w, 1, e.Attempt)
		require.Equal(w, e.Err != nil, e.Headers != nil, "events of failures have headers")
		require.Error(w, e.Ack(), "it is settled")
		require.Error(w, e.Nack(nil))
		lines = append(lines, fmt.Sprint(body[e.ID], ": ", e.Outcome, " ", e.Next, " ", e.Err))
	}
	r.list = nil
	return lines
}

// sendNamed sends messages with headers and returns the bodies by ID.
func sendNamed(w *world, q *chanq.Queue[string], bodies ...string) map[chanq.ID]string {
	ms := testdb.Texts(bodies...)
	for i := range ms {
		ms[i].Headers = map[string]string{"tenant": "7"}
	}
	names := map[chanq.ID]string{}
	for i, id := range testdb.Send(w, q, ms...) {
		names[id] = bodies[i]
	}
	return names
}

func callsReported(w *world) {
	const longest = 20 * time.Millisecond
	for _, way := range w.singleWays() {
		var r reports
		q := w.Queue(way.name, chanq.Config{Hooks: r.hooks()})
		body := sendNamed(w, q, "works", "fails", "panics", "retry after", "snooze", "dead", "nacks itself", "acks itself and fails")
		w.drained(way, q, 8, chanq.ConsumerConfig{Backoff: later}, func(_ context.Context, l *chanq.Lease[string]) error {
			if l.Body != "works" { // in a bubble it takes no time
				time.Sleep(longest)
			}
			err := errors.New("no")
			switch l.Body {
			case "fails":
				return err
			case "panics":
				panic(err)
			case "retry after":
				return chanq.RetryAfter(time.Minute, err)
			case "snooze":
				return chanq.Snooze(time.Hour, err)
			case "dead":
				return chanq.DeadLetter(err)
			case "nacks itself":
				return l.Nack(chanq.RetryAfter(time.Minute, err))
			case "acks itself and fails":
				require.NoError(w, l.Ack())
				return err
			}
			return nil
		})
		for _, e := range r.list {
			switch {
			case body[e.ID] == "nacks itself" && e.Err != nil:
				require.Zero(w, e.Took)
			case body[e.ID] == "works":
				require.Positive(w, e.Took, way.name)
			default:
				require.GreaterOrEqual(w, e.Took, longest, way.name)
			}
			require.Equal(w, way.name, e.Queue)
			if body[e.ID] == "panics" {
				require.ErrorContains(w, e.Err, "panic: no\n", "with its stack")
				require.Contains(w, testdb.Get(w, q, e.ID).LastError, "middleware_test.go", "the stack is stored")
			}
		}
		for i := range r.list {
			if body[r.list[i].ID] == "panics" {
				r.list[i].Err = errors.New("a panic")
			}
		}
		require.Equal(w, []string{
			"works: ack 0s <nil>", "fails: retry 1h0m0s no", "panics: retry 1h0m0s a panic", "retry after: retry after 1m0s no",
			"snooze: snooze 1h0m0s no", "dead: dead-letter 0s no", "nacks itself: retry after 1m0s no", "nacks itself: none 0s <nil>",
			"acks itself and fails: none 0s no",
		}, r.take(w, body), way.name)
		require.Equal(w, chanqadmin.Stats{Scheduled: 5, Dead: 1}, testdb.Counted(w, q), way.name)
	}
	var r reports
	q := w.Queue("last", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}, Hooks: r.hooks()})
	body := sendNamed(w, q, "for the last time", "by its transaction", "by InTx")
	// The message that is acked by its transaction does not count, and precedes the last one.
	w.drained(w.singleWays()[0], q, 2, chanq.ConsumerConfig{}, func(ctx context.Context, l *chanq.Lease[string]) error {
		if l.Body == "for the last time" {
			return errors.New("no")
		}
		if l.Body == "by InTx" {
			return chanq.InTx(ctx, w.DB, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) })
		}
		tx, err := w.DB.BeginTx(ctx, nil)
		require.NoError(w, err)
		require.NoError(w, l.AckTx(ctx, tx))
		return tx.Commit()
	})
	require.ElementsMatch(w, []string{"for the last time: dead-letter 0s no", "by its transaction: ack 0s <nil>", "by InTx: ack 0s <nil>"}, r.take(w, body))
}

func batchesReported(w *world) {
	var r reports
	q := w.Queue("work", chanq.Config{Hooks: r.hooks()})
	body := sendNamed(w, q, "a", "b", "bad", "settled", "c", "d")
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: later})
	w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 6 })
	ended := make(chan error, 1)
	go func() {
		ended <- c.HandleBatches(1, 4, 0, func(_ context.Context, batch []*chanq.Lease[string]) error {
			time.Sleep(20 * time.Millisecond)
			for _, l := range batch {
				switch l.Body {
				case "bad":
					return errBad
				case "settled":
					require.NoError(w, l.Ack())
				}
			}
			return nil
		})
	}()
	w.Eventually("all are settled", func() bool { return settled(c) == 6 })
	c.Stop()
	require.NoError(w, testdb.Receive(w, ended, "it returns"))
	for _, e := range r.list {
		require.GreaterOrEqual(w, e.Took, 20*time.Millisecond)
	}
	require.Equal(w, []string{
		"a: ack 0s <nil>", "b: ack 0s <nil>", "bad: retry 1h0m0s a bad row", "settled: none 0s <nil>", "c: ack 0s <nil>", "d: ack 0s <nil>",
	}, r.take(w, body), "the call with all four is not reported")
}

func nacksReported(w *world) {
	var r reports
	q := w.Queue("work", chanq.Config{Hooks: r.hooks()})
	body := sendNamed(w, q, "settle", "nack", "dead", "no cause", "ack", "release")
	c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: later})
	for _, l := range testdb.Take(w, c, 6) {
		switch l.Body {
		case "settle":
			require.NoError(w, l.Settle(errBad))
		case "nack":
			require.NoError(w, l.Nack(chanq.Snooze(time.Hour, errBad)))
			require.Error(w, l.Nack(errBad), "and it is not reported again")
		case "dead":
			require.NoError(w, l.Nack(chanq.DeadLetter(errBad)))
		case "no cause":
			require.NoError(w, l.Nack(nil))
		case "ack":
			require.NoError(w, l.Settle(nil))
		case "release":
			require.NoError(w, l.Release())
		}
	}
	for _, e := range r.list {
		require.Zero(w, e.Took)
	}
	require.Equal(w, []string{"settle: retry 1h0m0s a bad row", "nack: snooze 1h0m0s a bad row", "dead: dead-letter 0s a bad row"}, r.take(w, body))
}

func releasesReported(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		e.stop(func(ctx context.Context, l *chanq.Lease[string]) error { return untilStopped(ctx) })
		require.NoError(e, e.returns(drainFor, drainFor))
		require.EqualValues(e, 2, e.released.Load(), e.way.name)
		require.Zero(e, e.failed.Load())
	})
}

func causesNamed(w *world) {
	for _, way := range w.singleWays() {
		q := w.Queue(way.name, chanq.Config{})
		body := sendNamed(w, q, "undecodable", "exhausted", "rejected")
		w.drained(way, q, 3, chanq.ConsumerConfig{}, func(_ context.Context, l *chanq.Lease[string]) error {
			switch l.Body {
			case "undecodable":
				return fmt.Errorf("mail: %w", chanq.DeadLetterAs(chanq.CauseUndecodable, errors.New("its secret is 42")))
			case "exhausted":
				return l.Nack(chanq.DeadLetterAs(chanq.CauseExhausted, errBad))
			}
			return chanq.DeadLetterAs(chanq.CauseKilled, errBad)
		})
		for id, want := range body {
			e := testdb.Get(w, q, id)
			require.Equal(w, chanqadmin.StateDead, e.State, "%s: %s", way.name, want)
			require.Equal(w, want, e.Cause.String(), way.name)
			require.Equal(w, 1, e.Attempts, "%s: its handler was called", way.name)
			if want == "undecodable" {
				require.Equal(w, "mail: chanq: cannot decode: its secret is 42", e.LastError)
				require.NotContains(w, e.RedactedError(), "42")
			}
		}
	}
}

// exhaustedReleased: a handler that had no time to end has not failed.
func exhaustedReleased(w *world) {
	w.onEachWay(chanq.Config{}, func(e *drain) {
		e.stop(func(ctx context.Context, l *chanq.Lease[string]) error {
			return chanq.DeadLetterAs(chanq.CauseExhausted, untilStopped(ctx))
		})
		require.NoError(e, e.returns(drainFor, drainFor))
		e.again(6)
	})
}
