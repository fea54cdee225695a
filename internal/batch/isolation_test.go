package batch_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

func inTurn() batch.Config[*item] {
	cfg := settings()
	cfg.InTurn = true
	return cfg
}

func TestSeveralBadItemsAreIsolatedAndTheOthersWritten(t *testing.T) {
	for name, bad := range map[string][]int{
		"neighbours": {41, 42}, "first two": {1, 2}, "last two": {99, 100}, "all over": {1, 20, 40, 60, 80, 100},
		"a third": {3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 57, 60, 63, 66, 69, 72, 75, 78,
			81, 84, 87, 90, 93, 96, 99},
	} {
		for _, cfg := range []batch.Config[*item]{settings(), inTurn()} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, cfg)
					w.set(failing(classed(sqlbatch.Refused), bad...))
					w.addAll(batch.Now, numbered(1, 100)...)
					w.wait(20 * time.Second)
					w.add(batch.Now, numbered(101, 101)...)
					w.wait(5 * time.Second)
					for n := range 101 {
						require.Equal(t, !slices.Contains(bad, n+1), w.hasOutcome(n+1), n+1)
					}
					require.Equal(t, len(bad), w.w.Stats().Isolated)
					together := 0
					for _, items := range w.ran() {
						if len(items) > 1 {
							together++
						}
					}
					require.Less(t, together, 20+6*len(bad))
					w.set(nil)
					w.wait(10 * time.Second)
					require.Zero(t, w.w.Stats())
					w.close()
				})
			})
		}
	}
}

func TestAFailureThatPassesIsolatesNothingAndKeepsTheOrder(t *testing.T) {
	for _, class := range []sqlbatch.Class{sqlbatch.Unknown, sqlbatch.RolledBack, sqlbatch.Refused, slow} {
		for _, size := range []int{1, 5, 100} {
			for _, cfg := range []batch.Config[*item]{settings(), inTurn()} {
				synctest.Test(t, func(t *testing.T) {
					cfg.Full = []int{size}
					w := newWorld(t, cfg)
					var failed atomic.Bool
					w.set(func(ctx context.Context, _ []*item) error {
						if failed.Swap(true) {
							return nil
						}
						return cell{class: class}.fail(ctx)
					})
					w.addAll(batch.Now, numbered(1, 300)...)
					w.wait(timeout + time.Second)
					require.Empty(t, w.isolated)
					require.Len(t, w.order, 300)
					require.True(t, slices.IsSorted(w.order), "%v", class)
					w.close()
				})
			}
		}
	}
}

func TestAPermanentErrorThatTwoItemsGetIsThatOfTheWholeKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{100, 100}
		w := newWorld(t, cfg)
		items := numbered(1, 100)
		var denied []int
		for _, it := range items {
			if it.n%2 == 0 {
				it.Kind = 1
				denied = append(denied, it.n)
			}
		}
		w.set(failing(classed(sqlbatch.Permanent), denied...))
		w.addAll(batch.Now, items...)
		require.Less(t, len(w.ran()), 12)
		require.Zero(t, w.w.Stats().Open, "without a pause")
		for _, it := range items {
			require.Equal(t, it.n%2 == 0, w.outcome(it.n).Err != nil)
		}
		w.close()
	})
}

// keyed gives every third item the key "a", and every third "b".
func keyed(items []*item) []*item {
	for _, it := range items {
		it.key = []string{"", "a", "b"}[it.n%3]
	}
	return items
}

