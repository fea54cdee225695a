package batch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

func TestAnAwaitedItemThatComesAloneIsWrittenImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.add(batch.Awaited, numbered(1, 1)...)
		w.add(batch.Awaited, numbered(2, 2)...)
		require.Equal(t, [][]int{{1}, {2}}, w.ran())
		w.wait(time.Minute)
		w.add(batch.Awaited, numbered(3, 3)...)
		require.Len(t, w.ran(), 3)
		w.close()
	})
}

func TestALazyItemLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.add(batch.Lazy, numbered(1, 1)...)
		w.wait(linger - 1)
		w.add(batch.Lazy, numbered(2, 2)...)
		require.Empty(t, w.ran())
		w.wait(1)
		require.Equal(t, [][]int{{1, 2}}, w.ran(), "the oldest has lingered")
		w.close()
	})
}

func TestAwaitedItemsWaitForHalfTheBatchBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.addAll(batch.Awaited, numbered(1, 6)...)
		w.add(batch.Awaited, numbered(7, 8)...)
		require.Len(t, w.ran(), 1, "fewer than half of six")
		w.add(batch.Awaited, numbered(9, 9)...)
		require.Equal(t, []int{7, 8, 9}, w.ran()[1])
		w.addAll(batch.Awaited, numbered(10, 15)...)
		w.add(batch.Awaited, numbered(16, 16)...)
		w.wait(linger - 1)
		require.Len(t, w.ran(), 3)
		w.wait(1)
		require.Equal(t, []int{16}, w.ran()[3], "no other item came")
		w.close()
	})
}

func TestAnAwaitedItemEndsTheLingerOfLazyOnes(t *testing.T) {
	for name, awaited := range map[string]func(*world){
		"Add":      func(w *world) { w.add(batch.Awaited, numbered(6, 6)...) },
		"Expedite": func(w *world) { w.add(batch.Lazy, numbered(6, 6)...); w.w.Expedite() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, settings())
				w.addAll(batch.Now, numbered(1, 4)...) // the next batch is due with two
				w.add(batch.Lazy, numbered(5, 5)...)
				w.wait(linger - 1)
				require.Len(t, w.ran(), 1)
				awaited(w)
				require.Equal(t, [][]int{{1, 2, 3, 4}, {5, 6}}, w.ran(), "before the linger is over")
				w.close()
			})
		})
	}
}

func TestABatchIsFullByCountAndByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{3}
		w := newWorld(t, cfg)
		w.addAll(batch.Lazy, numbered(1, 2)...)
		require.Empty(t, w.ran())
		w.addAll(batch.Lazy, numbered(3, 4)...)
		require.Equal(t, [][]int{{1, 2, 3}}, w.ran())
		w.wait(time.Second)
		require.Equal(t, []int{4}, w.ran()[1])
		w.close()
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Bytes = 30
		cfg.Cut = func(items []*item) int { return min(2, len(items)) }
		w := newWorld(t, cfg)
		w.addAll(batch.Lazy, numbered(1, 2)...)
		require.Empty(t, w.ran())
		w.add(batch.Lazy, numbered(3, 3)...)
		require.Equal(t, [][]int{{1, 2}}, w.ran(), "Cut allows two")
		w.close()
		require.Equal(t, []int{3}, w.ran()[1])
	})
}

func TestAnUrgentItemTakesTheOthersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.add(batch.Lazy, numbered(1, 2)...)
		w.add(batch.Now, numbered(3, 3)...)
		require.Equal(t, [][]int{{1, 2, 3}}, w.ran())
		w.add(batch.Lazy, numbered(4, 4)...)
		require.Len(t, w.ran(), 1)
		w.w.Drain()
		require.Len(t, w.ran(), 2)
		w.add(batch.Lazy, numbered(5, 5)...)
		require.Len(t, w.ran(), 3)
		w.close()
	})
}

func TestKindsShareABatchAndNoStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{100, 2}
		w := newWorld(t, cfg)
		items := numbered(1, 9)
		for i, it := range items {
			it.Kind = uint8(i % 2)
		}
		w.addAll(batch.Now, items...)
		require.Equal(t, [][]int{{1, 3, 5, 7, 9}, {2, 4}, {6, 8}}, w.ran())
		require.Equal(t, [][]int{{1, 3, 5, 7, 9}, {2, 4, 6, 8}}, w.groups,
			"an item does not wait for the statements of another kind")
		w.close()
	})
}

func TestAThousandItemsAreReportedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{1000}
		w := newWorld(t, cfg)
		w.addAll(batch.Lazy, numbered(1, 1000)...)
		require.Len(t, w.ran(), 1)
		require.Len(t, w.groups, 1)
		w.close()
	})
}

func TestDoneMayAddItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Workers = 2
		var writer *batch.Writer[*item]
		var told sync.WaitGroup
		cfg.Loop.Health, cfg.Loop.Classify = &world{}, classify
		cfg.Write = func(_ context.Context, items []*item, _ bool) ([]*item, error) { return items, nil }
		cfg.Done = func(_ time.Time, out []batch.Outcome[*item]) {
			for _, o := range out {
				told.Done()
				if o.Item.n++; o.Item.n < 10 {
					_ = writer.AddAll(1, func(int) *item { return o.Item }, batch.Now)
				}
			}
		}
		writer = batch.New(cfg)
		told.Add(100)
		items := numbered(0, 9)
		for _, it := range items {
			it.n = 0
		}
		require.NoError(t, writer.AddAll(10, func(i int) *item { return items[i] }, batch.Now))
		go writer.Run(context.Background())
		told.Wait()
		writer.Close()
	})
}

func TestFlushWaitsForTheItemsBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Workers = 2
		w := newWorld(t, cfg)
		w.keep()
		require.NoError(t, w.w.Flush(t.Context()), "without items")
		w.add(batch.Now, numbered(1, 1)...)
		w.add(batch.Lazy, numbered(2, 2)...)
		flushed := make(chan error, 1)
		go func() { flushed <- w.w.Flush(t.Context()) }()
		require.Equal(t, [][]int{{1}, {2}}, w.ran(), "it does not linger")
		later := numbered(3, 4)
		w.add(batch.Lazy, later...)
		require.True(t, w.w.Withdraw(later[1]))
		w.finish()
		require.Empty(t, flushed)
		w.finish()
		require.NoError(t, <-flushed, "later items do not count")

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { flushed <- w.w.Flush(ctx) }()
		synctest.Wait()
		cancel(gone)
		require.ErrorIs(t, <-flushed, gone)
		w.finish()
		w.close()
	})
}

func TestFlushWaitsForDeferredAndIsolatedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.lock[1] = true
		w.set(failing(classed(sqlbatch.Refused), 2))
		w.addAll(batch.Now, numbered(1, 4)...)
		flushed := make(chan error, 2)
		flush := func() { flushed <- w.w.Flush(t.Context()) }
		go flush()
		w.wait(time.Minute)
		require.Empty(t, flushed)
		require.Equal(t, 1, w.w.Stats().Isolated)
		require.Equal(t, 2, w.w.Stats().Waiting)
		go flush() // while one is deferred, and the other one isolated
		w.mu.Lock()
		w.lock[1] = false
		w.mu.Unlock()
		w.wait(time.Minute)
		require.Empty(t, flushed)
		w.set(nil)
		require.NoError(t, <-flushed)
		require.NoError(t, <-flushed)
		w.close()
	})
}

func TestAddWaitsForRoomOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Capacity = 2
		w := newWorld(t, cfg)
		w.keep()
		w.add(batch.Now, numbered(1, 1)...)
		waiting := numbered(2, 3)
		w.add(batch.Lazy, waiting...)
		added := make(chan error, 1)
		add := func(ctx context.Context) { added <- w.w.Add(ctx, &item{n: 4}, batch.Lazy) }
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		go add(ctx)
		synctest.Wait()
		require.Empty(t, added)
		cancel(gone)
		require.ErrorIs(t, <-added, gone)
		w.addAll(batch.Now, numbered(5, 5)...) // never blocks
		go add(t.Context())
		synctest.Wait()
		require.True(t, w.w.Withdraw(waiting[0]))
		synctest.Wait()
		require.Empty(t, added, "two items still wait")
		w.finish()
		require.NoError(t, <-added)
		require.Equal(t, []int{3, 5}, w.ran()[1])
		w.add(batch.Lazy, numbered(6, 6)...)
		go add(t.Context())
		synctest.Wait()
		require.Empty(t, added)
		w.w.Close()
		require.ErrorIs(t, <-added, batch.ErrClosed)
		w.finish()
		w.finish()
		w.close()
	})
}

func TestABatchThatHangsDelaysTheNextForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Moment, cfg.Full, cfg.Workers = 250*time.Millisecond, []int{2}, 2
		w := newWorld(t, cfg)
		w.keep()
		w.addAll(batch.Now, numbered(1, 3)...) // no later item could wake a worker
		require.Equal(t, [][]int{{1, 2}}, w.ran())
		w.wait(250*time.Millisecond - 1)
		require.Len(t, w.ran(), 1, "the next batch grows meanwhile")
		w.wait(1)
		require.Equal(t, [][]int{{1, 2}, {3}}, w.ran())
		w.finish()
		w.finish()
		w.add(batch.Now, numbered(4, 4)...)
		w.finish()
		w.w.Expedite() // wakes the idle worker, while there is nothing to do
		w.add(batch.Now, numbered(5, 5)...)
		w.wait(250 * time.Millisecond)
		require.Equal(t, []int{5}, w.ran()[3])
		w.finish()
		w.close()
	})
}

func TestLockedItemsAreTriedLaterAndHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Moment, cfg.Workers = time.Hour, 2
		w := newWorld(t, cfg)
		w.lock[1], w.lock[3] = true, true
		w.addAll(batch.Now, numbered(1, 3)...)
		require.Equal(t, [][]int{{2}}, w.groups)
		w.wait(20*time.Millisecond - 1)
		require.Len(t, w.ran(), 1)
		w.wait(1)
		require.Equal(t, []int{1, 3}, w.ran()[1])
		require.True(t, w.statements[1].skip, "the repetition does not wait for locks")
		w.add(batch.Now, numbered(4, 4)...)
		require.Equal(t, []int{4}, w.ran()[2])
		w.wait(time.Minute)
		require.InDelta(t, 60/1.28, len(w.ran()), 8, "the pause grows to a second or so")
		w.mu.Lock()
		w.lock[3] = false
		w.mu.Unlock()
		w.wait(2 * time.Second)
		require.NoError(t, w.outcome(3).Err)
		w.w.Close()
		w.wait(time.Minute)
		require.Equal(t, 1, w.w.Stats().Open, "Close waits for it")
		w.w.GiveUp(errGivenUp)
		require.ErrorIs(t, w.outcome(1).Err, errGivenUp)
		require.False(t, w.outcome(1).Unknown)
		w.close()
	})
}

func TestEachItemIsWrittenOnceAndInOrder(t *testing.T) {
	for _, inTurn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := settings()
			cfg.Full, cfg.Capacity, cfg.InTurn = []int{7}, 20, inTurn
			w := newWorld(t, cfg)
			w.latency = time.Millisecond
			const senders, each = 5, 300
			var all sync.WaitGroup
			for s := range senders {
				all.Go(func() {
					for i := range each {
						_ = w.w.Add(t.Context(), &item{n: s*each + i}, batch.Urgency(i%3))
					}
				})
			}
			all.Wait()
			require.NoError(t, w.w.Flush(t.Context()))
			last := map[int]int{}
			for _, n := range w.order {
				require.Equal(t, n%each, last[n/each], "of one sender, in order")
				last[n/each]++
			}
			require.Len(t, w.order, senders*each)
			w.close()
		})
	}
}

// The cost of a withdrawal does not depend on the number of waiting items.
func TestWithdrawnItemsAreNotWrittenAndTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.keep()
		w.add(batch.Now, numbered(0, 0)...)
		const most = 200_000
		items := numbered(1, most)
		w.addAll(batch.Lazy, items...)
		for i, it := range items {
			if i%1000 != 7 {
				require.True(t, w.w.Withdraw(it))
				require.False(t, w.w.Withdraw(it), "twice")
			}
		}
		require.Equal(t, most/1000, w.w.Stats().Waiting)
		require.Panics(t, func() { w.add(batch.Lazy, items[0]) }, "it might still be in the Writer")
		w.mu.Lock()
		close(w.gate)
		w.gate = nil
		w.mu.Unlock()
		w.close()
		require.Len(t, w.order, 1+most/1000)
		require.True(t, len(w.told) == len(w.order))
	})
}

