package group_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/internal/group"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type item struct {
	group.Place
	n int
}

// bench is a Backlog with Workers whose groups the test ends.
type bench struct {
	t       *testing.T
	backlog *group.Backlog[*item]
	began   time.Time
	mu      sync.Mutex
	groups  []stored
	workers sync.WaitGroup
	abandon context.CancelFunc
}

// stored is a group that has left: when, and what it was.
type stored struct {
	after time.Duration
	items []int
	group []*item
	work  *group.Worker[*item]
	done  chan struct{}
}

// setUp starts workers that keep each group until finish, or not at all.
func setUp(t *testing.T, workers int, keep bool, cfg group.Config[*item]) *bench {
	ctx, abandon := context.WithCancel(context.Background())
	cfg.Abandoned = ctx
	b := &bench{t: t, backlog: group.New(cfg), began: time.Now(), abandon: abandon}
	for range workers {
		b.work(b.backlog.Worker(), keep)
	}
	t.Cleanup(func() { // also where the test has failed
		b.backlog.Close()
		abandon()
		b.workers.Wait()
	})
	synctest.Wait()
	return b
}

// aside starts the worker of what is apart, which keeps each group until finish.
func (b *bench) aside() {
	b.work(b.backlog.Aside(), true)
	synctest.Wait()
}

// work starts a goroutine with a worker.
func (b *bench) work(w *group.Worker[*item], keep bool) {
	b.workers.Go(func() {
		for {
			items, open := w.Next()
			if !open {
				return
			}
			s := stored{after: time.Since(b.began), group: items, work: w, done: make(chan struct{})}
			for _, it := range items {
				s.items = append(s.items, it.n)
			}
			b.mu.Lock()
			b.groups = append(b.groups, s)
			b.mu.Unlock()
			if keep {
				select {
				case <-s.done:
				case <-b.t.Context().Done(): // the test has failed
				}
			}
			w.Done()
		}
	})
}

func (b *bench) add(h group.Haste, numbers ...int) {
	for _, n := range numbers {
		require.True(b.t, b.backlog.Add(&item{Place: group.Place{Size: 10}, n: n}, h))
	}
	synctest.Wait()
}

func (b *bench) addAll(h group.Haste, numbers ...int) {
	items := make([]*item, len(numbers))
	for i, n := range numbers {
		items[i] = &item{Place: group.Place{Size: 10}, n: n}
	}
	require.True(b.t, b.backlog.AddAll(len(items), func(i int) *item { return items[i] }, h))
	synctest.Wait()
}

// left are the groups so far.
func (b *bench) left() (groups [][]int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		groups = append(groups, g.items)
	}
	return groups
}

func (b *bench) group(i int) stored {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups[i]
}

func (b *bench) wait(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func (b *bench) finish(i int) {
	close(b.group(i).done)
	synctest.Wait()
}

func (b *bench) end() {
	b.backlog.Close()
	b.workers.Wait()
	require.Zero(b.t, b.backlog.Open())
	require.False(b.t, b.backlog.Add(&item{}, group.Unhurried), "after Close")
	require.False(b.t, b.backlog.AddAll(1, func(int) *item { return &item{} }, group.Unhurried), "after Close")
}

const linger = 5 * time.Millisecond

func settings() group.Config[*item] {
	return group.Config[*item]{Full: 100, Linger: time.Second, AwaitedLinger: linger}
}

func TestWhatComesAloneWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, false, settings())
		b.add(group.Awaited, 1)
		b.add(group.Awaited, 2)
		require.Equal(t, [][]int{{1}, {2}}, b.left())
		b.wait(time.Minute)
		b.add(group.Awaited, 3)
		require.Equal(t, [][]int{{1}, {2}, {3}}, b.left())
		b.end()
	})
}

func TestWhatNobodyWaitsForLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, false, settings())
		b.add(group.Unhurried, 1)
		b.wait(time.Second - 1)
		b.add(group.Unhurried, 2)
		require.Empty(t, b.left())
		b.wait(1)
		require.Equal(t, [][]int{{1, 2}}, b.left(), "its oldest has lingered")
		b.end()
	})
}

func TestWhereManyComeAtOnceAGroupWaitsForHalfTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, false, settings())
		b.addAll(group.Awaited, 1, 2, 3, 4, 5, 6)
		require.Len(t, b.left(), 1)
		b.add(group.Awaited, 7, 8)
		require.Len(t, b.left(), 1, "fewer than half of six")
		b.add(group.Awaited, 9)
		require.Equal(t, []int{7, 8, 9}, b.left()[1])
		b.addAll(group.Awaited, 10, 11, 12, 13, 14, 15)
		b.add(group.Awaited, 16)
		b.wait(linger - 1)
		require.Len(t, b.left(), 3)
		b.wait(1)
		require.Equal(t, []int{16}, b.left()[3], "nobody else came")
		b.end()
	})
}

