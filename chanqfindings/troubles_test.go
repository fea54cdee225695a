package chanqfindings_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/chanq/chanq/prove/trouble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions, testdb.SQLiteFile, testdb.Postgres, testdb.SQLServer}

// ward is where queues are in trouble.
type ward struct {
	*trouble.Ward
	last map[string][]chanqfindings.Finding
	seen map[string]chanqfindings.Seen
}

// soon is how long after its threshold a finding may appear, and how long after the end of its fault it may last.
const soon = 15 * time.Second

type kinds []chanqfindings.Kind

var none = kinds{}

// found looks at a queue.
func (w *ward) found(queue string) kinds {
	w.Helper()
	f := chanqfindings.Look(w.Soon(), w.Queues[queue])
	f.Follow(w.seen[queue])
	w.seen[queue], w.last[queue] = f.Seen, chanqfindings.Of(f, w.Limits, time.Now())
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

// admit returns a ward without queues.
func admit(world *testdb.World) *ward {
	return &ward{trouble.NewWard(world, chanq.Hooks{}), map[string][]chanqfindings.Finding{}, map[string]chanqfindings.Seen{}}
}

// hospital runs a test with a healthy queue and one in trouble.
func hospital(t *testing.T, engines []testdb.Engine, test func(*ward)) {
	testdb.OnEach(t, engines, func(world *testdb.World) {
		w := admit(world)
		w.Healthy()
		test(w)
	})
}

func TestMessagesOfOneTypeThatDieAreFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		end := trouble.Poison(w.Ward)
		f := w.becomes(soon, none, kinds{chanqfindings.Dead})
		require.Regexp(w, `^[1-6] messages? (is|are) dead, the last for .+: parse invoice: unknown currency "XBT"$`, f.Text)
		if w.Engine.Bubble {
			require.Contains(w, f.Text, "for less than 1 s:")
		}
		require.Equal(w, "q/orders/failures", f.Path)
		end()
		w.becomes(soon, kinds{chanqfindings.Dead}, none)
	})
}

func TestMessagesThatAreAllRetriedAreFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		end := trouble.Retried(w.Ward)
		f := w.becomes(soon, none, kinds{chanqfindings.Failing})
		require.Regexp(w, `^all of the last \d+ attempts failed(: POST https://pay.example/charge: 503 Service Unavailable)?$`, f.Text)
		if w.Engine.Bubble { // elsewhere all may be ready or leased when it looks
			require.Contains(w, f.Text, ": POST ")
		}
		require.Equal(w, chanqfindings.Failure, f.Severity)
		end()
		w.becomes(2*soon, kinds{chanqfindings.Failing}, none)
	})
}

// One message fails, and the few others do not.
func TestAMessageThatFailsAgainAndAgainIsFound(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				q := w.Orders(chanq.Config{Spec: chanq.Spec{Kind: kind, MaxAttempts: 10_000}})
				var fixed atomic.Bool
				w.Handle(q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return 2 * time.Second }}, 2, func(_ context.Context, l *chanq.Lease[string]) error {
					if l.Body == "invoice" && !fixed.Load() {
						return errors.New("status 403")
					}
					return nil
				})
				testdb.Send(w, q, trouble.Texts(5)...) // one is an invoice
				f := w.becomes(14*time.Second+soon, none, kinds{chanqfindings.Failing})
				require.Regexp(w, `^1 message has failed \d+ times in .+: status 403$`, f.Text)
				require.Equal(w, chanqfindings.Warning, f.Severity)
				fixed.Store(true)
				w.becomes(soon, kinds{chanqfindings.Failing}, none)
			})
		})
	}
}

// Two messages fail, and a third one does not. Before the eighth attempt two minutes pass.
func TestMessagesThatFailAgainAreFoundWithLittleTraffic(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				q := w.Orders(chanq.Config{Spec: chanq.Spec{Kind: kind}})
				var fixed atomic.Bool
				w.Handle(q, chanq.ConsumerConfig{}, 2, func(_ context.Context, l *chanq.Lease[string]) error {
					if l.Body == "invoice" && !fixed.Load() {
						return errors.New("status 403")
					}
					return nil
				})
				testdb.Send(w, q, testdb.Texts("invoice", "card", "invoice")...)
				f := w.becomes(30*time.Second+soon, none, kinds{chanqfindings.Failing})
				require.Regexp(w, `^(1 message has|2 messages have) failed (up to )?[3-6] times in .+: status 403$`, f.Text)
				fixed.Store(true)
				w.becomes(2*time.Minute, kinds{chanqfindings.Failing}, none)
			})
		})
	}
}