func TestItemsBehindAnIsolatedOneOfTheirKeyWaitForIt(t *testing.T) {
	for _, end := range []string{"written", "rejected", "withdrawn"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, inTurn())
				items := keyed(numbered(0, 29))
				w.set(failing(classed(sqlbatch.Refused), 4)) // of key a, behind 1
				w.addAll(batch.Now, items...)
				w.wait(3 * time.Second)
				w.addAll(batch.Now, keyed(numbered(30, 59))...)
				w.wait(3 * time.Second)
				require.Equal(t, batch.Stats{Open: 19, Waiting: 19, Isolated: 1, Behind: 18}, w.w.Stats())
				require.True(t, w.w.Withdraw(items[7]), "one of those behind")
				switch end {
				case "written":
					w.set(nil)
				case "rejected":
					w.set(failing(classed(sqlbatch.BadRow), 4))
				case "withdrawn":
					require.True(t, w.w.Withdraw(items[4]))
				}
				w.wait(6 * time.Second)
				w.addAll(batch.Now, keyed(numbered(60, 62))...)
				require.Zero(t, w.w.Stats())
				last := map[string]int{}
				for _, n := range w.order {
					key := []string{"", "a", "b"}[n%3]
					require.GreaterOrEqual(t, n, last[key], "the order of key %q", key)
					last[key] = n
				}
				require.Equal(t, 61, last["a"])
				require.Equal(t, end == "written", w.stored[4] == 1)
				w.close()
			})
		})
	}
}

func TestAKeyWhoseItemsAllFailLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inTurn())
		items := numbered(1, 500) // more than a few batches
		var bad []int
		for _, it := range items {
			it.key = "a"
			bad = append(bad, it.n)
		}
		w.set(failing(classed(sqlbatch.Refused), bad...))
		w.addAll(batch.Now, items...)
		w.add(batch.Now, numbered(501, 501)...)
		w.wait(10 * time.Second)
		require.NoError(t, w.outcome(501).Err)
		require.Equal(t, 1, w.w.Stats().Isolated)
		require.Equal(t, 499, w.w.Stats().Behind)
		w.set(nil)
		w.wait(10 * time.Second)
		require.Zero(t, w.w.Stats())
		w.close()
	})
}

func TestTheNumberOfIsolatedItemsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		bad := make([]int, 150)
		for i := range bad {
			bad[i] = 2*i + 1
		}
		w.set(failing(classed(sqlbatch.Unknown), bad...))
		w.addAll(batch.Now, numbered(1, 300)...)
		w.wait(10 * time.Minute)
		require.Equal(t, 100, w.w.Stats().Open)
		require.Equal(t, 100, w.w.Stats().Isolated)
		refused := 0
		for n := 1; n <= 300; n++ {
			if n%2 == 0 {
				require.NoError(t, w.outcome(n).Err)
			} else if w.hasOutcome(n) {
				require.Equal(t, classed(sqlbatch.Unknown), w.outcome(n).Err)
				require.True(t, w.outcome(n).Unknown)
				refused++
			}
		}
		require.Equal(t, 50, refused)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inTurn())
		w.set(failing(classed(sqlbatch.Refused), 1))
		items := numbered(1, 1200)
		for _, it := range items[:1102] {
			it.key = "a"
		}
		w.addAll(batch.Now, items...)
		w.wait(time.Minute)
		require.Equal(t, 1000, w.w.Stats().Behind)
		require.ErrorIs(t, w.outcome(1102).Err, classed(sqlbatch.Refused))
		require.NoError(t, w.outcome(1103).Err)
	})
}

func TestAnOutageRefusesNothingHoweverLongItLasts(t *testing.T) {
	for _, class := range []sqlbatch.Class{sqlbatch.Refused, slow} {
		for _, cfg := range []batch.Config[*item]{settings(), inTurn()} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, cfg)
				w.set(func(ctx context.Context, _ []*item) error { return cell{class: class}.fail(ctx) })
				for n := range 1000 { // one by one
					w.add(batch.Now, numbered(n, n)...)
					w.wait(time.Second)
				}
				require.Empty(t, w.told)
				require.LessOrEqual(t, w.w.Stats().Isolated, 1)
				w.set(nil)
				w.reset()
				w.wait(time.Minute)
				require.Zero(t, w.w.Stats())
				require.Less(t, len(w.ran()), 40)
				if cfg.InTurn && class != slow { // there the outage cannot end between two statements
					require.True(t, slices.IsSorted(w.order))
				}
				w.close()
			})
		}
	}
}

