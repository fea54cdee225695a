package consume_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// value is what readers get: the number of a lease.
type value struct {
	n     int
	under *lease.Lease
}

// rig is a Feed with a source in memory.
type rig struct {
	all      []*lease.Lease
	waiting  []*lease.Lease
	ready    chan struct{}
	recalled chan struct{}
	recall   func(n int64) bool
	without  map[int64]bool // left out by Build
	slow     time.Duration  // of Build
	released []int
	feed     *consume.Feed[value]
	stop     context.CancelFunc
	claimed  chan struct{}
	done     chan struct{}
	ended    bool
}

func start(t *testing.T, room int) *rig {
	r := &rig{ready: make(chan struct{}, 1), recalled: make(chan struct{}, 1), without: map[int64]bool{},
		claimed: make(chan struct{}), done: make(chan struct{})}
	r.feed = consume.NewFeed(consume.FeedConfig[value]{
		Source: r,
		Build: func(b claim.Batch, into []value) []value {
			time.Sleep(r.slow)
			for _, l := range b.Leases {
				if !r.without[l.Item.Fence] {
					into = append(into, value{int(l.Item.Fence), l})
				}
			}
			return into
		},
		LeaseOf: func(v value) *lease.Lease { return v.under },
		Release: func(back []*lease.Lease) {
			for _, l := range back {
				require.Equal(t, lease.Settling, l.State())
				r.released = append(r.released, int(l.Item.Fence))
			}
		},
	}, room)
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.feed.Run(ctx, r.claimed)
	}()
	synctest.Wait()
	t.Cleanup(r.end)
	return r
}

// end ends the feed, as its consumer does.
func (r *rig) end() {
	if r.stop(); !r.ended {
		r.ended = true
		close(r.claimed)
	}
	<-r.done
}

func (r *rig) put(from, to int) {
	for n := from; n <= to; n++ {
		l := &lease.Lease{}
		l.Item.Fence = int64(n)
		r.waiting, r.all = append(r.waiting, l), append(r.all, l)
	}
	base.Signal(r.ready)
	synctest.Wait()
}

func (r *rig) Next(n int) claim.Batch {
	n = min(n, len(r.waiting))
	b := claim.Batch{Leases: r.waiting[:n], Rows: make([]table.Claimed, n)}
	r.waiting = r.waiting[n:]
	return b
}

func (r *rig) Waiting() int                { return len(r.waiting) }
func (r *rig) Ready() <-chan struct{}      { return r.ready }
func (r *rig) Recalled() <-chan struct{}   { return r.recalled }
func (r *rig) Recall(l *lease.Lease) bool  { return r.recall(l.Item.Fence) }
func (r *rig) Rest() (rest []*lease.Lease) { rest, r.waiting = r.waiting, nil; return rest }

func (r *rig) read(n int) (got []int) {
	for range n {
		synctest.Wait()
		select {
		case v := <-r.feed.C():
			got = append(got, v.n)
		default:
		}
	}
	synctest.Wait()
	return got
}

func numbers(from, to int) (list []int) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

func TestLeasesComeInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		r.without[7], r.without[150] = true, true
		r.put(1, 150)
		require.Equal(t, 4, r.feed.Buffered())
		got := r.read(50)
		r.put(151, 151)
		got = append(got, r.read(99)...)
		require.Equal(t, slices.DeleteFunc(numbers(1, 151), func(n int) bool { return r.without[int64(n)] }), got)
		require.Zero(t, r.feed.Coming()+r.feed.Buffered())
		require.EqualValues(t, 151, r.feed.Sent(), "omitted leases are not counted as coming")
	})
}

func TestWhatIsLeftOutKeepsNothingWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		for n := range 100 {
			r.without[int64(n)] = true
		}
		r.put(1, 100)
		require.Equal(t, []int{100}, r.read(1))
	})
}

func TestTheEndReleasesWhatNoReaderHasTakenOnceClaimsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		r.put(1, 100)
		require.Equal(t, []int{1}, r.read(1))
		r.stop()
		synctest.Wait()
		require.Len(t, r.released, 63, "leases taken from the source are released immediately")
		r.waiting = append(r.waiting, &lease.Lease{}) // of the last claim
		r.waiting[len(r.waiting)-1].Item.Fence = 101
		r.end()
		slices.Sort(r.released)
		require.Equal(t, numbers(2, 101), r.released)
		_, open := <-r.feed.C()
		require.False(t, open)
	})
}

func TestALeaseThatHasEndedIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		r.put(1, 2)
		require.True(t, r.all[0].Take(lease.Ack))
		r.end()
		require.Equal(t, []int{2}, r.released)
	})
}

func TestWhatIsRecalledIsReleasedWhereverItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		r.put(1, 20)
		r.recall = func(n int64) bool { return n%2 == 0 }
		r.recalled <- struct{}{}
		synctest.Wait()
		got := r.read(10)
		slices.Sort(r.released)
		require.Equal(t, []int{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}, r.released)
		require.Equal(t, []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}, got)
		require.Zero(t, r.feed.Coming())
		require.EqualValues(t, 10, r.feed.Sent())
	})
}

func TestALeaseOnItsWayCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		r.slow = time.Second
		r.put(1, 10)
		require.Equal(t, 10, r.Waiting()+r.feed.Coming()+r.feed.Buffered(), "while Build runs")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 10, r.Waiting()+r.feed.Coming()+r.feed.Buffered())
		require.Equal(t, 4, r.feed.Buffered())
	})
}

// TestEachLeaseHasItsPlaceOnTheChannel: the position and the number of leases that readers have taken show which leases
// wait.
func TestEachLeaseHasItsPlaceOnTheChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		r.without[2] = true
		r.put(1, 10) // 7 wait on the channel or in hand
		waits := func() (list []int) {
			for _, l := range r.all {
				if !r.without[l.Item.Fence] && l.State() == lease.Held && l.Number.Waits(r.feed.Taken()) {
					list = append(list, int(l.Item.Fence))
				}
			}
			return list
		}
		require.Equal(t, []int{1, 3, 4, 5, 6, 7, 8, 9, 10}, waits())
		require.Equal(t, []int{1, 3}, r.read(2))
		require.Equal(t, numbers(4, 10), waits())
		r.recall = func(n int64) bool { return n == 5 || n == 9 }
		base.Signal(r.recalled)
		synctest.Wait()
		require.Equal(t, []int{4}, r.read(1))
		require.Equal(t, []int{6, 7, 8, 10}, waits(), "two were released")
		require.Equal(t, []int{6, 7, 8, 10}, r.read(4))
		require.Empty(t, waits())
	})
}
