package guarantees

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/internal/testdb/faultdb"
)

// What functions of the user's may do without harm to chanq: panic, leave by
// runtime.Goexit as t.FailNow does, block, and call back. docs/guarantees.md has the
// table.
var misbehaving = []test{
	{"AHandlerThatLeavesByGoexitHasFailed", handlersLeave},
	{"APipeFunctionThatLeavesByGoexitHasFailed", pipesLeave},
	{"ErrorsMayDoAnythingWhenTheyAreLookedInto", errorsMisbehave},
	{"BackoffMayDoAnything", backoffMisbehaves},
	{"HooksMayPanicAndLeave", hooksMisbehave},
	{"AHookThatBlocksEndsNoLeaseAndNoShutdown", hooksBlock},
	{"AHookThatBlocksEndsNoClose", sentBlocks},
	{"AHookThatWaitsForItselfWaitsUntilItsContextEnds", hooksWaitForThemselves},
	{"UsersFunctionsMayCallBack", callBack},
	{"ADecoderThatPanicsOrLeavesSetsItsMessageAsideAlone", decodersMisbehave},
	{"ADecoderMayKeepWhatItReads", decodersKeep},
	{"ADecoderThatBlocksEndsNoShutdown", decodersBlock},
	{"AnEncoderThatPanicsOrLeavesCostsItsMessageAlone", encodersMisbehave},
	{"AnEncoderThatBlocksEndsNoClose", encodersBlock},
	{"SendsWhoseEncodersLeaveTakeNoRoom", sendersLeave},
	{"APipesOutputWhoseEncoderLeavesSetsItsInputAside", pipeEncodersLeave},
	{"ALoopLeftByAPanicStops", loopsPanic},
	{"AContextWhoseValuesPanicFailsItsHandlersAlone", valuesPanic},
}

// handledAll runs Handle with one worker until the messages are settled, and shows that
// it returns, and Shutdown.
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

// later has what failed come back when the test is over.
func later(int) time.Duration { return time.Hour }

func handlersLeave(w *world) {
	failed := make(chan chanq.FailedEvent, 10)
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Failed: func(e chanq.FailedEvent) { failed <- e }}})
	ids := testdb.Send(w, q, testdb.Texts("leaves", "leaves too", "last")...)
	handledAll(w, q, 3, chanq.ConsumerConfig{Backoff: later}, func(_ context.Context, l *chanq.Lease[string]) error {
		if l.Body != "last" {
			runtime.Goexit()
		}
		return nil
	})
	for _, id := range ids[:2] {
		e := testdb.Get(w, q, id)
		require.Equal(w, chanq.StateScheduled, e.State)
		require.Equal(w, 1, e.Attempts)
		require.Contains(w, e.LastError, "runtime.Goexit")
		require.ErrorContains(w, (<-failed).Err, "runtime.Goexit")
	}
	w.requireState(q, ids[2], "")
}

func pipesLeave(w *world) {
	from, to := w.Queue("work", chanq.Config{}), w.Queue("output", chanq.Config{})
	ids := testdb.Send(w, from, testdb.Texts("leaves", "panics", "last")...)
	c, p := testdb.Start(w, from, chanq.ConsumerConfig{Backoff: later}), testdb.Produce(w, to, chanq.ProducerConfig{})
	ended := make(chan error, 1)
	go func() {
		ended <- chanq.Pipe(c, p, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			switch l.Body {
			case "leaves":
				runtime.Goexit()
			case "panics":
				panic("aargh")
			}
			return testdb.Texts("out of " + l.Body), nil
		})
	}()
	w.Eventually("all are settled", func() bool { return settled(c) == 3 })
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, <-ended)
	require.Contains(w, testdb.Get(w, from, ids[0]).LastError, "runtime.Goexit")
	require.Contains(w, testdb.Get(w, from, ids[1]).LastError, "aargh")
	require.Equal(w, []string{"out of last"}, testdb.Bodies(testdb.Lease(w, to, 1, time.Minute)))
}

// rude is an error of which one method does something.
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
			c, p := testdb.Start(w, q, cfg), testdb.Produce(w, w.Queue("output", chanq.Config{}), chanq.ProducerConfig{})
			ended := make(chan error, 1)
			go func() {
				ended <- chanq.Pipe(c, p, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) { return nil, fail(l) })
			}()
			w.Eventually("all are settled", func() bool { return settled(c) == int64(len(names)) })
			require.NoError(w, c.Shutdown(w.Soon()))
			require.NoError(w, <-ended)
		}
		for i, name := range names[:len(names)-1] {
			e := testdb.Get(w, q, sent[i])
			require.Equal(w, chanq.StateScheduled, e.State, "%s: %s", way, name)
			require.Equal(w, 1, e.Attempts, name)
			require.NotEmpty(w, e.LastError, name)
		}
		w.requireState(q, sent[len(sent)-1], "")
	}
}

