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
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Misbehaviour of a user's hooks that must not harm chanq; userFunctions has the tests of other
// functions.
var hooks = []test{
	{"HooksMayPanicAndCallGoexit", hooksMisbehave},
	{"TheHookOfASuccessMayPanic", successPanics},
	{"TheHookOfASuccessThatCallsGoexitStopsItsConsumer", successLeaves},
	{"EventsOfFailuresNameTheMessage", failureEvents},
	{"AHookThatBlocksDelaysNoExtensionAndNoShutdown", hooksBlock},
	{"AHookThatWaitsForItselfWaitsUntilItsContextIsCancelled", hooksWaitForThemselves},
}

// allHooks returns hooks that all call f with their name.
func allHooks(f func(hook string)) chanq.Hooks {
	return chanq.Hooks{
		Sent:         func(chanq.SentEvent) { f("Sent") },
		Claimed:      func(chanq.ClaimedEvent) { f("Claimed") },
		Settled:      func(chanq.SettledEvent) { f("Settled") },
		LeaseLost:    func(chanq.LeaseLostEvent) { f("LeaseLost") },
		Handled:      func(chanq.HandledEvent) { f("Handled") },
		Unsent:       func(chanq.UnsentEvent) { f("Unsent") },
		Dead:         func(chanq.DeadEvent) { f("Dead") },
		Availability: func(chanq.AvailabilityEvent) { f("Availability") },
	}
}

// failureEvents makes messages fail, and dead-letters messages for each cause that needs no crash.
func failureEvents(w *world) {
	type number int // its decoder rejects text
	for kind, cfg := range idleKinds {
		var mu sync.Mutex
		dead := map[string]chanq.DeadEvent{}
		failed := map[string]chanq.HandledEvent{}
		cfg.MaxAttempts = 2
		cfg.Hooks = chanq.Hooks{
			Dead: func(e chanq.DeadEvent) {
				mu.Lock()
				defer mu.Unlock()
				dead[e.Headers["body"]] = e
			},
			Handled: func(e chanq.HandledEvent) {
				mu.Lock()
				defer mu.Unlock()
				if e.Outcome == chanq.OutcomeRetry {
					failed[e.Headers["body"]] = e
				}
			},
		}
		q := w.Queue(kind, cfg)
		causes := map[string]chanq.Cause{`1`: chanq.CauseRejected, `2`: chanq.CauseExhausted, `3`: chanq.CauseExpired, `"x"`: chanq.CauseUndecodable, `4`: chanq.CauseExhausted}
		for body, cause := range causes {
			m := chanq.Message[string]{Body: body, Key: "k" + body, Type: "type", Headers: map[string]string{"body": body}}
			if kind == "plain" {
				m.Key, m.DedupKey = "", m.Key
			}
			if cause == chanq.CauseExpired {
				m.TTL = time.Millisecond
			}
			testdb.Send(w, q, m)
		}
		pass(slowness * 10 * time.Millisecond)
		numbers := testdb.OpenOn[number](w, w.DB, kind, cfg)
		c := testdb.Start(w, numbers, chanq.ConsumerConfig{StopWhenIdle: true, Backoff: func(*chanq.Delivery, error) time.Duration { return time.Millisecond }})
		require.NoError(w, c.Handle(1, func(_ context.Context, l *chanq.Lease[number]) error {
			switch l.Body {
			case 1:
				return chanq.DeadLetter(errors.New("no"))
			case 4:
				return errors.Join(l.Nack(nil), errors.New("later"))
			}
			return errors.New("failed")
		}))
		w.Eventually("all are dead", func() bool {
			again := testdb.Start(w, numbers, chanq.ConsumerConfig{StopWhenIdle: true})
			require.NoError(w, again.Handle(1, func(context.Context, *chanq.Lease[number]) error { return errors.New("failed") }))
			stored := testdb.Counted(w, q).Dead
			mu.Lock()
			defer mu.Unlock()
			return stored == len(causes) && len(dead) == len(causes)
		})
		for body, cause := range causes {
			e := dead[body]
			require.Equal(w, cause, e.Cause, "%s of %s", body, kind)
			require.Equal(w, []string{"k" + body, "type", body}, []string{e.Key + e.DedupKey, e.Type, e.Headers["body"]}, "%s of %s", body, kind)
		}
		require.Equal(w, "chanq: cannot decode: chanq peek --state dead "+kind+" shows why", dead[`"x"`].Reason, "a decoder's error might contain parts of the body")
		require.Contains(w, testdb.Get(w, q, dead[`"x"`].ID).LastError, "cannot unmarshal", kind)
		e := failed[`2`]
		require.Equal(w, []string{"k2", "type"}, []string{e.Key + e.DedupKey, e.Type})
		require.Positive(w, e.Next)
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
			if hook != "Handled" { // after a success it leaves the goroutine of a worker
				do()
			}
		})
		q := w.Queue(name, chanq.Config{Hooks: chanq.JoinHooks(hooks, hooks)})
		p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 1})
		for _, m := range testdb.Texts("a", "b", "dead", "fails", "cancelled") {
			p.C() <- m
		}
		require.NoError(w, p.Close(w.Soon()), "no message sent on C is lost")
		require.Equal(w, 5, testdb.Stats(w, q).Ready)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease, Backoff: later})
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
			for _, hook := range []string{"Sent", "Claimed", "Settled", "LeaseLost", "Handled", "Dead"} {
				if called[hook] < 2 {
					return false
				}
			}
			return true
		})
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, <-ended)
		require.Equal(w, chanqadmin.Stats{Scheduled: 1, Dead: 1}, testdb.Counted(w, q))
	}
}

