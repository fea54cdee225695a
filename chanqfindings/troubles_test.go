package chanqfindings_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions, testdb.SQLiteFile, testdb.Postgres, testdb.SQLServer}

// ward has a queue in trouble, and a healthy one that is used all the time.
type ward struct {
	*testdb.World
	limits chanqfindings.Limits
	queues map[string]*chanqadmin.Queue
	last   map[string][]chanqfindings.Finding
	frees  []func() // end what hangs, before consumers are shut down
}

// soon is how long after its threshold a finding may appear, and how long after the end of its fault it may last.
const soon = 15 * time.Second

type kinds []chanqfindings.Kind

var none = kinds{}

// found looks at a queue.
func (w *ward) found(queue string) kinds {
	w.Helper()
	w.last[queue] = chanqfindings.Of(chanqfindings.Look(w.Soon(), w.queues[queue]), w.limits, time.Now())
	list := kinds{}
	for _, f := range w.last[queue] {
		require.NotEmpty(w, f.Text)
		require.NotEmpty(w, f.Remedy)
		list = append(list, f.Kind)
	}
	return list
}

// becomes looks every second until the queue has exactly these findings, at most for a time. Until then it has exactly those that it had
// before, and the healthy one never has any.
func (w *ward) becomes(within time.Duration, before, want kinds) chanqfindings.Finding {
	w.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		found := w.found("orders")
		require.Empty(w, w.found("healthy"), "%+v", w.last["healthy"])
		if fmt.Sprint(found) == fmt.Sprint(want) {
			if len(found) == 0 {
				return chanqfindings.Finding{}
			}
			return w.last["orders"][0]
		}
		require.Equal(w, before, found, "%+v", w.last["orders"])
		if w.Engine.Bubble {
			require.Less(w, time.Since(began), within, "%v is not found: %+v", want, w.last["orders"])
		}
		require.Less(w, time.Since(began), testdb.Patience)
	}
}

// queue creates the queue in trouble.
func (w *ward) queue(cfg chanq.Config) *chanq.Queue[string] {
	w.Helper()
	q := w.Queue("orders", cfg)
	w.queues["orders"] = testdb.Admin(q)
	return q
}

// handle starts a consumer.
func (w *ward) handle(q *chanq.Queue[string], cfg chanq.ConsumerConfig, workers int, fn func(context.Context, *chanq.Lease[string]) error) *chanq.Consumer[string] {
	w.Helper()
	registered := func() int {
		list, err := testdb.Admin(q).Consumers(w.Soon())
		require.NoError(w, err)
		return len(list)
	}
	before := registered()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(w, err)
	ended := make(chan struct{})
	go func() { // ends with the consumer
		defer close(ended)
		_ = c.Handle(workers, fn)
	}()
	w.Cleanup(func() {
		w.Heal()
		for _, free := range w.frees {
			free()
		}
		_ = c.Shutdown(testdb.Soon(w))
		<-ended
	})
	testdb.Eventually(w, "the consumer is registered", func() bool { return registered() > before })
	return c
}

func well(context.Context, *chanq.Lease[string]) error { return nil }

func texts(n int) []chanq.Message[string] {
	list := make([]chanq.Message[string], n)
	for i := range list {
		list[i].Body = "invoice"
		if i%10 > 0 {
			list[i].Body = "card"
		}
	}
	return list
}

// hospital runs a test with a healthy queue and one in trouble.
func hospital(t *testing.T, engines []testdb.Engine, test func(*ward)) {
	testdb.OnEach(t, engines, func(world *testdb.World) {
		w := &ward{World: world, queues: map[string]*chanqadmin.Queue{}, last: map[string][]chanqfindings.Finding{}}
		if !w.Engine.Bubble {
			w.limits.Stuck = 3 * time.Second
		}
		q := w.Queue("healthy", chanq.Config{})
		w.queues["healthy"] = testdb.Admin(q)
		w.handle(q, chanq.ConsumerConfig{}, 2, well)
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		end, ended := make(chan struct{}), make(chan struct{})
		go func() { // ends with the test
			defer close(ended)
			for {
				select {
				case <-end:
					return
				case <-time.After(200 * time.Millisecond):
					_, _ = p.Send(context.Background(), chanq.Message[string]{Body: "card"})
				}
			}
		}()
		w.Cleanup(func() {
			w.Heal()
			close(end)
			<-ended
		})
		testdb.Eventually(w, "the healthy queue has a consumer", func() bool {
			list, err := w.queues["healthy"].Consumers(w.Soon())
			return err == nil && len(list) > 0
		})
		test(w)
	})
}