// stuckIn is how long after the start a message counts as stuck.
func (w *ward) stuckIn() time.Duration { return max(w.Limits.Stuck, time.Minute) + soon }

func TestHandlersThatAllHangAreFoundWithABacklog(t *testing.T) { stuck(t, 50) }

func TestHandlersThatAllHangAreFoundIfNothingIsReady(t *testing.T) { stuck(t, 4) }

func stuck(t *testing.T, messages int) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				if kind == chanq.KindOrdered && !w.Engine.Bubble {
					w.Limits.Stuck = 20 * time.Second
				}
				free := trouble.AllStuck(w.Ward, kind, messages)
				w.becomes(w.stuckIn(), none, kinds{chanqfindings.Stuck})
				time.Sleep(2 * time.Second) // not all were claimed at the same moment
				f := w.becomes(soon, nil, kinds{chanqfindings.Stuck})
				if w.Engine.Bubble || kind == chanq.KindPlain { // a late sample makes it a warning first
					require.Equal(w, chanqfindings.Failure, f.Severity, f.Text)
				}
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
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				end := trouble.OneStuck(w.Ward, kind)
				f := w.becomes(w.stuckIn()+15*time.Second, none, kinds{chanqfindings.Stuck}) // an ordered one is leased in its row after that
				if kind == chanq.KindOrdered {
					// On a busy machine the others are settled late.
					require.Regexp(w, `^\d messages? (ha(s|ve) been leased for|in hand, and none was settled for) .*, by web-6$`, f.Text)
				} else {
					require.Regexp(w, `^(1 of \d+ messages in hand has|the only message in hand has) been leased for .*, by web-6$`, f.Text)
				}
				if w.Engine.Bubble {
					require.Equal(w, chanqfindings.Warning, f.Severity)
				}
				end()
				w.becomes(soon, kinds{chanqfindings.Stuck}, none)
			})
		})
	}
}

// The consumer has leases of ten minutes. Its program does not run any more: none of its statements arrives.
func TestAKilledConsumerIsFound(t *testing.T) {
	for _, ready := range []int{0, 40} {
		t.Run(fmt.Sprintf("%d ready", ready), func(t *testing.T) {
			hospital(t, engines, func(w *ward) {
				w.Limits.Stuck = time.Hour
				end := trouble.Killed(w.Ward, ready)
				f := w.becomes(25*time.Second+soon, none, kinds{chanqfindings.ConsumerLost})
				require.Regexp(w, `^consumer web-6 is not heard, with 3 messages in hand, the last taken .* ago; no other runs$`, f.Text)
				end()
				w.becomes(soon, kinds{chanqfindings.ConsumerLost}, none)
			})
		})
	}
}

func TestALockedTableIsFound(t *testing.T) { locked(t, trouble.LockedTable) }

func TestTheHolderOfALockIsFoundBehindAWaiter(t *testing.T) { locked(t, trouble.LockedBehindAWaiter) }

func TestTheHolderOfALockIsFoundBehindTwoWaiters(t *testing.T) {
	locked(t, trouble.LockedBehindTwoWaiters)
}

func locked(t *testing.T, cause func(*trouble.Ward) (end func())) {
	hospital(t, []testdb.Engine{testdb.Emulator, testdb.EmulatorVersions, testdb.Postgres, testdb.SQLServer}, func(w *ward) {
		end := cause(w.Ward)
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
		end()
		w.becomes(soon, kinds{chanqfindings.Locked}, none)
	})
}

// All queues of the file are locked, and no consumer can send a heartbeat. No other program has a database in memory.
func TestAFileThatIsLockedForWritingIsOneFinding(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.SQLiteFile, testdb.SQLite}, func(world *testdb.World) {
		w := admit(world)
		w.Queues["healthy"] = testdb.Admin(w.Queue("healthy", chanq.Config{}))
		end := trouble.LockedFile(w.Ward)
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
		end()
		for began := time.Now(); len(w.found("orders")) > 0; time.Sleep(time.Second) {
			require.Less(w, time.Since(began), soon, "%+v", w.last["orders"])
		}
		require.Empty(w, w.found("healthy"))
	})
}

func TestAQueueThatNothingConsumesIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		end := trouble.Unconsumed(w.Ward)
		f := w.becomes(soon, none, kinds{chanqfindings.NoConsumer})
		require.Regexp(w, `^no consumer runs; 12 messages wait, the oldest for .+$`, f.Text)
		end()
		w.becomes(soon, kinds{chanqfindings.NoConsumer}, none)
	})
}