func TestSomebodyWhoBeginsToWaitEndsTheLongLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, false, settings())
		b.addAll(group.Awaited, 1, 2, 3, 4)
		b.add(group.Unhurried, 5)
		b.wait(linger)
		require.Len(t, b.left(), 1)
		b.backlog.Hurry()
		require.Equal(t, []int{5}, b.left()[1])
		b.end()
	})
}

func TestTheFirstThatIsAwaitedEndsTheLongLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, false, settings())
		b.addAll(group.Urgent, 1, 2, 3, 4, 5, 6, 7, 8) // the next group is worth its statement with four
		b.add(group.Unhurried, 9)
		b.wait(2 * linger)
		require.Len(t, b.left(), 1)
		b.add(group.Awaited, 10)
		b.wait(linger)
		require.Len(t, b.left(), 2, "what somebody waits for lingers no longer than that")
		require.Equal(t, []int{9, 10}, b.left()[1])
		b.end()
	})
}

func TestAGroupIsFullByCountAndByBytesAndHoldsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full = 3
		b := setUp(t, 1, false, cfg)
		b.addAll(group.Unhurried, 1, 2)
		require.Empty(t, b.left())
		b.addAll(group.Unhurried, 3, 4)
		require.Equal(t, [][]int{{1, 2, 3}}, b.left())
		b.wait(time.Second)
		require.Equal(t, []int{4}, b.left()[1])
		b.end()
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Bytes = 30
		cfg.Cut = func(items []*item) int { return min(2, len(items)) }
		b := setUp(t, 1, false, cfg)
		b.addAll(group.Unhurried, 1, 2)
		require.Empty(t, b.left())
		b.add(group.Unhurried, 3)
		require.Equal(t, [][]int{{1, 2}}, b.left(), "Cut says so")
		b.end()
		require.Equal(t, []int{3}, b.left()[1])
	})
}

func TestWhatIsUrgentTakesTheOthersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, false, settings())
		b.add(group.Unhurried, 1, 2)
		b.add(group.Urgent, 3)
		require.Equal(t, [][]int{{1, 2, 3}}, b.left())
		b.add(group.Unhurried, 4)
		require.Len(t, b.left(), 1, "what comes later lingers")
		b.backlog.Drain()
		require.Len(t, b.left(), 2)
		b.add(group.Unhurried, 5)
		require.Equal(t, [][]int{{1, 2, 3}, {4}, {5}}, b.left())
		b.end()
	})
}

func TestFlushWaitsForWhatCameBeforeItAndForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 2, true, settings())
		require.NoError(t, b.backlog.Flush(t.Context()), "of nothing")
		b.add(group.Urgent, 1)
		b.add(group.Unhurried, 2)
		flushed := make(chan error, 1)
		go func() { flushed <- b.backlog.Flush(t.Context()) }()
		require.Equal(t, [][]int{{1}, {2}}, b.left(), "it does not linger")
		b.add(group.Unhurried, 3)
		b.add(group.Unhurried, 4)
		b.backlog.Remove(func(it *item) bool { return it.n == 4 })
		b.finish(1)
		require.Empty(t, flushed, "the first is under way, whatever became of those after it")
		b.finish(0)
		require.NoError(t, <-flushed, "the third does not count")

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { flushed <- b.backlog.Flush(ctx) }()
		synctest.Wait()
		cancel(gone)
		require.ErrorIs(t, <-flushed, gone)
		b.finish(2)
		b.end()
	})
}

func TestFlushWaitsForWhatIsLateAndOnlyIfItCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 2, true, settings())
		b.addAll(group.Urgent, 1, 2)
		first := make(chan error, 1)
		go func() { first <- b.backlog.Flush(t.Context()) }()
		synctest.Wait()
		b.add(group.Urgent, 3)
		require.Len(t, b.left(), 2)
		third := b.group(1)
		third.work.Late(third.group[0], time.Hour)
		b.finish(1)
		all := make(chan error, 1)
		go func() { all <- b.backlog.Flush(t.Context()) }()
		synctest.Wait()
		b.finish(0)
		require.NoError(t, <-first, "what is late came after it")
		require.Empty(t, all)
		require.Equal(t, 1, b.backlog.Waiting())
		require.Equal(t, 1, b.backlog.Open())
		b.wait(time.Hour)
		require.Equal(t, []int{3}, b.left()[2])
		b.finish(2)
		require.NoError(t, <-all)
		b.end()
	})
}

func TestAddWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Capacity = 2
		b := setUp(t, 1, true, cfg)
		b.add(group.Urgent, 1)
		b.add(group.Unhurried, 2, 3)
		added := make(chan bool, 1)
		add := func() { added <- b.backlog.Add(&item{n: 4}, group.Unhurried) }
		go add()
		synctest.Wait()
		require.Empty(t, added)
		b.addAll(group.Urgent, 5) // does not wait
		b.finish(0)
		require.True(t, <-added)
		require.Equal(t, []int{2, 3, 5}, b.left()[1])
		b.add(group.Unhurried, 6)
		go add()
		synctest.Wait()
		require.Empty(t, added)
		b.backlog.Close()
		require.False(t, <-added)
		b.finish(1)
		b.finish(2)
		b.end()
	})
}