// rejects dead-letters messages of one type.
func rejects(_ context.Context, l *chanq.Lease[string]) error {
	if l.Body == "invoice" {
		return chanq.DeadLetter(errors.New(`parse invoice: unknown currency "XBT"`))
	}
	return nil
}

func TestMessagesOfOneTypeThatDieAreFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		q := w.queue(chanq.Config{})
		w.handle(q, chanq.ConsumerConfig{}, 2, rejects)
		testdb.Send(w, q, texts(60)...)
		f := w.becomes(soon, none, kinds{chanqfindings.Dead})
		require.Regexp(w, `^[1-6] messages? (is|are) dead, the last for .+: parse invoice: unknown currency "XBT"$`, f.Text)
		if w.Engine.Bubble {
			require.Contains(w, f.Text, "for less than 1 s:")
		}
		require.Equal(w, "q/orders/failures", f.Path)
		testdb.Eventually(w, "all are dead", func() bool { return testdb.Stats(w, q).Dead == 6 })
		_, err := testdb.Purge(w.Soon(), q, chanqadmin.StateDead)
		require.NoError(w, err)
		w.becomes(soon, kinds{chanqfindings.Dead}, none)
	})
}

func TestMessagesThatAreAllRetriedAreFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		q := w.queue(chanq.Config{})
		var fixed atomic.Bool
		w.handle(q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return time.Second }}, 8, func(context.Context, *chanq.Lease[string]) error {
			if fixed.Load() {
				return nil
			}
			return errors.New("POST https://pay.example/charge: 503 Service Unavailable")
		})
		testdb.Send(w, q, texts(60)...)
		f := w.becomes(soon, none, kinds{chanqfindings.Failing})
		require.Regexp(w, `^all of the last \d+ attempts failed(: POST https://pay.example/charge: 503 Service Unavailable)?$`, f.Text)
		if w.Engine.Bubble { // elsewhere all may be ready or leased when it looks
			require.Contains(w, f.Text, ": POST ")
		}
		require.Equal(w, chanqfindings.Failure, f.Severity)
		fixed.Store(true)
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		testdb.SendBy(w, p, texts(60)...)
		w.becomes(2*soon, kinds{chanqfindings.Failing}, none)
	})
}

// hangs returns a handler whose first n calls hang until free is called.
func hangs(w *ward, n int64) (handler func(context.Context, *chanq.Lease[string]) error, free func()) {
	gate, calls := make(chan struct{}), atomic.Int64{}
	open := sync.OnceFunc(func() { close(gate) })
	w.frees = append(w.frees, open)
	return func(context.Context, *chanq.Lease[string]) error {
		if calls.Add(1) <= n {
			<-gate
		}
		return nil
	}, open
}

// stuckIn is how long after the start a message counts as stuck.
func (w *ward) stuckIn() time.Duration { return max(w.limits.Stuck, time.Minute) + soon }

func TestHandlersThatAllHangAreFoundWithABacklog(t *testing.T) { stuck(t, 50) }

func TestHandlersThatAllHangAreFoundIfNothingIsReady(t *testing.T) { stuck(t, 4) }

func stuck(t *testing.T, messages int) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				if kind == chanq.KindOrdered && !w.Engine.Bubble {
					w.limits.Stuck = 20 * time.Second
				}
				q := w.queue(chanq.Config{Spec: chanq.Spec{Kind: kind}})
				handler, free := hangs(w, 4)
				w.handle(q, chanq.ConsumerConfig{Name: "web-6", Prefetch: 4}, 4, handler)
				testdb.Send(w, q, texts(messages)...)
				w.becomes(w.stuckIn(), none, kinds{chanqfindings.Stuck})
				time.Sleep(2 * time.Second) // not all were claimed at the same moment
				f := w.becomes(soon, nil, kinds{chanqfindings.Stuck})
				require.Equal(w, chanqfindings.Failure, f.Severity, f.Text)
				if kind == chanq.KindPlain {
					require.Regexp(w, `^all \d messages in hand have been leased for .*, by web-6$`, f.Text)
				}
				free()
				w.becomes(soon, kinds{chanqfindings.Stuck}, none)
			})
		})
	}
}

