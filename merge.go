package chanq

import (
	"slices"
	"sync/atomic"
)

// How the leases of several shards come to one channel.
//
// Each shard has a mover, which takes leases from the channel of its claimer and sends them on
// the consumer's. That has little room, and who waits to send on it is served in turn: so where
// readers are slow each shard has its share, and where one has nothing, or is away, the others
// have all. What is on the channel when the consumer stops goes back to the shards that
// claimed it; and so does, of an ordered queue, what belongs to slots that are to be given back.

// merged is the channel of a consumer of several shards.
type merged[T any] struct {
	out    chan *Lease[T]
	movers atomic.Int64    // that may yet send
	recall []chan struct{} // one of each mover, of capacity 1: slots are to be given back
	transit
}

// mergedRoom is how many leases the channel holds of each shard, in the mean.
const mergedRoom = 64

// mergeOf makes the channel of n shards, whose buffers have room for prefetch leases together.
func mergeOf[T any](n, prefetch int) *merged[T] {
	out := make(chan *Lease[T], min(prefetch/4, n*mergedRoom))
	m := &merged[T]{out: out, transit: transit{channel: func() int { return len(out) }, before: make([]int, n), on: make([]int, n)}}
	m.movers.Store(int64(n))
	for range n {
		m.recall = append(m.recall, make(chan struct{}, 1))
	}
	return m
}

// recallAll has the movers give back the leases of slots that are to be given back: of any
// shard, since each may have some of another's in hand.
func (m *merged[T]) recallAll() {
	for _, recall := range m.recall {
		notify(recall)
	}
}

// share is the part of a consumer's buffer that one of n shards has: of what the merged channel
// leaves, an equal part, but no less than a claim worth its statement brings.
func (c ConsumerConfig) share(n int) ConsumerConfig {
	if n > 1 {
		c.Prefetch = max((c.Prefetch-c.Prefetch/4)/n, min(c.Prefetch, minClaim))
		c.PrefetchBytes = max(1, c.PrefetchBytes/n)
	}
	return c
}

// move moves leases to the merged channel until the supervisor has closed the one of its shard; the last mover
// closes that. It gives back what it has in hand when the consumer stops.
func (c *shardConsumer[T]) move(recall <-chan struct{}) {
	defer c.leaveMerged()
	var hand []*Lease[T] // one; more after a recall
	for {
		if len(hand) == 0 {
			select {
			case l, open := <-c.out:
				if !open {
					return
				}
				// Its recall may have come and gone while it was on its way here.
				if !c.recalledEarly(l) {
					hand = append(hand, l)
				}
			case <-recall:
				hand = c.merged.recalled(hand)
			}
			continue
		}
		shard := holderOf(hand[0]).queue.index // the lease is the reader's once it is sent
		select {
		case c.merged.out <- hand[0]:
			c.merged.sent(shard)
			hand = hand[1:]
		case <-recall:
			hand = c.merged.recalled(hand)
		case <-c.stop.Done():
			for _, l := range hand {
				holderOf(l).giveBackEarly(l.lease)
			}
			for l := range c.out { // the supervisor closes it
				c.giveBackEarly(l.lease)
			}
			return
		}
	}
}

// leaveMerged is the end of a mover. Nothing that it sent stays on the channel.
func (c *shardConsumer[T]) leaveMerged() {
	c.stopNow() // it is, unless a codec ended the claimer by runtime.Goexit
	c.emptyMerged()
	if c.merged.movers.Add(-1) == 0 {
		close(c.merged.out)
	}
}

// emptyMerged gives back what no reader has taken, of whatever shard. The others go on sending until
// they end, too.
func (c *shardConsumer[T]) emptyMerged() {
	for _, l := range takeAll(c.merged.out, nil) {
		holderOf(l).giveBack(l.lease)
	}
}

// takeAll takes what lies on a channel now, behind what is in hand: the channel of one shard, or that
// of all. What becomes of it is another matter for each: of one shard's all may be looked at under one lock, and
// what is given back is so together; the leases of the merged channel have an owner each.
func takeAll[T any](from <-chan *Lease[T], hand []*Lease[T]) []*Lease[T] {
	for n := len(from); n > 0; n-- {
		select {
		case l := <-from:
			hand = append(hand, l)
		default: // a reader was quicker
			return hand
		}
	}
	return hand
}

// came notes leases that come to the shard's channel, before they do, or, where n is negative, that
// they were taken back.
func (c *shardConsumer[T]) came(n int) {
	if c.merged != nil {
		c.merged.came(c.queue.index, n)
	}
}

// onChannel is how many leases wait for a reader on the shard's channel and, of several shards,
// behind that on their way to the merged one, and on that.
func (c *shardConsumer[T]) onChannel() (own, merged int) {
	if c.merged == nil {
		return len(c.out), 0
	}
	return c.merged.of(c.queue.index)
}

// giveBackEarly is giveBack of what has not come to the merged channel, or was taken from it.
func (c *shardConsumer[T]) giveBackEarly(l *lease) {
	c.came(-1)
	c.giveBack(l)
}

// giveBack releases a lease that no reader has.
func (c *shardConsumer[T]) giveBack(l *lease) {
	if l.takeBack() {
		c.settler.addAll(l)
	}
}

// recalled takes back what is on the channel, and in hand, and gives back those of slots that
// their shard's consumer is to lose. The rest stays in hand: of a line there is one lease at most,
// so no order is lost.
func (m *merged[T]) recalled(hand []*Lease[T]) []*Lease[T] {
	mine := len(hand)
	hand = takeAll(m.out, hand)
	for _, l := range hand[mine:] {
		holderOf(l).came(1)
	}
	return slices.DeleteFunc(hand, func(l *Lease[T]) bool { return holderOf(l).recalledEarly(l) })
}

// recalledEarly gives a lease back that no reader has, and that is not on the merged channel, if its
// slot is to be given back. Then it was not taken: claims need not be larger for it.
func (c *shardConsumer[T]) recalledEarly(l *Lease[T]) bool {
	if c.order == nil || !c.order.leaving(l.lease) {
		return false
	}
	c.order.sent.Add(-1)
	c.giveBackEarly(l.lease)
	return true
}
