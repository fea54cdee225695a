package consume

import (
	"context"
	"sync/atomic"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
)

// FeedConfig configures a Feed.
type FeedConfig[M any] struct {
	Source claim.Source
	// Build makes values of leases, and appends them to into. It leaves out leases that no reader may get, and settles
	// them.
	Build   func(b claim.Batch, into []M) []M
	LeaseOf func(M) *lease.Lease
	// Release releases leases that no reader has taken.
	Release func([]*lease.Lease)
}

// Feed moves leases to a channel, in order.
type Feed[M any] struct {
	cfg        FeedConfig[M]
	c          chan M
	releaseAll chan struct{} // of capacity 1: see ReleaseAll

	coming  atomic.Int64 // leases taken from the Source that are not on the channel yet
	put     atomic.Int64 // leases that were put on the channel, minus those that were taken back
	leftOut atomic.Int64 // leases that Build has left out
}

// chunk is the number of leases that are converted to values at once.
const chunk = 64

// NewFeed returns a Feed whose channel has room for so many values. Run is to be called next.
func NewFeed[M any](cfg FeedConfig[M], room int) *Feed[M] {
	return &Feed[M]{cfg: cfg, c: make(chan M, room), releaseAll: make(chan struct{}, 1)}
}

// C returns the channel. Run closes it.
func (f *Feed[M]) C() <-chan M { return f.c }

// Buffered returns how many values are on the channel.
func (f *Feed[M]) Buffered() int { return len(f.c) }

// Coming returns how many leases were taken from the Source and are not on the channel yet. A moving lease is counted
// at least once if the Source is read first, then Coming, and Buffered last.
func (f *Feed[M]) Coming() int { return int(f.coming.Load()) }

// Sent returns how many leases were left out by Build, or put on the channel, minus those that were taken back.
func (f *Feed[M]) Sent() int64 { return f.put.Load() + f.leftOut.Load() }

// Taken returns how many values readers have taken from the channel, or a few less: lease.Number counts them.
func (f *Feed[M]) Taken() int64 {
	put := f.put.Load() // in this order: what is put on the channel meanwhile was not taken
	return put - int64(len(f.c))
}

// ReleaseAll makes Run release everything that no reader has taken.
func (f *Feed[M]) ReleaseAll() { base.Signal(f.releaseAll) }

// Run moves leases until stop ends. Then it releases everything that no reader has taken. After claimed is closed it
// releases the leases of the last claim, and closes the channel.
func (f *Feed[M]) Run(stop context.Context, claimed <-chan struct{}) {
	defer close(f.c)
	var hand, values []M // hand: values that follow those on the channel
	for stop.Err() == nil {
		if len(hand) == 0 {
			var any bool
			values, any = f.next(values)
			if hand = values; any {
				continue
			}
			select {
			case <-f.cfg.Source.Ready():
			case <-f.cfg.Source.Recalled():
				hand = f.takeBack(hand, f.cfg.Source.Recall)
			case <-f.releaseAll:
				hand = f.takeAllBack(hand)
			case <-stop.Done():
			}
			continue
		}
		select {
		case f.c <- hand[0]: // by far the fastest, if there is room
			hand = f.onChannel(hand)
			continue
		default:
		}
		select {
		case f.c <- hand[0]:
			hand = f.onChannel(hand)
		case <-f.cfg.Source.Recalled():
			hand = f.takeBack(hand, f.cfg.Source.Recall)
		case <-f.releaseAll:
			hand = f.takeAllBack(hand)
		case <-stop.Done():
		}
	}
	f.takeBack(hand, anyLease) // immediately: other consumers can claim them
	<-claimed
	f.release(f.cfg.Source.Rest())
}

// takeAllBack releases everything that no reader has taken.
func (f *Feed[M]) takeAllBack(hand []M) (none []M) {
	rest := f.cfg.Source.Rest()
	none = f.takeBack(hand, anyLease)
	f.release(rest)
	return none
}

func anyLease(*lease.Lease) bool { return true }

// onChannel removes the first value of hand, which is on the channel.
func (f *Feed[M]) onChannel(hand []M) []M {
	var none M
	hand[0] = none
	f.put.Add(1)
	f.coming.Add(-1)
	return hand[1:]
}

// next makes values of the next leases, in the slice of former ones. any is false if there are no leases.
func (f *Feed[M]) next(into []M) (values []M, any bool) {
	n := min(chunk, f.cfg.Source.Waiting()) // with 0 the Source reuses the previous rows
	f.coming.Add(int64(n))                  // before they leave the Source
	b := f.cfg.Source.Next(n)
	f.coming.Add(int64(len(b.Leases) - n))
	if len(b.Leases) == 0 {
		return into[:0], false
	}
	values = f.cfg.Build(b, into[:0])
	left := int64(len(b.Leases) - len(values))
	f.leftOut.Add(left)
	f.coming.Add(-left)
	f.number(values)
	return values, true
}

// number records the positions on the channel that the values in hand will have.
func (f *Feed[M]) number(hand []M) {
	put := f.put.Load()
	for i, m := range hand {
		f.cfg.LeaseOf(m).Number.Store(put + int64(i) + 1)
	}
}

// takeBack releases recalled leases, of the values on the channel and in hand, and returns the rest in order.
func (f *Feed[M]) takeBack(hand []M, recalled func(*lease.Lease) bool) (rest []M) {
	var back []*lease.Lease
	keep := func(m M) {
		if l := f.cfg.LeaseOf(m); recalled(l) {
			back = append(back, l)
		} else {
			rest = append(rest, m)
		}
	}
	taken := 0
	for n := len(f.c); n > 0; n-- {
		select {
		case m := <-f.c:
			taken++
			keep(m)
		default: // a reader was faster
			n = 0
		}
	}
	for _, m := range hand {
		keep(m)
	}
	f.put.Add(-int64(taken)) // as if they had never been on the channel
	f.number(rest)
	f.coming.Add(int64(len(rest) - len(hand)))
	clear(hand)
	f.release(back)
	return rest
}

// release releases the leases that are still held.
func (f *Feed[M]) release(leases []*lease.Lease) {
	if back := lease.TakeAll(leases, lease.Release); len(back) > 0 {
		f.cfg.Release(back)
	}
}