// The database undoes each statement. That is an outage only while nothing else was written.
func TestAnIsolatedItemIsAnOutageUntilAnotherOneIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.set(failing(classed(sqlbatch.RolledBack), 1))
		w.add(batch.Now, numbered(1, 1)...)
		w.wait(4 * time.Second)
		require.Equal(t, 1, w.w.Stats().Isolated)
		downs, _ := w.reported()
		require.Zero(t, downs)
		w.wait(10 * time.Second)
		downs, _ = w.reported()
		require.Positive(t, downs)
		w.add(batch.Now, numbered(2, 2)...)
		w.wait(time.Second)
		downs, ups := w.reported()
		require.Positive(t, ups)
		w.wait(time.Hour)
		later, _ := w.reported()
		require.Equal(t, downs, later, "the item is the cause")
		w.set(nil)
		w.wait(time.Minute)
		w.close()
	})
}

func TestAnIsolatedItemHasMoreTimeEachTimeAndKeepsNoWorkerWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		var took []time.Duration
		w.set(func(ctx context.Context, items []*item) error {
			began := time.Now()
			if items[0].n != 1 {
				return nil
			}
			<-ctx.Done()
			w.mu.Lock()
			took = append(took, time.Since(began))
			w.mu.Unlock()
			return context.Cause(ctx)
		})
		w.addAll(batch.Now, numbered(1, 2)...)
		for n := 3; n < 1000; n++ {
			before := len(w.ran())
			w.add(batch.Now, numbered(n, n)...)
			if w.w.Stats().Isolated == 1 {
				require.LessOrEqual(t, len(w.ran()), before+2)
				require.NoError(t, w.outcome(n).Err, "immediately")
			}
			w.wait(time.Second)
		}
		require.Equal(t, []time.Duration{30 * time.Second, timeout / 8, timeout / 8, 30 * time.Second, time.Minute,
			2 * time.Minute, 2 * time.Minute}, took[:7])
		require.NoError(t, w.outcome(2).Err)
	})
}

// A server might continue a cancelled statement, with the row locked.
func TestAnItemThatItsOwnStatementHasLockedHasMoreTimeEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.set(func(ctx context.Context, items []*item) error {
			w.mu.Lock()
			locked := w.lock[1]
			w.mu.Unlock()
			if end, _ := ctx.Deadline(); locked || time.Until(end) > 3*timeout {
				return nil
			}
			<-ctx.Done()
			lock := func(locked bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.lock[1] = locked
			}
			lock(true)
			time.AfterFunc(timeout+time.Millisecond, func() { lock(false) }) // not at the moment of another try
			return classed(sqlbatch.RolledBack)
		})
		w.addAll(batch.Now, numbered(1, 1)...)
		w.wait(time.Hour)
		require.True(t, w.hasOutcome(1))
		require.NoError(t, w.outcome(1).Err)
	})
}

func TestASuccessOfAnotherWorkerIsolatesAnItemThatIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Workers, cfg.Moment = 2, 50*time.Millisecond
		w := newWorld(t, cfg)
		w.set(failing(classed(sqlbatch.Refused), 1, 2))
		w.add(batch.Now, numbered(1, 1)...)
		w.wait(10 * time.Second)
		require.Equal(t, 1, w.w.Stats().Isolated, "nothing else is")
		w.add(batch.Now, numbered(2, 2)...)
		w.wait(10 * time.Second)
		require.Equal(t, 1, w.w.Stats().Isolated, "there is no sign that the database works")
		for n := range 10 {
			w.add(batch.Now, numbered(n+3, n+3)...)
			w.wait(time.Second)
			require.NoError(t, w.outcome(n+3).Err)
		}
		require.Equal(t, 2, w.w.Stats().Isolated)
	})
}

func TestASlowDatabaseGetsSmallBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.set(func(ctx context.Context, items []*item) error { // a second per item
			select {
			case <-time.After(time.Duration(len(items)) * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		const most = 1000
		w.addAll(batch.Now, numbered(1, most)...)
		require.NoError(t, w.w.Flush(t.Context()))
		late := 0
		for _, s := range w.statements {
			if s.err != nil {
				late++
			}
		}
		require.Less(t, late, 20, "of %d", len(w.statements))
		require.Zero(t, w.w.Stats())
		w.close()
	})
}

func TestStateThatWithdrawFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.lock[1] = true
		w.set(func(_ context.Context, items []*item) error {
			switch {
			case !slices.ContainsFunc(items, func(it *item) bool { return it.n == 2 }):
				return nil
			case len(items) > 1:
				return classed(sqlbatch.Refused)
			}
			return classed(sqlbatch.Unknown)
		})
		items := numbered(0, 3)
		w.addAll(batch.Now, items...)
		w.wait(time.Second)
		require.True(t, w.w.Withdraw(items[1]), "deferred")
		require.False(t, w.w.Withdraw(items[2]), "isolated, of unknown outcome")
		require.False(t, w.w.Withdraw(items[3]), "written")
		before := len(w.ran())
		w.wait(time.Minute)
		require.Len(t, w.ran(), before, "neither is written again")
		require.ErrorIs(t, w.outcome(2).Err, batch.ErrWithdrawn)
		require.True(t, w.outcome(2).Unknown)
		require.Equal(t, []int{1, 0}, w.isolated)
		require.Zero(t, w.w.Stats())
		w.close()
	})
}

func TestHealthHearsOfAnOutageAndNotOfAnIsolatedItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.set(failing(classed(sqlbatch.Refused), 1))
		w.addAll(batch.Now, numbered(1, 2)...)
		w.wait(time.Second)
		require.Equal(t, 1, w.w.Stats().Isolated)
		downs := w.downs
		w.wait(time.Minute)
		require.Equal(t, downs, w.downs)
		w.set(func(context.Context, []*item) error { return classed(sqlbatch.Refused) })
		w.add(batch.Now, numbered(3, 3)...)
		w.wait(time.Second)
		require.Greater(t, w.downs, downs)
	})
}

func TestWithdrawKeepsTheCountsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.lock[0] = true
		items := numbered(0, 4)
		for _, it := range items[1:4] {
			it.key = "a"
		}
		w.set(failing(classed(sqlbatch.Refused), 1))
		w.addAll(batch.Now, items...)
		synctest.Wait()
		require.True(t, w.w.Withdraw(items[3]), "held, between two statements")
		w.wait(3 * time.Second)
		require.Equal(t, batch.Stats{Open: 3, Waiting: 3, Isolated: 1, Behind: 1}, w.w.Stats())
		require.True(t, w.w.Withdraw(items[0]), "deferred")
		require.Equal(t, 2, w.w.Stats().Waiting)
		require.True(t, w.w.Withdraw(items[2]), "behind")
		require.Equal(t, batch.Stats{Open: 1, Waiting: 1, Isolated: 1}, w.w.Stats())
		require.True(t, w.w.Withdraw(items[1]), "isolated")
		require.Zero(t, w.w.Stats())
		for _, it := range items[:4] {
			require.Panics(t, func() { w.add(batch.Now, it) })
		}
		w.set(nil)
		w.add(batch.Now, &item{key: "a", n: 5})
		w.wait(time.Minute)
		require.Equal(t, []int{4, 5}, w.order)
		require.Equal(t, []int{1, 0}, w.isolated)
		w.close()
	})
}