func backoffMisbehaves(w *world) {
	for name, backoff := range map[string]func(int) time.Duration{
		"panics":    func(int) time.Duration { panic("no delay") },
		"leaves":    func(int) time.Duration { runtime.Goexit(); return 0 },
		"negative":  func(int) time.Duration { return -time.Hour },
		"overflows": func(int) time.Duration { return 1<<63 - 1 },
	} {
		q := w.Queue(name, chanq.Config{})
		id := testdb.Send(w, q, testdb.Texts("fails")...)[0]
		c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: backoff})
		ended := make(chan error, 1)
		var once atomic.Bool
		go func() {
			ended <- c.Handle(1, func(context.Context, *chanq.Lease[string]) error {
				if once.Swap(true) {
					return nil // it is back, after the default delay, which is below a second
				}
				return errors.New("ask for a delay")
			})
		}()
		w.Eventually(name+": it is handled again", func() bool {
			_, err := q.Get(w.Soon(), id)
			return errors.Is(err, chanq.ErrNotFound)
		})
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, <-ended)
	}
}

// allHooks has f called by every hook, with its name.
func allHooks(f func(hook string)) chanq.Hooks {
	return chanq.Hooks{
		Sent:         func(chanq.SentEvent) { f("Sent") },
		Claimed:      func(chanq.ClaimedEvent) { f("Claimed") },
		Settled:      func(chanq.SettledEvent) { f("Settled") },
		LeaseLost:    func(chanq.LeaseLostEvent) { f("LeaseLost") },
		Failed:       func(chanq.FailedEvent) { f("Failed") },
		Dead:         func(chanq.DeadEvent) { f("Dead") },
		Availability: func(chanq.AvailabilityEvent) { f("Availability") },
	}
}

func hooksMisbehave(w *world) {
	for name, do := range map[string]func(){"panic": func() { panic("a hook") }, "leave": runtime.Goexit} {
		var mu sync.Mutex
		called := map[string]int{}
		hooks := allHooks(func(hook string) {
			mu.Lock()
			called[hook]++
			mu.Unlock()
			do()
		})
		q := w.Queue(name, chanq.Config{Hooks: chanq.JoinHooks(hooks, hooks)})
		p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 1})
		for _, m := range testdb.Texts("a", "b", "dead", "fails", "cancelled") {
			p.C() <- m
		}
		require.NoError(w, p.Close(w.Soon()), "nothing of C is lost")
		require.Equal(w, 5, testdb.Stats(w, q).Ready)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, Backoff: later})
		ended := make(chan error, 1)
		go func() {
			ended <- c.Handle(2, func(ctx context.Context, l *chanq.Lease[string]) error {
				switch l.Body {
				case "dead":
					return chanq.DeadLetter(errors.New("never"))
				case "fails":
					return errors.New("failed")
				case "cancelled":
					_, err := q.Cancel(ctx, l.ID)
					<-ctx.Done()
					return errors.Join(err, ctx.Err())
				}
				return nil
			})
		}()
		w.Eventually("all hooks of a healthy database are called, each of both sets", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, hook := range []string{"Sent", "Claimed", "Settled", "LeaseLost", "Failed", "Dead"} {
				if called[hook] < 2 {
					return false
				}
			}
			return true
		})
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, <-ended)
		require.Equal(w, chanq.Stats{Scheduled: 1, Dead: 1}, testdb.Counted(w, q))
	}
}