func TestAConsumerThatStopsIsMissedSoon(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		q := w.Orders(chanq.Config{})
		c, err := q.Consume(context.Background(), chanq.ConsumerConfig{})
		require.NoError(w, err)
		testdb.End(w, c)
		for range 25 { // until it has recorded samples
			testdb.Send(w, q, trouble.Texts(1)...)
			require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
			time.Sleep(time.Second)
		}
		require.Equal(w, none, w.found("orders"), "%+v", w.last["orders"])
		require.NoError(w, c.Shutdown(testdb.Soon(w)))
		testdb.Send(w, q, trouble.Texts(3)...)
		w.becomes(soon, none, kinds{chanqfindings.NoConsumer})
	})
}

func TestAPausedQueueIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		end := trouble.Paused(w.Ward)
		f := w.becomes(soon, none, kinds{chanqfindings.Paused})
		require.Regexp(w, `^paused for .+ by ada: deploying 4.2$`, f.Text)
		require.Equal(w, chanqfindings.Notice, f.Severity)
		end()
		w.becomes(soon, kinds{chanqfindings.Paused}, none)
	})
}

func TestAKeyThatADeadMessageBlocksIsFound(t *testing.T) {
	hospital(t, engines, func(w *ward) {
		w.Limits.Late = 5 * time.Second // longer than it takes until the message is dead
		end := trouble.Blocked(w.Ward)
		f := w.becomes(soon, none, kinds{chanqfindings.BlockedKey, chanqfindings.Dead})
		require.Regexp(w, `^8 ready messages of 1 key wait for dead messages of the same key, for .+ s$`, f.Text)
		require.Equal(w, "q/orders/slots", f.Path)
		end()
		w.becomes(soon, kinds{chanqfindings.BlockedKey, chanqfindings.Dead}, none)
	})
}

func TestADatabaseThatDoesNotAnswerIsFound(t *testing.T) {
	testdb.OnEach(t, engines, func(world *testdb.World) {
		w := admit(world)
		w.Orders(chanq.Config{})
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
		w := admit(world)
		q := w.Orders(chanq.Config{})
		testdb.Send(w, q, trouble.Texts(100)...)
		w.Handle(q, chanq.ConsumerConfig{Prefetch: 16}, 2, func(context.Context, *chanq.Lease[string]) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		time.Sleep(30 * time.Second)
		longest := time.Duration(0)
		for range 200 {
			require.Empty(w, w.found("orders"), "%+v", w.last["orders"])
			page, err := w.Queues["orders"].List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{})
			require.NoError(w, err)
			for _, e := range page.Entries {
				longest = max(longest, time.Since(time.UnixMilli(e.Fence>>20)))
			}
			time.Sleep(time.Second)
		}
		require.Greater(w, longest, 70*time.Second, "this would be stuck otherwise")
	})
}

// A handler takes 40 s, and then snoozes. Others are fast.
func TestSnoozedMessagesAreNotStuck(t *testing.T) {
	hospital(t, []testdb.Engine{testdb.Memory, testdb.Emulator}, func(w *ward) {
		q := w.Orders(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
		w.Handle(q, chanq.ConsumerConfig{}, 2, func(ctx context.Context, l *chanq.Lease[string]) error {
			if l.Body != "invoice" {
				return nil
			}
			select {
			case <-time.After(40 * time.Second):
			case <-ctx.Done():
			}
			return chanq.Snooze(2*time.Second, errors.New("not yet"))
		})
		testdb.Send(w, q, chanq.Message[string]{Body: "invoice"})
		for range 8 { // each finds another delivery
			time.Sleep(time.Minute)
			for range 20 {
				testdb.Send(w, q, chanq.Message[string]{Body: "card", Key: "other"})
			}
			require.Empty(w, w.found("orders"), "%+v", w.last["orders"])
		}
	})
}

// The only message fails, and is tried again after more than two minutes: nothing else is settled.
func TestAMessageWithLongRetriesStaysFound(t *testing.T) {
	hospital(t, []testdb.Engine{testdb.Memory, testdb.Emulator}, func(w *ward) {
		q := w.Orders(chanq.Config{})
		w.Handle(q, chanq.ConsumerConfig{}, 2, func(context.Context, *chanq.Lease[string]) error {
			return chanq.RetryAfter(150*time.Second, errors.New("status 403"))
		})
		testdb.Send(w, q, chanq.Message[string]{Body: "invoice"})
		time.Sleep(2*150*time.Second + soon) // three attempts
		for range 60 {
			require.Equal(w, kinds{chanqfindings.Failing}, w.found("orders"))
			time.Sleep(5 * time.Second)
		}
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
