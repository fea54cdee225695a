package chanq

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
)

// From a claim to the readers.
//
// Bodies take long to decode beside the statement that brought them, and the database
// would have nothing to do meanwhile. So a large claim is
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
	trial           bool          // it is one suspect
	deadline, until time.Duration // of their leases
	event           ClaimedEvent
}

// mayComeBeside reports that the rows are many, in order, and that all of them are read.
func (b *claimedBatch) mayComeBeside() bool {
	return len(b.rows) >= besideFrom && slices.IsSortedFunc(b.rows, compareRows) &&
		!slices.ContainsFunc(b.rows, func(r claimedRow) bool { return r.leftOut })
}

// compareRows compares by order of delivery.
func compareRows(a, b claimedRow) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Due, b.Due), bytes.Compare(a.item.ID[:], b.item.ID[:]))
}

// deliverBeside is deliver for rows that mayComeBeside, and returns at once.
// awaitDelivered joins it.
func (c *consumer[T]) deliverBeside(b claimedBatch) {
	delivered := make(chan struct{})
	c.flow.beside, c.flow.used = delivered, b.rows
	c.flow.delivered += int64(len(b.rows))
	c.flow.coming.Store(int64(len(b.rows)))
	go func() {
		defer close(delivered)
		for rows := range slices.Chunk(b.rows, deliverPart) {
			leases, _ := c.keep(buildLeases[T](c.queue, rows, &c.leases, b.deadline, b.until))
			for _, l := range leases {
				c.out <- l
			}
			c.flow.coming.Add(-int64(len(rows)))
		}
		call(c.queue.cfg.Hooks.Claimed, b.event)
	}()
}

// awaitDelivered waits until the claim before is delivered.
func (c *consumer[T]) awaitDelivered() {
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
func (c *consumer[T]) buffered() int {
	coming := c.flow.coming.Load() // first: what comes to the channel now counts twice, not never
	return int(coming) + len(c.out)
}

func partsOf[T any](leases []*Lease[T]) []*lease.Lease {
	parts := make([]*lease.Lease, len(leases))
	for i, l := range leases {
		parts[i] = l.lease
	}
	return parts
}

// keep hands new leases to the extender, and those that no handler may see to the settler. It returns the others, and how many
// are not among them.
func (c *consumer[T]) keep(leases []*Lease[T]) (deliver []*Lease[T], aside int) {
	holds := partsOf(leases)
	var settling []*lease.Lease
	deliver = slices.DeleteFunc(leases, func(l *Lease[T]) bool {
		aside := l.lease.State() == lease.Settling
		if aside {
			settling = append(settling, l.lease)
		}
		return aside
	})
	c.hold(holds) // from here on each of them may end
	c.setAside(settling)
	return deliver, len(settling)
}

// hold hands new leases to the extender.
func (c *consumer[T]) hold(leases []*lease.Lease) {
	if c.held.Add(int64(len(leases))); len(leases) > 0 {
		c.idleness.delivers()
		c.extender.Track(leases)
	}
}

// setAside hands leases to the settler that no reader gets.
func (c *consumer[T]) setAside(leases []*lease.Lease) {
	if len(leases) > 0 {
		c.settler.AddAll(leases...)
	}
}

// deliver hands the leases of a claim to the extender, reads what the claim has left out, and hands the leases to readers. It
// returns how many are not given back. There is room for them in the channel.
//
// Of what was left out the consumer has PrefetchBytes in memory at most, or one message. It gives back the rest of the claim.
func (c *consumer[T]) deliver(loop *batch.Loop, b claimedBatch) (kept int) {
	defer func() { call(c.queue.cfg.Hooks.Claimed, b.event) }() // they are extended by now, however long it takes
	leases := newLeases[T](c.queue, b.rows, &c.leases, b.deadline, b.until)
	holds := partsOf(leases)
	if b.trial {
		holds[0].Suspect = true
		c.careful.trial, c.careful.look = holds[0], 0
		c.careful.pause = batch.Backoff{Low: 10 * time.Millisecond, High: time.Second}
	}
	c.hold(slices.Clone(holds)) // the extender drops from its own
	order := make([]int, len(leases))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return compareRows(b.rows[i], b.rows[j]) })
	var aside []*lease.Lease
	read, back := 0, 0 // bytes, and leases
	for _, i := range order {
		l, row := leases[i], &b.rows[i]
		left := row.leftOut && !row.expired
		if left {
			read += row.size
		}
		if back > 0 || left && read > max(row.size, c.cfg.PrefetchBytes) {
			back++
			l.lease.Take(lease.Release)
		} else if !left || c.readContents(loop, l.lease, row) {
			l.fill(c.queue, row)
		}
		switch l.lease.State() {
		case lease.Held:
			c.flow.delivered++
			c.out <- l
		case lease.Settling:
			aside = append(aside, l.lease)
		}
	}
	c.setAside(aside)
	// Leases that no reader gets count as taken. Otherwise claims would become small when many messages have expired.
	c.flow.delivered += int64(len(aside) - back)
	return len(holds) - back
}

// releaseBuffer takes back what no reader has taken.
func (c *consumer[T]) releaseBuffer() {
	var back []*lease.Lease
	for _, l := range takeAll(c.out, nil) {
		if l.lease.Take(lease.Release) {
			back = append(back, l.lease)
		}
	}
	c.settler.AddAll(back...)
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