func TestOneMessageOfSeveralThatIsStuckIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		q := w.queue(chanq.Config{})
		gate, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		open, stop := sync.OnceFunc(func() { close(gate) }), sync.OnceFunc(func() { close(end); <-ended })
		w.frees = append(w.frees, open)
		pause := 10 * time.Millisecond
		w.handle(q, chanq.ConsumerConfig{Name: "web-6", Prefetch: 8}, 8, func(_ context.Context, l *chanq.Lease[string]) error {
			if l.Body == "hangs" {
				<-gate
			} else {
				time.Sleep(pause)
			}
			return nil
		})
		testdb.Send(w, q, chanq.Message[string]{Body: "hangs"})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		w.Cleanup(stop)
		go func() { // until stop is called
			defer close(ended)
			for {
				select {
				case <-end:
					return
				case <-time.After(pause):
					_, _ = p.SendBatch(context.Background(), texts(4)...)
				}
			}
		}()
		f := w.becomes(w.stuckIn(), none, kinds{chanqfindings.Stuck})
		stop()
		require.Regexp(w, `^(1 of \d+ messages in hand has|the only message in hand has) been leased for .*, by web-6$`, f.Text)
		open()
		w.becomes(soon, kinds{chanqfindings.Stuck}, none)
	})
}

// The consumer has leases of ten minutes. Its program does not run any more: none of its statements arrives.
func TestAKilledConsumerIsFound(t *testing.T) {
	for _, ready := range []int{0, 40} {
		t.Run(fmt.Sprintf("%d ready", ready), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				w.limits.Stuck = time.Hour
				q := w.queue(chanq.Config{})
				faults, db := w.Connect()
				there := testdb.OpenOn[string](w, db, "orders", chanq.Config{})
				c, err := there.Consume(context.Background(), chanq.ConsumerConfig{Name: "web-6", Prefetch: 3, LeaseFor: 10 * time.Minute})
				require.NoError(w, err)
				testdb.End(w, c)
				testdb.Send(w, q, texts(3)...)
				leases := testdb.Take(w, c, 3)
				began := time.Now()
				for w.Engine.Bubble && time.Since(began) < 50*time.Second { // it is heard
					require.Empty(w, w.found("orders"), "%+v", w.last["orders"])
					time.Sleep(time.Second)
				}
				gone := make(chan struct{})
				faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Hold(gone) })
				back := sync.OnceFunc(func() { faults.Inject(nil); close(gone) })
				w.Cleanup(back)
				if ready > 0 {
					testdb.Send(w, q, texts(ready)...)
				}
				f := w.becomes(25*time.Second+soon, none, kinds{chanqfindings.ConsumerLost})
				require.Regexp(w, `^consumer web-6 is not heard, with 3 messages in hand, the last taken .* ago; no other runs$`, f.Text)
				back()
				for _, l := range leases {
					_ = l.Ack()
				}
				if ready > 0 {
					w.handle(q, chanq.ConsumerConfig{}, 2, well)
					go func() {
						for l := range c.C() {
							_ = l.Ack()
						}
					}()
				}
				w.becomes(soon, kinds{chanqfindings.ConsumerLost}, none)
			})
		})
	}
}

func TestALockedTableIsFound(t *testing.T) {
	hospital(t, []testdb.Engine{testdb.Emulator, testdb.EmulatorVersions, testdb.Postgres, testdb.SQLServer}, func(w *ward) {
		q := w.queue(chanq.Config{})
		w.handle(q, chanq.ConsumerConfig{}, 2, well)
		testdb.Eventually(w, "it is registered", func() bool { return len(w.consumers()) == 1 })
		lock := map[string]string{
			"postgres":  `SET LOCAL application_name = 'nightly-report'; LOCK TABLE chanq_orders`,
			"sqlserver": `SELECT TOP (0) id FROM chanq_orders WITH (TABLOCKX, HOLDLOCK)`,
		}[w.Engine.Dialect.Name()]
		tx, err := w.DB.BeginTx(context.Background(), nil)
		require.NoError(w, err)
		_, err = tx.ExecContext(w.Soon(), lock)
		require.NoError(w, err)
		f := w.becomes(soon, none, kinds{chanqfindings.Locked})
		require.Regexp(w, `^locked by .+ \(session \d+\)( for .+)?$`, f.Text)
		if w.Engine.Dialect.Name() == "postgres" {
			require.Regexp(w, `^locked by nightly-report \(session \d+\) for `, f.Text)
			require.Contains(w, f.Remedy, "SELECT pg_terminate_backend(")
		} else {
			require.Contains(w, f.Remedy, "KILL ")
		}
		for range 40 { // no heartbeat is missing
			if w.Engine.Bubble {
				require.Equal(w, kinds{chanqfindings.Locked}, w.found("orders"))
				time.Sleep(time.Second)
			}
		}
		require.NoError(w, tx.Rollback())
		w.becomes(soon, kinds{chanqfindings.Locked}, none)
	})
}

