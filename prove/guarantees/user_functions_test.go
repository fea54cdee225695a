package guarantees

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Misbehaviour of a user's functions that must not harm chanq: they panic, leave by runtime.Goexit
// like t.FailNow, block, and call chanq. docs/internals/promises.md has the table.
var userFunctions = []test{
	{"AHandlerThatCallsGoexitHasFailed", handlersLeave},
	{"MethodsOfErrorsMayPanicAndCallGoexit", errorsMisbehave},
	{"UserFunctionsMayCallChanq", callBack},
	{"AHandlerMayCallShutdownWhichReturnsSoonAfterItsContextIsCancelled", handlersShutDown},
	{"ALoopLeftByAPanicStops", loopsPanic},
	{"AContextWhoseValuesPanicFailsItsHandlersAlone", valuesPanic},
}

// handledAll runs Handle with one worker until the messages are settled, and requires that Handle
// and Shutdown return.
func handledAll[T any](w *world, q *chanq.Queue[T], n int64, cfg chanq.ConsumerConfig, fn func(context.Context, *chanq.Lease[T]) error) {
	w.Helper()
	c := testdb.Start(w, q, cfg)
	ended := make(chan error, 1)
	go func() { ended <- c.Handle(1, fn) }()
	w.Eventually("all are settled", func() bool { return settled(c) >= n })
	require.NoError(w, c.Shutdown(w.Soon()))
	select {
	case err := <-ended:
		require.NoError(w, err)
	case <-time.After(testdb.Patience):
		require.Fail(w, "Handle does not return")
	}
}

// later delays the retry until after the test.
func later(*chanq.Delivery, error) time.Duration { return time.Hour }

// handlersLeave: as in a test whose handler calls require. The test goes on, and need not wait for the messages that are left.
func handlersLeave(w *world) {
	for _, way := range append(w.singleWays(), inBatches) {
		failed := make(chan chanq.HandledEvent, 10)
		q := w.Queue(way.name, chanq.Config{Hooks: chanq.Hooks{Handled: func(e chanq.HandledEvent) { failed <- e }}})
		ids := testdb.Send(w, q, testdb.Texts("leaves", "waits")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: later})
		w.Eventually("both are buffered", func() bool { return c.Stats().Buffered == 2 })
		ended := make(chan error, 1)
		go func() {
			ended <- way.run(c, func(context.Context, *chanq.Lease[string]) error {
				runtime.Goexit()
				return nil
			})
		}()
		require.ErrorContains(w, testdb.Receive(w, ended, way.name+" returns"), "runtime.Goexit", way.name)
		if way.name != "function" { // which ends no consumer
			require.ErrorContains(w, c.Err(), "runtime.Goexit")
		}
		require.ErrorContains(w, (<-failed).Err, "runtime.Goexit")
		e := testdb.Get(w, q, ids[0])
		require.Equal(w, chanqadmin.StateScheduled, e.State)
		require.Equal(w, 1, e.Attempts)
		require.Contains(w, e.LastError, "runtime.Goexit")
		if way.name == inBatches.name { // each message of the batch has failed
			w.requireState(q, ids[1], chanqadmin.StateScheduled)
			continue
		}
		w.requireState(q, ids[1], chanqadmin.StateReady)
	}
}

// rude is an error with a method that misbehaves.
type rude struct {
	method string
	do     func()
}

func (e *rude) at(method string) {
	if e.method == method {
		e.do()
	}
}
func (e *rude) Error() string { e.at("Error"); return "rude" }
func (e *rude) Unwrap() error { e.at("Unwrap"); return nil }
func (e *rude) Is(error) bool { e.at("Is"); return false }
func (e *rude) As(any) bool   { e.at("As"); return e.method == "As yes" }

func rudely(p any) func() { return func() { panic(p) } }

func errorsMisbehave(w *world) {
	var typedNil *rude
	errs := map[string]error{"a typed nil": typedNil, "As yes": &rude{method: "As yes"}, "joined": errors.Join(&rude{"Unwrap", runtime.Goexit}, typedNil)}
	for _, method := range []string{"Error", "Unwrap", "Is", "As"} {
		errs[method+" panics"] = &rude{method, rudely("no")}
		errs[method+" panics rudely"] = &rude{method, rudely(&rude{"Error", runtime.Goexit})}
		errs[method+" leaves"] = &rude{method, runtime.Goexit}
		errs[method+" leaves, wrapped"] = chanq.RetryAfter(time.Hour, &rude{method, runtime.Goexit})
	}
	names := []string{"panics rudely"}
	for name := range errs {
		names = append(names, name)
	}
	names = append(names, "last")
	for _, way := range []string{"handle", "pipe"} {
		q := w.Queue(way, chanq.Config{})
		sent := testdb.Send(w, q, testdb.Texts(names...)...)
		fail := func(l *chanq.Lease[string]) error {
			if l.Body == "panics rudely" {
				panic(&rude{"Error", runtime.Goexit})
			}
			return errs[l.Body]
		}
		cfg := chanq.ConsumerConfig{Backoff: later}
		if way == "handle" {
			handledAll(w, q, int64(len(names)), cfg, func(_ context.Context, l *chanq.Lease[string]) error { return fail(l) })
		} else {
			c, to := testdb.Start(w, q, cfg), w.Queue("output", chanq.Config{})
			ended := make(chan error, 1)
			go func() {
				ended <- chanq.Pipe(c, to, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) { return nil, fail(l) })
			}()
			w.Eventually("all are settled", func() bool { return settled(c) == int64(len(names)) })
			require.NoError(w, c.Shutdown(w.Soon()))
			require.NoError(w, <-ended)
		}
		for i, name := range names[:len(names)-1] {
			e := testdb.Get(w, q, sent[i])
			require.Equal(w, chanqadmin.StateScheduled, e.State, "%s: %s", way, name)
			require.Equal(w, 1, e.Attempts, name)
			require.NotEmpty(w, e.LastError, name)
		}
		w.requireState(q, sent[len(sent)-1], "")
	}
}