func TestAWithdrawnItemOfUnknownOutcomeIsEndedWhereverItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		items := numbered(1, 4)
		for _, it := range items[:3] {
			it.key = "a"
		}
		w.set(failing(classed(sqlbatch.Unknown), 1))
		w.addAll(batch.Now, items...)
		w.wait(2 * time.Second)
		require.Equal(t, 2, w.w.Stats().Behind)
		require.False(t, w.w.Withdraw(items[2]), "behind")
		w.wait(time.Second)
		require.ErrorIs(t, w.outcome(3).Err, batch.ErrWithdrawn)
		require.True(t, w.outcome(3).Unknown)
		require.Equal(t, 1, w.w.Stats().Behind)

		hold := make(chan struct{})
		w.set(func(_ context.Context, items []*item) error {
			if items[0].n == 5 {
				<-hold
			}
			return nil
		})
		w.add(batch.Now, numbered(5, 5)...)
		w.wait(6 * time.Second)
		require.NoError(t, w.outcome(1).Err)
		require.False(t, w.hasOutcome(2), "it waits for the worker")
		require.False(t, w.w.Withdraw(items[1]), "waiting")
		close(hold)
		w.wait(time.Second)
		require.ErrorIs(t, w.outcome(2).Err, batch.ErrWithdrawn)
		require.True(t, w.outcome(2).Unknown)
		require.Equal(t, []int{4, 1, 5}, w.order)
		require.Zero(t, w.w.Stats())
		w.close()
	})
}

func TestAPermanentErrorOfOneKindProvesNothingAboutAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{100, 100}
		w := newWorld(t, cfg)
		items := numbered(1, 5)
		for _, it := range items[1:] {
			it.Kind = 1
		}
		w.set(failing(classed(sqlbatch.Permanent), 1, 2))
		w.addAll(batch.Now, items...)
		for _, it := range items {
			require.Equal(t, it.n <= 2, w.outcome(it.n).Err != nil, it.n)
		}
		w.close()
	})
}

func TestIsolatedReportsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.set(func(_ context.Context, items []*item) error {
			if time.Since(w.began) < time.Second &&
				slices.ContainsFunc(items, func(it *item) bool { return it.n == 1 }) {
				return classed(sqlbatch.Refused)
			}
			return nil
		})
		w.addAll(batch.Now, numbered(1, 2)...)
		w.wait(time.Minute)
		require.Equal(t, []int{1, 0}, w.isolated)
		w.close()
	})
}

func TestAConfigThatContradictsItselfIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*batch.Config[*item]){
		"two kinds": func(cfg *batch.Config[*item]) { cfg.Full = []int{1, 1} },
		"Workers":   func(cfg *batch.Config[*item]) { cfg.Workers = 2 },
		"Absent": func(cfg *batch.Config[*item]) {
			cfg.Absent = func(context.Context, []*item) ([]batch.Outcome[*item], error) { return nil, nil }
		},
	} {
		cfg := inTurn()
		require.NotPanics(t, func() { batch.New(cfg) }, name)
		spoil(&cfg)
		require.Panics(t, func() { batch.New(cfg) }, name)
	}
	cfg := settings()
	cfg.Workers = 2
	keyed := &item{key: "a"}
	require.Panics(t, func() { _ = batch.New(cfg).Add(t.Context(), keyed, batch.Now) }, "two workers have no order")
}

func TestDoneMayAddAnIsolatedItemAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		var writer *batch.Writer[*item]
		var rejected atomic.Pointer[item]
		cfg.Loop.Health, cfg.Loop.Classify = &world{}, classify
		cfg.Write = func(_ context.Context, items []*item, _ bool) ([]*item, error) {
			switch {
			case rejected.Load() != nil || items[0].n > 1:
				return items, nil
			case writer.Stats().Isolated > 0:
				return nil, classed(sqlbatch.BadRow)
			}
			return nil, classed(sqlbatch.Refused)
		}
		cfg.Done = func(_ time.Time, out []batch.Outcome[*item]) {
			if out[0].Err != nil {
				rejected.Store(out[0].Item)
				_ = writer.AddAll(1, func(int) *item { return out[0].Item }, batch.Now)
			}
		}
		writer = batch.New(cfg)
		items := numbered(1, 10)
		require.NoError(t, writer.AddAll(10, func(i int) *item { return items[i] }, batch.Now))
		go writer.Run(context.Background())
		time.Sleep(time.Minute)
		require.Same(t, items[0], rejected.Load())
		require.Zero(t, writer.Stats())
		writer.Close()
	})
}