// hooksBlock has one hook after another never return, beside a lease that somebody
// holds.
func hooksBlock(w *world) {
	for _, blocked := range []string{"Claimed", "Settled", "LeaseLost", "Failed", "Dead", "Availability"} {
		gate, inside := make(chan struct{}), make(chan struct{})
		var armed, claimed atomic.Bool
		var first sync.Once
		open := sync.OnceFunc(func() { close(gate) })
		q := w.Queue(strings.ToLower(blocked), chanq.Config{Hooks: allHooks(func(hook string) {
			if hook == "Claimed" && !armed.Load() {
				claimed.Store(true)
			}
			if hook == blocked && armed.Load() {
				first.Do(func() { close(inside) })
				<-gate
			}
		})})
		testdb.Send(w, q, testdb.Texts("held")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, Backoff: later})
		w.Cleanup(open) // before the consumer's
		held := testdb.Take(w, c, 1)[0]
		w.Eventually("the claim is told", claimed.Load)
		armed.Store(true)
		ended := make(chan error, 1)
		go func() {
			ended <- c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
				switch blocked {
				case "Failed":
					return errors.New("failed")
				case "Dead":
					return chanq.DeadLetter(errors.New("never"))
				case "LeaseLost":
					_, err := q.Cancel(ctx, l.ID)
					<-ctx.Done()
					return err
				}
				return nil
			})
		}()
		if blocked == "Availability" {
			extend := w.Statements(strings.ToLower(blocked)).Extend(nil, 0)
			w.Strike(w.Broken(false), func(op faultdb.Op) bool { return testdb.Runs(op, extend) })
		} else {
			testdb.Send(w, q, testdb.Texts("meets the hook")...)
		}
		w.within("the hook blocks: "+blocked, inside)
		at := held.Deadline()
		w.Eventually(blocked+": the other lease is extended", func() bool { return held.Deadline().Sub(at) > steadyLease })
		require.NoError(w, held.Context().Err(), blocked)
		if blocked == "Claimed" {
			w.Eventually("what was claimed is handled", func() bool { return c.Stats().Acked == 1 })
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		require.ErrorIs(w, c.Shutdown(ctx), context.DeadlineExceeded, blocked)
		cancel()
		open()
		require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end with the hook")
		require.NoError(w, <-ended)
	}
}

func sentBlocks(w *world) {
	gate, inside := make(chan struct{}), make(chan struct{})
	w.Cleanup(sync.OnceFunc(func() { close(gate) }))
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Sent: func(chanq.SentEvent) {
		close(inside)
		<-gate
	}}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 1})
	_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "stored"})
	require.NoError(w, err)
	w.within("the hook blocks", inside)
	p.C() <- chanq.Message[string]{Body: "behind it"}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(w, p.Close(ctx), &unsent)
	require.Len(w, unsent.Unsent, 1)
	require.Equal(w, "behind it", unsent.Unsent[0].Message.Body)
}

func hooksWaitForThemselves(w *world) {
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		time.AfterFunc(time.Second, cancel)
		return ctx
	}
	var c atomic.Pointer[chanq.Consumer[string]]
	var p atomic.Pointer[chanq.Producer[string]]
	outcomes := make(chan error, 10)
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{
		Sent: func(e chanq.SentEvent) {
			if p := p.Load(); p != nil && e.Bytes == len("flush") {
				outcomes <- p.Flush(short())
			}
		},
		Claimed: func(e chanq.ClaimedEvent) { outcomes <- c.Load().Shutdown(short()) },
	}})
	p.Store(testdb.Produce(w, q, chanq.ProducerConfig{}))
	_, err := p.Load().Send(w.Soon(), chanq.Message[string]{Body: "flush"})
	require.NoError(w, err)
	require.ErrorIs(w, <-outcomes, context.DeadlineExceeded, "it waits for the storer that waits for it")
	_, err = p.Load().Send(w.Soon(), chanq.Message[string]{Body: "the producer goes on"})
	require.NoError(w, err)
	started := testdb.Start(w, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}), chanq.ConsumerConfig{})
	c.Store(started)
	require.NoError(w, started.Shutdown(w.Soon()))
	c.Store(testdb.Start(w, q, chanq.ConsumerConfig{}))
	require.ErrorIs(w, <-outcomes, context.DeadlineExceeded)
	require.NoError(w, c.Load().Shutdown(w.Soon()))
}