func callBack(w *world) {
	var q atomic.Pointer[chanq.Queue[note]]
	var c atomic.Pointer[chanq.Consumer[note]]
	asked := func(who string) {
		if q := q.Load(); q != nil {
			if _, err := testdb.Admin(q).Stats(w.Soon()); err != nil {
				w.Errorf("%s: %v", who, err)
			}
		}
		if c := c.Load(); c != nil {
			_ = c.Stats()
			_ = c.Err()
		}
	}
	q.Store(testdb.QueueOf[note](w, "work", chanq.Config{Hooks: allHooks(asked), Codec: &moody{ask: asked}}))
	p := testdb.Produce(w, q.Load(), chanq.ProducerConfig{})
	for _, text := range numbers(6) {
		p.C() <- chanq.Message[note]{Body: note{text}}
	}
	require.NoError(w, p.Close(w.Soon()))
	c.Store(testdb.Start(w, q.Load(), chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { asked("Backoff"); return time.Hour }}))
	ended := make(chan error, 1)
	read := make(chan struct{}) // the worker may continue when the reader below has a message
	first := true
	go func() {
		ended <- c.Load().Handle(1, func(context.Context, *chanq.Lease[note]) error {
			if !first {
				<-read
			}
			first = false
			asked("handler")
			return &rude{"Unwrap", func() { asked("Unwrap") }}
		})
	}()
	w.Eventually("some failed", func() bool { return c.Load().Stats().Nacked > 0 })
	for l := range c.Load().All() {
		require.NoError(w, l.Nack(chanq.DeadLetter(&rude{"Error", func() { asked("Error") }})))
		require.NoError(w, c.Load().Flush(w.Soon()))
		c.Load().Stop()
	}
	close(read)
	require.NoError(w, c.Load().Shutdown(w.Soon()))
	require.NoError(w, <-ended)
}

// handlersShutDown has a handler wait for the end of its own consumer, which waits for the handler.
func handlersShutDown(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	var took time.Duration
	var failed error
	require.ErrorContains(w, c.Handle(1, func(context.Context, *chanq.Lease[string]) error {
		ctx, cancel := context.WithTimeout(context.Background(), drainFor)
		defer cancel()
		began := time.Now()
		failed = c.Shutdown(ctx)
		took = time.Since(began)
		return nil
	}), "handlers not returned: 1")
	require.NoError(w, c.Shutdown(w.Soon()), "the handler has returned")
	require.ErrorIs(w, failed, context.DeadlineExceeded)
	require.ErrorContains(w, failed, "leases not settled: 1, settles not confirmed: 0, handlers not returned: 1")
	if w.Engine.Bubble {
		require.LessOrEqual(w, took, drainFor+atEnd)
	}
	require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
}

func loopsPanic(w *world) {
	for way, leave := range map[string]func(){"panic": func() { panic("a body") }, "goexit": runtime.Goexit} {
		q := w.Queue(way, chanq.Config{})
		testdb.Send(w, q, testdb.Texts(numbers(5)...)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 5 })
		left := make(chan struct{})
		go func() {
			defer close(left)
			defer func() { _ = recover() }()
			for range c.All() {
				leave()
			}
		}()
		w.within("the loop is left", left)
		w.Eventually(way+": the rest is released", func() bool { return testdb.Stats(w, q).Ready == 4 })
		closed(w, c)
	}
}

// moodyContext panics when one of the user's values is requested.
type moodyContext struct{ context.Context }

func (c moodyContext) Value(key any) any {
	if _, mine := key.(aKey); mine {
		panic("no such value")
	}
	return c.Context.Value(key)
}

func valuesPanic(w *world) {
	q := w.Queue("work", chanq.Config{})
	ids := testdb.Send(w, q, testdb.Texts("asks", "does not")...)
	c, err := q.Consume(moodyContext{w.Context()}, chanq.ConsumerConfig{Backoff: later})
	require.NoError(w, err)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
			if l.Body == "asks" {
				ctx.Value(aKey{})
			}
			return ctx.Err()
		})
	}()
	w.Eventually("both are settled", func() bool { return settled(c) == 2 })
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, <-ended)
	require.Contains(w, testdb.Get(w, q, ids[0]).LastError, "no such value")
}