var inBatches = way{"batches", func(c *chanq.Consumer[string], fn func(context.Context, *chanq.Lease[string]) error) error {
	return c.HandleBatches(1, 3, 0, func(ctx context.Context, ls []*chanq.Lease[string]) error { return fn(ctx, ls[0]) })
}}

// successPanics: the hook is called on the goroutine of a worker.
func successPanics(w *world) {
	for _, way := range append(w.singleWays(), inBatches) {
		var called atomic.Int64
		hooks := chanq.Hooks{Handled: func(chanq.HandledEvent) {
			called.Add(1)
			panic("a hook")
		}}
		for name, hooks := range map[string]chanq.Hooks{"one": hooks, "joined": chanq.JoinHooks(hooks, chanq.Hooks{}, hooks)} {
			called.Store(0)
			q := w.Queue(way.name+name, chanq.Config{Hooks: hooks})
			testdb.Send(w, q, testdb.Texts(numbers(7)...)...)
			w.drained(way, q, 7, chanq.ConsumerConfig{}, func(context.Context, *chanq.Lease[string]) error { return nil })
			require.Zero(w, testdb.Counted(w, q), "all are acked")
			require.EqualValues(w, map[string]int{"one": 7, "joined": 14}[name], called.Load(), way.name)
		}
	}
}

func successLeaves(w *world) {
	for _, way := range append(w.singleWays(), inBatches) {
		q := w.Queue(way.name, chanq.Config{Hooks: chanq.Hooks{Handled: func(chanq.HandledEvent) { runtime.Goexit() }}})
		testdb.Send(w, q, testdb.Texts("x")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		ended := make(chan error, 1)
		go func() { ended <- way.run(c, func(context.Context, *chanq.Lease[string]) error { return nil }) }()
		require.ErrorContains(w, testdb.Receive(w, ended, way.name+" returns"), "runtime.Goexit", way.name)
		require.Zero(w, testdb.Counted(w, q), "it is acked")
	}
}

// hooksBlock makes each hook block while another lease is held.
func hooksBlock(w *world) {
	for _, blocked := range []string{"Claimed", "Settled", "LeaseLost", "Handled", "Dead", "Availability"} {
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
		w.Cleanup(open) // before the consumer's cleanup
		held := testdb.Take(w, c, 1)[0]
		w.Eventually("the Claimed hook is called", claimed.Load)
		armed.Store(true)
		ended := make(chan error, 1)
		go func() {
			ended <- c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
				switch blocked {
				case "Handled":
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
			extend := w.Statements(strings.ToLower(blocked)).Extend([16]byte{}, nil, 0)
			w.Strike(w.Broken(false), func(op faultdb.Op) bool { return testdb.Runs(op, extend) })
		} else {
			testdb.Send(w, q, testdb.Texts("meets the hook")...)
		}
		w.within("the hook blocks: "+blocked, inside)
		at := held.Deadline()
		w.Eventually(blocked+": the other lease is extended", func() bool { return held.Deadline().Sub(at) > steadyLease })
		require.NoError(w, held.Context().Err(), blocked)
		if blocked == "Claimed" {
			w.Eventually("the claimed message is handled", func() bool { return c.Stats().Acked == 1 })
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		require.ErrorIs(w, c.Shutdown(ctx), context.DeadlineExceeded, blocked)
		cancel()
		open()
		require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end when the hook returns")
		if err := <-ended; err != nil {
			require.ErrorIs(w, err, chanq.ErrStopped, blocked)
		}
	}
}

func hooksWaitForThemselves(w *world) {
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		time.AfterFunc(time.Second, cancel)
		return ctx
	}
	var c atomic.Pointer[chanq.Consumer[string]]
	started := make(chan struct{}) // closed when c is the consumer of the hook
	var p atomic.Pointer[chanq.Producer[string]]
	outcomes := make(chan error, 10)
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{
		Sent: func(e chanq.SentEvent) {
			if p := p.Load(); p != nil && e.Bytes == len("flush") {
				outcomes <- p.Flush(short())
			}
		},
		Claimed: func(e chanq.ClaimedEvent) {
			<-started
			outcomes <- c.Load().Shutdown(short())
		},
	}})
	p.Store(testdb.Produce(w, q, chanq.ProducerConfig{}))
	_, err := p.Load().Send(w.Soon(), chanq.Message[string]{Body: "flush"})
	require.NoError(w, err)
	require.ErrorIs(w, <-outcomes, context.DeadlineExceeded, "it waits for the worker that waits for the hook")
	_, err = p.Load().Send(w.Soon(), chanq.Message[string]{Body: "the producer continues"})
	require.NoError(w, err)
	other := testdb.Start(w, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}), chanq.ConsumerConfig{})
	require.NoError(w, other.Shutdown(w.Soon()))
	c.Store(testdb.Start(w, q, chanq.ConsumerConfig{}))
	close(started)
	require.ErrorIs(w, <-outcomes, context.DeadlineExceeded)
	require.NoError(w, c.Load().Shutdown(w.Soon()))
}