func callBack(w *world) {
	var q atomic.Pointer[chanq.Queue[note]]
	var c atomic.Pointer[chanq.Consumer[note]]
	asked := func(who string) {
		if q := q.Load(); q != nil {
			if _, err := q.Stats(w.Soon()); err != nil {
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
	c.Store(testdb.Start(w, q.Load(), chanq.ConsumerConfig{Backoff: func(int) time.Duration { asked("Backoff"); return time.Hour }}))
	ended := make(chan error, 1)
	read := make(chan struct{}) // the reader below has had one: the worker may go on
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
		require.NoError(w, l.DeadLetter(&rude{"Error", func() { asked("Error") }}))
		require.NoError(w, c.Load().Flush(w.Soon()))
		c.Load().Stop()
	}
	close(read)
	require.NoError(w, c.Load().Shutdown(w.Soon()))
	require.NoError(w, <-ended)
}

// note is a body that meets a codec.
type note struct{ Text string }

// moody is a codec whose mood is in the body.
type moody struct {
	ask  func(who string)
	gate chan struct{}
	kept [][]byte
	mu   sync.Mutex
}

func (c *moody) feel(body, who string) error {
	if c.ask != nil {
		c.ask(who)
	}
	switch {
	case strings.HasPrefix(body, who+" panics"):
		panic(who)
	case strings.HasPrefix(body, who+" leaves"):
		runtime.Goexit()
	case strings.HasPrefix(body, who+" fails rudely"):
		return &rude{"Error", runtime.Goexit}
	case strings.HasPrefix(body, who+" blocks"):
		<-c.gate
	}
	return nil
}

func (c *moody) Encode(body any) ([]byte, error) {
	text := body.(note).Text
	return []byte(text), c.feel(text, "encode")
}

func (c *moody) Decode(data []byte, body any) error {
	c.mu.Lock()
	c.kept = append(c.kept, data)
	c.mu.Unlock()
	body.(*note).Text = string(data)
	return c.feel(string(data), "decode")
}

func notes(texts ...string) []chanq.Message[note] {
	ms := make([]chanq.Message[note], len(texts))
	for i, text := range texts {
		ms[i].Body.Text = text
	}
	return ms
}

func decodersMisbehave(w *world) {
	mixed := []string{"first", "decode panics", "decode leaves", "decode leaves too", "middle", "decode fails rudely", "last", "decode leaves at the end"}
	for _, way := range []string{"consumer", "trylease"} {
		q := testdb.QueueOf[note](w, way, chanq.Config{Codec: &moody{}})
		sent := testdb.Send(w, q, notes(mixed...)...)
		var good []*chanq.Lease[note]
		if way == "consumer" {
			good = testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{}), 3)
		} else {
			var err error
			good, err = q.TryLease(w.Soon(), len(mixed), time.Minute)
			require.NoError(w, err)
		}
		require.Equal(w, []note{{"first"}, {"middle"}, {"last"}}, testdb.Bodies(good), way)
		w.Eventually("the others are dead", func() bool { return testdb.Stats(w, q).Dead == len(mixed)-3 })
		for i, text := range mixed {
			if e := testdb.Get(w, q, sent[i]); strings.HasPrefix(text, "decode") {
				require.Equal(w, chanq.StateDead, e.State, text)
				require.Equal(w, text, string(e.Body), "its bytes are kept")
				require.Contains(w, e.LastError, "cannot decode", text)
			}
		}
		for _, l := range good {
			require.NoError(w, l.Ack())
			require.NoError(w, l.Wait(w.Soon()))
		}
	}
}