func TestWhatIsTakenBackHasNoOutcomeToWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, true, settings())
		b.add(group.Urgent, 1)
		b.addAll(group.Unhurried, 2, 3, 4)
		flushed := make(chan error, 1)
		go func() { flushed <- b.backlog.Flush(t.Context()) }()
		synctest.Wait()
		seen := map[int]bool{}
		b.backlog.Each(func(it *item, underWay bool) { seen[it.n] = underWay })
		require.Equal(t, map[int]bool{1: true, 2: false, 3: false, 4: false}, seen)
		b.backlog.Remove(func(it *item) bool { return it.n != 3 })
		require.Equal(t, 2, b.backlog.Open(), "the one that is under way stays")
		b.finish(0)
		require.Empty(t, flushed)
		require.Equal(t, []int{3}, b.left()[1])
		b.finish(1)
		require.NoError(t, <-flushed)
		b.end()
	})
}

func TestAGroupThatHangsHoldsUpTheNextForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Moment, cfg.Full = 250*time.Millisecond, 2
		b := setUp(t, 2, true, cfg)
		b.addAll(group.Urgent, 1, 2, 3) // nothing comes after these that could wake anybody
		require.Equal(t, [][]int{{1, 2}}, b.left())
		b.wait(250*time.Millisecond - 1)
		require.Len(t, b.left(), 1, "groups grow meanwhile")
		b.wait(1)
		require.Equal(t, [][]int{{1, 2}, {3}}, b.left())
		b.finish(1)
		b.add(group.Urgent, 4)
		require.Equal(t, []int{4}, b.left()[2], "the one that hangs counts no more")
		b.finish(2)
		b.finish(0)
		b.add(group.Urgent, 5)
		require.Equal(t, []int{5}, b.left()[3])
		b.backlog.Hurry() // wakes the idle one, while there is nothing to do
		synctest.Wait()
		b.add(group.Urgent, 6)
		b.wait(250 * time.Millisecond)
		require.Equal(t, []int{6}, b.left()[4])
		b.finish(3)
		b.finish(4)
		b.end()
	})
}

func TestWhatIsLateComesBackInTimeOneGroupOfItBesideTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Moment = time.Hour
		b := setUp(t, 2, true, cfg)
		b.addAll(group.Urgent, 1, 2, 3)
		g := b.group(0)
		g.work.Late(g.group[0], 20*time.Millisecond)
		g.work.Late(g.group[2], 40*time.Millisecond)
		b.finish(0)
		b.wait(20*time.Millisecond - 1)
		require.Len(t, b.left(), 1)
		b.wait(1)
		require.Equal(t, []int{1}, b.left()[1])
		b.add(group.Urgent, 4)
		require.Equal(t, []int{4}, b.left()[2], "a late group is no reason to wait")
		b.finish(2)
		b.wait(time.Minute)
		require.Len(t, b.left(), 3, "one group of late ones at a time")
		b.finish(1)
		require.Equal(t, []int{3}, b.left()[3])
		b.finish(3)
		b.end()
	})
}

func TestWhatIsLateIsDueOnceAllIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, true, settings())
		b.addAll(group.Urgent, 1, 2)
		g := b.group(0)
		g.work.Late(g.group[1], time.Hour)
		b.finish(0)
		b.backlog.Close()
		require.Len(t, b.left(), 1, "Close waits for it")
		b.abandon()
		require.Equal(t, []int{2}, b.left()[1])
		b.finish(1)
		b.end()
	})
}

func TestEachItemLeavesOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Full, cfg.Capacity = 7, 20
		b := setUp(t, 1, false, cfg)
		const senders, each = 5, 300
		var all sync.WaitGroup
		for s := range senders {
			all.Go(func() {
				for i := range each {
					b.backlog.Add(&item{n: s*each + i}, group.Haste(i%3))
				}
			})
		}
		all.Wait()
		require.NoError(t, b.backlog.Flush(t.Context()))
		last := map[int]int{}
		count := 0
		for _, g := range b.left() {
			require.LessOrEqual(t, len(g), cfg.Full)
			for _, n := range g {
				require.Equal(t, n%each, last[n/each], "of one sender, in order")
				last[n/each]++
				count++
			}
		}
		require.Equal(t, senders*each, count)
		b.end()
	})
}

func BenchmarkAnItem(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	backlog := group.New(group.Config[*item]{Full: 500, Linger: linger, AwaitedLinger: linger, Capacity: 4096, Abandoned: ctx})
	var worker sync.WaitGroup
	w := backlog.Worker()
	worker.Go(func() {
		for {
			if _, open := w.Next(); !open {
				return
			}
			w.Done()
		}
	})
	items := make([]item, 1<<14)
	b.ReportAllocs()
	for i := range b.N {
		backlog.Add(&items[i%len(items)], group.Unhurried)
	}
	backlog.Close()
	worker.Wait()
}
