package chanq

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// From a claim to the readers.
//
// Bodies take long to decode beside the statement that brought them, and the database
// would have nothing to do meanwhile. So a large claim that brought no suspects is
// delivered in parts by a goroutine of its own, and the claimer goes on as soon as there
// is room: what is not delivered yet takes room like what is. The next claim is
// delivered behind it, in order.

const (
	// besideFrom is from how many messages on a claim is delivered beside the next one.
	besideFrom = 256
	// deliverPart is how many leases are made and delivered at once then.
	deliverPart = 64
)

// claimedBatch is what a claim brought.
type claimedBatch struct {
	rows            []claimedRow
	deadline, until time.Duration // of their leases
	event           ClaimedEvent
}

// mayComeBeside reports that the rows are many, in order, and that none may be a suspect:
// of those the claimer has to know before the next claim.
func (b *claimedBatch) mayComeBeside() bool {
	return len(b.rows) >= besideFrom && slices.IsSortedFunc(b.rows, compareRows) &&
		!slices.ContainsFunc(b.rows, func(r claimedRow) bool { return r.lapses > 0 })
}

// compareRows compares by order of delivery.
func compareRows(a, b claimedRow) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.due, b.due), bytes.Compare(a.item.ID[:], b.item.ID[:]))
}

// deliverBeside is deliver for rows that mayComeBeside, and returns at once.
// awaitDelivered joins it.
func (c *shardConsumer[T]) deliverBeside(b claimedBatch) {
	delivered := make(chan struct{})
	c.flow.beside, c.flow.used = delivered, b.rows
	c.flow.delivered += int64(len(b.rows))
	c.flow.coming.Store(int64(len(b.rows)))
	go func() {
		defer close(delivered)
		for rows := range slices.Chunk(b.rows, deliverPart) {
			leases := buildLeases[T](c.queue, rows, c, b.deadline, b.until)
			holds := partsOf(leases)
			aside := asideOf(holds)
			leases = toDeliver(leases, len(aside))
			c.hold(holds, aside)
			for _, l := range leases {
				c.out <- l
			}
			c.flow.coming.Add(-int64(len(rows)))
		}
		call(c.queue.cfg.Hooks.Claimed, b.event)
	}()
}

// awaitDelivered waits until the claim before is delivered.
func (c *shardConsumer[T]) awaitDelivered() {
	if c.flow.beside != nil {
		<-c.flow.beside
		c.flow.giveRows(c.flow.used)
		c.flow.beside, c.flow.used = nil, nil
	}
}

// takeRows returns room for n rows of a claim, or for fewer.
func (f *flow) takeRows(n int) []claimedRow {
	rows := f.free
	if f.free = nil; rows == nil {
		rows = make([]claimedRow, 0, min(n, max(minClaim, f.lastClaim)))
	}
	return rows
}

// giveRows takes back what takeRows gave, with nothing in it.
func (f *flow) giveRows(rows []claimedRow) {
	clear(rows)
	f.free = rows[:0]
}

// buffered is how many leases are on the channel, or come to it.
func (c *shardConsumer[T]) buffered() int {
	coming := c.flow.coming.Load() // first: what comes to the channel now counts twice, not never
	return int(coming) + len(c.out)
}

func partsOf[T any](leases []*Lease[T]) []*lease {
	parts := make([]*lease, len(leases))
	for i, l := range leases {
		parts[i] = l.lease
	}
	return parts
}

// asideOf are those that no handler may see.
func asideOf(leases []*lease) (aside []*lease) {
	for _, l := range leases {
		if l.state.Load() == leaseSettling {
			aside = append(aside, l)
		}
	}
	return aside
}

// toDeliver are those but n that are settling.
func toDeliver[T any](leases []*Lease[T], n int) []*Lease[T] {
	if n == 0 {
		return leases
	}
	return slices.DeleteFunc(leases, func(l *Lease[T]) bool { return l.lease.state.Load() == leaseSettling })
}

// hold hands new leases to the keeper, and those of them that are set aside to the
// settler.
func (c *shardConsumer[T]) hold(leases, aside []*lease) {
	if c.held.Add(int64(len(leases))); len(leases) > 0 {
		c.idleness.delivers()
	}
	c.keeper.hold(leases)
	if len(aside) > 0 {
		c.settler.addAll(aside...)
	}
}

// deliver hands the leases of a claim to the keeper and to the readers, and returns how
// many are not given back. There is room for them in the channel.
func (c *shardConsumer[T]) deliver(b claimedBatch, askedForSuspects bool) (kept int) {
	defer func() { call(c.queue.cfg.Hooks.Claimed, b.event) }() // they are extended by now, however long it takes
	leases := buildLeases[T](c.queue, b.rows, c, b.deadline, b.until)
	holds := partsOf(leases)
	back := c.caution.found(holds, askedForSuspects)
	aside := asideOf(holds)
	for _, l := range back {
		l.takeBack()
	}
	leases = toDeliver(leases, len(aside)+len(back))
	c.hold(holds, aside)
	// Those set aside count as taken: that many expired must not make claims small.
	c.flow.delivered += int64(len(aside))
	kept = len(aside) + len(leases)
	if len(back) > 0 && !c.setBack(back) {
		// It cannot be told from the others while those may still be ours.
		leases = slices.DeleteFunc(leases, func(l *Lease[T]) bool {
			if !l.lease.suspect || !l.lease.takeBack() {
				return false
			}
			c.settler.addAll(l.lease)
			return true
		})
	}
	for _, l := range leases {
		c.flow.delivered++
		c.out <- l
	}
	return kept
}

// releaseBuffer takes back what no reader has taken.
func (c *shardConsumer[T]) releaseBuffer() {
	var back []*lease
	for _, l := range takeAll(c.out, nil) {
		if l.lease.takeBack() {
			back = append(back, l.lease)
		}
	}
	c.settler.addAll(back...)
}

// takeAll takes what is on a channel now, behind what is in hand.
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
