package chanq

import (
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Settles and extensions of what its owner has read: by id, seq and stored fence.

// readMode reports whether consumers of this queue read, and do not claim.
func (q *queue) readMode() bool {
	return ownerReads && q.ordered() && q.sql.Read(sqlbatch.SlotRead{}).Text != ""
}

func (l *lease) readItem() sqlbatch.ReadItem {
	return sqlbatch.ReadItem{Item: l.item, Seq: l.seq, Delivery: l.delivery}
}

func readItems(leases []*lease) []sqlbatch.ReadItem {
	items := make([]sqlbatch.ReadItem, len(leases))
	for i, l := range leases {
		items[i] = l.readItem()
	}
	return items
}

// readStatement is settleScratch.statement for what was read.
func readStatement(q *queue, sql sqlbatch.Queue, op settleOp, leases []*lease) sqlbatch.Statement {
	switch op {
	case settleAck:
		return q.ackReadStatement(sql, readItems(leases))
	case settleDead:
		buries := make([]sqlbatch.ReadBury, len(leases))
		for i, l := range leases {
			buries[i] = sqlbatch.ReadBury{ReadItem: l.readItem(), Error: l.text, Uncounted: l.uncounted}
		}
		return sql.BuryRead(buries)
	}
	ends := make([]sqlbatch.ReadEnd, len(leases))
	for i, l := range leases {
		ends[i] = sqlbatch.ReadEnd{ReadItem: l.readItem(), Delay: l.delay, Error: l.text}
		switch op {
		case settleNack:
			ends[i].How = sqlbatch.ReadNacked
		case settleSnooze:
			ends[i].How = sqlbatch.ReadSnoozed
		default:
			ends[i].How = sqlbatch.ReadReleased
		}
	}
	return sql.EndRead(ends)
}

func (q *queue) ackReadStatement(sql sqlbatch.Queue, items []sqlbatch.ReadItem) sqlbatch.Statement {
	if q.cfg.Retain > 0 {
		return sql.ArchiveRead(items)
	}
	return sql.AckRead(items)
}

// asItWas puts the fences that rows had in the place of those that they have since they were given back.
func asItWas(leases []*lease, changed []sqlbatch.Item) {
	given := make(map[[16]byte]*lease, len(leases))
	for _, l := range leases {
		given[l.item.ID] = l
	}
	for i := range changed {
		if l := given[changed[i].ID]; l != nil && changed[i].Fence == order.GivenFence(l.item.Fence, l.delivery) {
			changed[i].Fence = l.item.Fence
		}
	}
}
