package chanq

import (
	"database/sql"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// readRows collects the answer to a read: see the reads of sqlbatch.
type readRows struct {
	claimedRows
	found  []order.Row
	status order.Status
	taken  []order.Taken

	slot, seq, wait, holder, held, given int64
	orderKey                             sql.RawBytes
}

func (r *readRows) scan(rows *sql.Rows) error {
	if err := r.read(rows, &r.slot, &r.seq, &r.orderKey, &r.wait, &r.holder, &r.held, &r.given); err != nil {
		return err
	}
	if r.id == nil {
		r.status = order.Status{Walked: r.priority != 0, Redriven: r.enqueued, Drawn: r.fence, Upto: r.due}
		r.status.Senders, r.status.Renamed = order.Senders(string(r.body), sqlbatch.UnknownSender)
		return nil
	}
	row := order.Row{
		Seq: r.seq, Slot: int(r.slot), Fence: r.fence, Wait: time.Duration(r.wait) * time.Millisecond, Held: r.held != 0,
		Holder: order.Holder(r.holder), Attempts: int(r.attempts), Lapses: int(r.lapses),
	}
	copy(row.ID[:], r.id)
	if r.orderKey == nil {
		row.Key = string(r.id)
	} else {
		row.Key, row.Keyed = string(r.orderKey), true
	}
	if r.given != 0 {
		attempts := int(r.attempts)
		if row.Holder != order.Mine {
			attempts = min(attempts+1, sqlbatch.LastAttempt)
		}
		content := &claimedRow{
			priority: Priority(r.priority), attempts: attempts, lapses: int(r.lapses), expired: r.expired != 0,
			enqueued: r.enqueued, due: r.due, expires: r.expires,
			key: slices.Clone(r.key), headers: slices.Clone(r.headers), body: r.keep(r.body),
		}
		if row.Keyed {
			content.orderKey = row.Key
		}
		row.Content, row.Bytes = content, len(content.body)+len(content.headers)
		r.bytes += len(content.body)
	}
	r.found = append(r.found, row)
	return nil
}
