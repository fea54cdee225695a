package claim

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// claimed is what a claim has brought.
type claimed struct {
	rows            []table.Claimed
	bytes           int // of bodies
	took            time.Duration
	trial           bool          // it is one suspect
	deadline, until time.Duration // of their leases
}

// compareRows compares by order of delivery.
func compareRows(a, b table.Claimed) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Due, b.Due), bytes.Compare(a.Item.ID[:], b.Item.ID[:]))
}

// deliver has the leases of a claim extended, reads what the claim has left out, and hands the leases to the feed. It returns how
// many are not given back. What no reader may get is settled.
//
// Of what was left out the consumer has PrefetchBytes in memory at most, or one message. It gives back the rest of the claim.
func (p *Plain) deliver(c claimed) (kept int) {
	leases := p.cfg.leases(c.rows, c.deadline, c.until)
	if c.trial {
		p.beginTrial(leases[0])
	}
	p.cfg.Consumer.Track(slices.Clone(leases)) // it drops from its own
	var aside []*lease.Lease
	ready, put, read, back := 0, 0, 0, 0 // leases that readers may get, those of them that the feed has, bytes, and leases
	for i := range c.rows {
		l, row := leases[i], &c.rows[i]
		left := row.LeftOut && !row.Expired
		if left {
			read += row.Size
		}
		switch {
		case back > 0, left && read > max(row.Size, p.cfg.PrefetchBytes):
			back++
			l.Take(lease.Release)
		case row.Expired:
			p.cfg.deadLetter(l, row, sqlbatch.CauseExpired, base.ReasonExpired)
		case left:
			p.put(Batch{leases[put:ready], c.rows[put:ready]}, nil) // a reader need not wait for what follows
			put = ready
			p.readContents(l, row)
		}
		switch l.State() {
		case lease.Held, lease.Expired: // the feed releases those whose time is over
			leases[ready], c.rows[ready] = l, *row
			ready++
		case lease.Settling:
			aside = append(aside, l)
		}
	}
	p.pace.drop(len(aside) - back)
	if put == 0 && ready > 0 {
		p.put(Batch{leases[:ready], c.rows[:ready]}, c.rows)
	} else {
		p.put(Batch{leases[put:ready], c.rows[put:ready]}, nil) // those before may wait still
	}
	if len(aside) > 0 {
		p.cfg.Consumer.Settle(aside...)
	}
	p.cfg.Consumer.Delivered(len(leases), c.bytes, c.took)
	return len(leases) - back
}
