package claim

import (
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Leases of claimed rows, and the texts of failed leases.

// SlabLeases is the maximum number of leases in one allocation. A reader might keep one of them for long.
const SlabLeases = 32

// errLocked is the cause of a message that is not read although no statement has failed.
var errLocked = errors.New("the message is locked by another transaction")

// leases makes leases of messages, in their order.
func (c *Config) leases(rows []table.Claimed, deadline, until time.Duration) []*lease.Lease {
	leases := make([]*lease.Lease, len(rows))
	var slab []lease.Lease
	for i := range rows {
		if len(slab) == 0 {
			slab = make([]lease.Lease, min(SlabLeases, len(rows)-i))
		}
		row, l := &rows[i], &slab[0]
		leases[i], slab = l, slab[1:]
		l.Home, l.Item, l.Due, l.Priority = c.Home, row.Item, row.Due, row.Priority
		l.Attempt, l.Lapses = int32(row.Attempts), int32(row.Lapses)
		if size := max(row.Size, len(row.Body)); size >= lease.HeavyBody {
			l.Rare.Write().Heavy = size
		}
		l.Period.Begin(deadline, until)
	}
	return leases
}

// split keeps the leases that readers may get, with their rows, in b, and returns the leases to settle. The rest is
// lost.
func split(b Batch) (ready Batch, settling []*lease.Lease) {
	n := 0
	for i, l := range b.Leases {
		switch l.State() {
		case lease.Held, lease.Expired: // the feed releases expired leases
			b.Leases[n], b.Rows[n] = l, b.Rows[i]
			n++
		case lease.Settling:
			settling = append(settling, l)
		}
	}
	return Batch{b.Leases[:n], b.Rows[:n]}, settling
}

// deadLetter dead-letters a message that was not delivered.
func (c *Config) deadLetter(l *lease.Lease, row *table.Claimed, cause sqlbatch.Cause, reason string) {
	c.Holder.Describe(l, row)
	l.DeadLetter(cause, reason)
}

// blame makes a failed attempt of a settling lease whose message cannot be read. A read has the given time.
func (c *Config) blame(l *lease.Lease, row *table.Claimed, cause error, within time.Duration) {
	d := l.Rare.Write()
	if errors.Is(cause, table.ErrLate) {
		d.Text = "chanq: could not be read within " + within.String()
	} else {
		d.Text, d.Quiet = base.ReasonRead+cause.Error(), true
	}
	d.Cause, d.Delay = sqlbatch.CauseUnreadable, c.Holder.Delay(l, row, cause)
	l.Op = lease.Nack
}

// killed returns the reason of a message that is dead after crashes.
func killed(row *table.Claimed) string {
	return fmt.Sprintf("chanq: %d attempts; the last %d leases expired without a settle. Handlers of this message "+
		"end their process, hang, or "+
		"lose their leases", row.Attempts-1, row.Lapses)
}