func decodersKeep(w *world) {
	codec := &moody{}
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	testdb.Send(w, q, notes(numbers(100)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 10})
	for _, l := range testdb.Take(w, c, 100) {
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	codec.mu.Lock()
	defer codec.mu.Unlock()
	got := make([]string, len(codec.kept))
	for i, data := range codec.kept {
		got[i] = string(data)
	}
	require.Equal(w, numbers(100), got, "nobody writes over it")
}

func decodersBlock(w *world) {
	codec := &moody{gate: make(chan struct{})}
	open := sync.OnceFunc(func() { close(codec.gate) })
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	testdb.Send(w, q, notes("held")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	w.Cleanup(open) // before the consumer's
	held := testdb.Take(w, c, 1)[0]
	testdb.Send(w, q, notes("decode blocks")...)
	at := held.Deadline()
	w.Eventually("what was delivered before is extended", func() bool { return held.Deadline().Sub(at) > steadyLease })
	require.NoError(w, held.Ack())
	require.NoError(w, held.Wait(w.Soon()), "and settled")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(w, c.Shutdown(ctx), context.DeadlineExceeded)
	open()
	require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end")
}

func encodersMisbehave(w *world) {
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: &moody{}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	mixed := []string{"first", "encode panics", "encode leaves", "encode leaves too", "middle", "encode fails rudely", "last"}
	for _, m := range notes(mixed...) {
		p.C() <- m
	}
	require.ErrorContains(w, p.Flush(w.Soon()), "4 messages sent on C could not be stored")
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = p.Send(context.Background(), notes("encode leaves its caller")[0])
		w.Errorf("Send returned though its caller has left")
	}()
	w.within("the caller leaves", left)
	_, err := p.Send(w.Soon(), notes("encode panics in Send")[0])
	require.ErrorContains(w, err, "codec panicked")
	_, err = p.Send(w.Soon(), notes("sent")[0])
	require.NoError(w, err)
	var unsent *chanq.UnsentError[note]
	require.ErrorAs(w, p.Close(w.Soon()), &unsent)
	require.Len(w, unsent.Unsent, 4)
	for _, u := range unsent.Unsent {
		require.True(w, strings.HasPrefix(u.Message.Body.Text, "encode "), u.Message.Body.Text)
		require.False(w, u.Message.ID.IsZero())
		require.ErrorContains(w, u.Err, "Message.Body")
	}
	require.Equal(w, []note{{"first"}, {"middle"}, {"last"}, {"sent"}}, testdb.Bodies(testdb.Lease(w, q, 4, time.Minute)))
}

func encodersBlock(w *world) {
	codec := &moody{gate: make(chan struct{})}
	open := sync.OnceFunc(func() { close(codec.gate) })
	w.Cleanup(open)
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	p.C() <- notes("encode blocks")[0]
	_, err := p.Send(w.Soon(), notes("sent beside it")[0])
	require.NoError(w, err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		err = p.Close(ctx)
	}()
	w.within("Close returns", closed)
	var unsent *chanq.UnsentError[note]
	require.ErrorAs(w, err, &unsent)
	require.Len(w, unsent.Unsent, 1)
	require.Equal(w, "encode blocks", unsent.Unsent[0].Message.Body.Text)
	require.ErrorIs(w, unsent.Unsent[0].Err, chanq.ErrClosed)
	open()
	require.NoError(w, p.Close(w.Soon()), "its goroutines end")
	require.Equal(w, 1, testdb.Stats(w, q).Ready, "and what was given up is not stored")
}

// sendersLeave fills the buffer many times over with messages that never arrive.
func sendersLeave(w *world) {
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: &moody{}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BufferBytes: 2000})
	var senders sync.WaitGroup
	for range 100 {
		senders.Add(1)
		go func() {
			defer senders.Done()
			_, _ = p.SendBatch(context.Background(), notes("would be sent", "encode leaves")...)
		}()
	}
	senders.Wait()
	_, err := p.SendBatch(w.Soon(), notes(numbers(20)...)...)
	require.NoError(w, err)
	require.NoError(w, p.Close(w.Soon()))
	require.Equal(w, chanq.Stats{Ready: 20}, testdb.Counted(w, q))
}

func pipeEncodersLeave(w *world) {
	from, to := w.Queue("work", chanq.Config{}), testdb.QueueOf[note](w, "output", chanq.Config{Codec: &moody{}})
	ids := testdb.Send(w, from, testdb.Texts("encode leaves", "encode panics", "encode fails rudely", "last")...)
	c, p := testdb.Start(w, from, chanq.ConsumerConfig{Backoff: later}), testdb.Produce(w, to, chanq.ProducerConfig{})
	ended := make(chan error, 1)
	go func() {
		ended <- chanq.Pipe(c, p, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[note], error) {
			return notes("fine", l.Body), nil
		})
	}()
	w.Eventually("all are settled", func() bool { return settled(c) == 4 })
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, <-ended)
	for _, id := range ids[:3] {
		e := testdb.Get(w, from, id)
		require.Equal(w, chanq.StateDead, e.State)
		require.Contains(w, e.LastError, "output 1: Message.Body", "which says what is wrong")
	}
	require.Equal(w, []note{{"fine"}, {"last"}}, testdb.Bodies(testdb.Lease(w, to, 2, time.Minute)))
}

func loopsPanic(w *world) {
	loops := map[string]func(*chanq.Consumer[string], func()){
		"all": func(c *chanq.Consumer[string], leave func()) {
			for range c.All() {
				leave()
			}
		},
		"batches": func(c *chanq.Consumer[string], leave func()) {
			for range c.Batches(1, 0) {
				leave()
			}
		},
	}
	leaves := map[string]func(){"panic": func() { panic("a body") }, "goexit": runtime.Goexit}
	for loop, read := range loops {
		for way, leave := range leaves {
			q := w.Queue(loop+"_"+way, chanq.Config{})
			testdb.Send(w, q, testdb.Texts(numbers(5)...)...)
			c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
			w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 5 })
			left := make(chan struct{})
			go func() {
				defer close(left)
				defer func() { _ = recover() }()
				read(c, leave)
			}()
			w.within("the loop is left", left)
			w.Eventually(loop+" "+way+": the rest is back", func() bool { return testdb.Stats(w, q).Ready == 4 })
			closed(w, c)
		}
	}
}

// moodyContext panics when it is asked for a value of the user's.
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
