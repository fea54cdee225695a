package claim

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
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
// many are not given back.
//
// Of what was left out the consumer has PrefetchBytes in memory at most, or one message. It gives back the rest of the claim.
func (p *Plain) deliver(c claimed) (kept int) {
	if !slices.IsSortedFunc(c.rows, compareRows) {
		slices.SortFunc(c.rows, compareRows)
	}
	leases := p.cfg.leases(c.rows, c.deadline, c.until)
	if c.trial {
		p.beginTrial(leases[0])
	}
	p.cfg.Consumer.Track(slices.Clone(leases)) // it drops from its own
	var aside []*lease.Lease
	from, read, back := 0, 0, 0 // what is not with the feed, bytes, and leases
	for i := range c.rows {
		l, row := leases[i], &c.rows[i]
		left := row.LeftOut && !row.Expired
		if left {
			read += row.Size
		}
		switch {
		case back > 0, left && read > max(row.Size, p.cfg.PrefetchBytes):
			if back == 0 {
				p.put(Batch{leases[from:i], c.rows[from:i]}, nil)
			}
			back++
			l.Take(lease.Release)
		case row.Expired:
			l.SetAside(ReasonExpired)
		case left:
			p.put(Batch{leases[from:i], c.rows[from:i]}, nil) // a reader need not wait for what follows
			from = i
			p.readContents(l, row)
		}
		if l.State() == lease.Settling {
			aside = append(aside, l)
		}
	}
	if back == 0 {
		p.put(Batch{leases[from:], c.rows[from:]}, whole(c.rows, from))
	}
	if len(aside) > 0 {
		p.cfg.Consumer.Settle(aside...)
	}
	p.cfg.Consumer.Delivered(len(leases), c.bytes, c.took)
	return len(leases) - back
}

// whole returns rows if they may be used again after those from a place on.
func whole(rows []table.Claimed, from int) []table.Claimed {
	if from > 0 {
		return nil // those before it may wait still
	}
	return rows
}