func TestWithdrawLeavesAnItemToTheStatementThatHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings())
		w.keep()
		w.set(failing(classed(sqlbatch.Unknown), 1))
		items := numbered(1, 2)
		w.addAll(batch.Now, items...)
		require.False(t, w.w.Withdraw(items[0]))
		w.finish()
		w.wait(time.Second)
		require.Equal(t, [][]int{{1, 2}, {2}}, w.ran(), "it is not written again")
		require.ErrorIs(t, w.outcome(1).Err, batch.ErrWithdrawn)
		require.True(t, w.outcome(1).Unknown)
		w.finish()
		require.NoError(t, w.outcome(2).Err)
		w.close()
	})
}

func TestGiveUpReportsEveryOutcomeBeforeTheDriverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{2}
		w := newWorld(t, cfg)
		hung := make(chan struct{})
		end := sync.OnceFunc(func() { close(hung) })
		t.Cleanup(end)
		w.set(func(context.Context, []*item) error { <-hung; return nil })
		w.addAll(batch.Now, numbered(1, 5)...)
		w.w.GiveUp(errGivenUp)
		for n := 1; n <= 5; n++ {
			require.ErrorIs(t, w.outcome(n).Err, errGivenUp)
			require.Equal(t, n <= 2, w.outcome(n).Unknown, n)
		}
		require.Zero(t, w.w.Stats().Open)
		require.ErrorIs(t, w.w.Add(t.Context(), &item{}, batch.Now), batch.ErrClosed)
		w.w.GiveUp(errGivenUp) // twice
		end()
		w.close()
		require.Equal(t, [][]int{{1, 2}}, w.ran())
	})
}

func TestGiveUpReportsWhatIsKnownOfEachPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = []int{6, 2}
		w := newWorld(t, cfg)
		w.set(func(ctx context.Context, items []*item) error {
			if items[0].n == 3 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		items := numbered(1, 6)
		for _, it := range items {
			it.Kind = 1
		}
		w.addAll(batch.Now, items...)
		w.w.GiveUp(errGivenUp)
		for _, it := range items {
			o := w.outcome(it.n)
			if it.n <= 2 {
				require.NoError(t, o.Err, "its statement has returned")
			} else {
				require.ErrorIs(t, o.Err, errGivenUp)
			}
			require.Equal(t, it.n == 3 || it.n == 4, o.Unknown, "the others are in no statement")
		}
		w.close()
	})
}

func TestNextIsTheBatchThatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := inTurn()
		cfg.Full, cfg.Cut = []int{3}, func(items []*item) int { return len(items) }
		w := newWorld(t, cfg)
		w.keep()
		items := numbered(1, 12)
		w.addAll(batch.Now, items...)
		require.Equal(t, items[3:6], w.w.Next(items[:3], 0))
		require.Equal(t, items[6:9], w.w.Next(items[:3], 3))
		require.Equal(t, items[9:], w.w.Next(items[:3], 6))
		require.Empty(t, w.w.Next(items[:3], 7), "it is not full")
		require.Empty(t, w.w.Next(items[:2], 0), "the rest of the first batch is written before")
		require.True(t, w.w.Withdraw(items[4]))
		require.Equal(t, []*item{items[3], items[5], items[6]}, w.w.Next(items[:3], 0))
		w.finish()
		require.Equal(t, []int{4, 6, 7}, w.ran()[1])
		w.finish()
		w.finish()
		w.finish()
		w.close()
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := inTurn()
		cfg.Bytes, cfg.Cut = 20, func(items []*item) int { return min(2, len(items)) }
		w := newWorld(t, cfg)
		w.keep()
		items := numbered(1, 5)
		w.addAll(batch.Now, items...)
		require.Equal(t, items[2:4], w.w.Next(items[:2], 0), "two are as many bytes as a batch has")
		require.Empty(t, w.w.Next(items[:2], 2), "it is not full")
		w.finish()
		require.Equal(t, []int{3, 4}, w.ran()[1])
		w.finish()
		w.finish()
		w.close()
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := inTurn()
		cfg.Full, cfg.Cut = []int{3}, func(items []*item) int { return len(items) }
		w := newWorld(t, cfg)
		w.set(failing(classed(sqlbatch.Refused), 1))
		w.addAll(batch.Now, keyed(numbered(1, 3))...)
		w.wait(time.Second)
		require.Equal(t, 1, w.w.Stats().Isolated)
		w.keep()
		items := keyed(numbered(4, 12))
		w.addAll(batch.Now, items...)
		require.Empty(t, w.w.Next(items[:3], 0), "items of its key go behind it")
		w.heal()
	})
}