func (w *ward) consumers() []chanqadmin.ConsumerInfo {
	list, err := w.queues["orders"].Consumers(w.Soon())
	require.NoError(w, err)
	return list
}

// All queues of the file are locked, and no consumer can send a heartbeat. No other program has a database in memory.
func TestAFileThatIsLockedForWritingIsOneFinding(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.SQLiteFile, testdb.SQLite}, func(world *testdb.World) {
		w := &ward{World: world, queues: map[string]*chanqadmin.Queue{}, last: map[string][]chanqfindings.Finding{}}
		q := w.queue(chanq.Config{})
		w.queues["healthy"] = testdb.Admin(w.Queue("healthy", chanq.Config{}))
		w.handle(q, chanq.ConsumerConfig{}, 2, well)
		testdb.Eventually(w, "it is registered", func() bool { return len(w.consumers()) == 1 })
		require.Empty(w, w.found("orders"))
		_, other := w.Connect()
		tx, err := other.BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		_, err = tx.ExecContext(w.Soon(), "UPDATE chanq__queues SET paused = paused")
		require.NoError(w, err)
		for range testdb.Of(60, 3) {
			var all []chanqfindings.Finding
			for _, queue := range []string{"orders", "healthy"} {
				require.Equal(w, kinds{chanqfindings.Locked}, w.found(queue), "%+v", w.last[queue])
				all = append(all, w.last[queue]...)
			}
			all = chanqfindings.Worst(all)
			require.Len(w, all, 1)
			require.Empty(w, all[0].Queue)
			time.Sleep(time.Second)
		}
		require.NoError(w, tx.Rollback())
		for began := time.Now(); len(w.found("orders")) > 0; time.Sleep(time.Second) {
			require.Less(w, time.Since(began), soon, "%+v", w.last["orders"])
		}
		require.Empty(w, w.found("healthy"))
	})
}

func TestAQueueThatNothingConsumesIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		q := w.queue(chanq.Config{})
		require.Empty(w, w.found("orders"), "it is empty")
		testdb.Send(w, q, texts(12)...)
		f := w.becomes(soon, none, kinds{chanqfindings.NoConsumer})
		require.Regexp(w, `^no consumer runs; 12 messages wait, the oldest for .+$`, f.Text)
		w.handle(q, chanq.ConsumerConfig{}, 2, well)
		w.becomes(soon, kinds{chanqfindings.NoConsumer}, none)
	})
}

func TestAPausedQueueIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		q := w.queue(chanq.Config{})
		testdb.Send(w, q, texts(12)...)
		require.NoError(w, w.queues["orders"].Pause(w.Soon(), chanqadmin.Change{Actor: "ada", Reason: "deploying 4.2"}))
		f := w.becomes(soon, none, kinds{chanqfindings.Paused})
		require.Regexp(w, `^paused for .+ by ada: deploying 4.2$`, f.Text)
		require.Equal(w, chanqfindings.Notice, f.Severity)
		w.handle(q, chanq.ConsumerConfig{}, 2, well)
		testdb.Eventually(w, "it is registered", func() bool { return len(w.consumers()) == 1 })
		require.NoError(w, w.queues["orders"].Resume(w.Soon()))
		w.becomes(soon, kinds{chanqfindings.Paused}, none)
	})
}

func TestAKeyThatADeadMessageBlocksIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		w.limits.Late = 5 * time.Second // longer than it takes until the message is dead
		q := w.queue(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, DeadKey: chanq.DeadKeyHolds}})
		w.handle(q, chanq.ConsumerConfig{}, 2, rejects)
		ms := texts(9)
		for i := range ms {
			ms[i].Key = "customer 7"
		}
		testdb.Send(w, q, ms...)
		f := w.becomes(soon, none, kinds{chanqfindings.BlockedKey, chanqfindings.Dead})
		require.Equal(w, "8 ready messages of 1 key wait for dead messages of the same key", f.Text)
		require.Equal(w, "q/orders/slots", f.Path)
		_, err := testdb.Purge(w.Soon(), q, chanqadmin.StateDead)
		require.NoError(w, err)
		w.becomes(soon, kinds{chanqfindings.BlockedKey, chanqfindings.Dead}, none)
	})
}

func TestADatabaseThatDoesNotAnswerIsFound(t *testing.T) {
	testdb.OnEach(t, engines, func(world *testdb.World) {
		w := &ward{World: world, queues: map[string]*chanqadmin.Queue{}, last: map[string][]chanqfindings.Finding{}}
		w.queue(chanq.Config{})
		require.Empty(w, w.found("orders"))
		gate := make(chan struct{})
		for _, fault := range []faultdb.Fault{w.Broken(false), faultdb.Hold(gate)} {
			w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return fault })
			began := time.Now()
			require.Equal(w, kinds{chanqfindings.Unreachable}, w.found("orders"), "%+v", w.last["orders"])
			require.LessOrEqual(w, time.Since(began), 5*time.Second)
			w.Heal()
			require.Empty(w, w.found("orders"))
		}
		close(gate)
	})
}

// Handlers need ten seconds, and the consumer has a message in reserve for each.
func TestSlowHandlersAreNotStuck(t *testing.T) {
	testdb.OnEach(t, engines[:1], func(world *testdb.World) {
		w := &ward{World: world, queues: map[string]*chanqadmin.Queue{}, last: map[string][]chanqfindings.Finding{}}
		q := w.queue(chanq.Config{})
		testdb.Send(w, q, texts(100)...)
		w.handle(q, chanq.ConsumerConfig{Prefetch: 16}, 2, func(context.Context, *chanq.Lease[string]) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		time.Sleep(30 * time.Second)
		longest := time.Duration(0)
		for range 200 {
			require.Empty(w, w.found("orders"), "%+v", w.last["orders"])
			page, err := w.queues["orders"].List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{})
			require.NoError(w, err)
			for _, e := range page.Entries {
				longest = max(longest, time.Since(time.UnixMilli(e.Fence>>20)))
			}
			time.Sleep(time.Second)
		}
		require.Greater(w, longest, 70*time.Second, "this would be stuck otherwise")
	})
}

func TestLimitsAreChecked(t *testing.T) {
	require.NoError(t, chanqfindings.Limits{}.Check())
	require.EqualError(t, chanqfindings.Limits{Stuck: -1, Late: -2}.Check(), "Limits.Stuck is -1ns: must be 0 (1 min) or more\nLimits.Late is -2ns: must be 0 (any time) or more")
}

func TestOldFiguresAreNoFigures(t *testing.T) {
	now := time.Now()
	f := chanqfindings.Figures{Queue: "orders", At: now.Add(-16 * time.Second), Stats: chanqadmin.Stats{Ready: 1}}
	found := chanqfindings.Of(f, chanqfindings.Limits{}, now)
	require.Len(t, found, 1)
	require.Equal(t, chanqfindings.Unknown, found[0].Kind)
	require.Equal(t, "the last figures are 16 s old", found[0].Text)
	require.Equal(t, "unknown", chanqfindings.State(f, found))
	f.At = now.Add(-15 * time.Second)
	require.Equal(t, chanqfindings.NoConsumer, chanqfindings.Of(f, chanqfindings.Limits{}, now)[0].Kind)
	f.Stats.Ready = 0
	require.Empty(t, chanqfindings.Of(f, chanqfindings.Limits{}, now))
	require.Equal(t, "idle", chanqfindings.State(f, nil))
}

func TestTheRunbookHasEachKind(t *testing.T) {
	text, err := os.ReadFile("../docs/operate/runbook.md")
	require.NoError(t, err)
	for _, kind := range chanqfindings.Kinds {
		require.Contains(t, string(text), "\n| `"+string(kind)+"` | ")
	}
}
