package chanq

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// From the rows of a claim to leases.
//
// A lease that somebody keeps, for long after its ack perhaps, must not keep its
// neighbours in memory. So what several leases share is small: a slab of leases
// holds few of them, with few bytes of bodies in all, the bytes lie in small
// chunks, and a large body lies alone. What a codec makes of a body may be of any
// size, however few bytes it came from: those leases share nothing but the slab of
// their inner parts, which refer to no message. Together that is less than 48 KiB.
const (
	slabLeases = 32
	slabBytes  = 8 << 10 // of keys, headers and bodies whose leases share a slab
	// headersGrow is how many times their encoded size decoded headers take, at
	// most about: a map, and a string for each name and value.
	headersGrow = 8
)

// claimedRow is a row of a claim, its bytes copied.
type claimedRow struct {
	table.Row
	item    sqlbatch.Item
	expired bool
	size    int  // of the body, which may be left out
	leftOut bool // the contents are to be read
	crashes int  // of an ordered queue: it ended so many processes, and is to be dead-lettered
}

// claimedRows collects a claim: nothing of it may be used before the statement
// is known to have succeeded.
type claimedRows struct {
	rows  []claimedRow
	bytes int // of bodies
	arena table.Arena

	inline                            int // larger bodies are left out; of a plain queue
	size                              int64
	columns                           []any // where they are read to
	id, key, headers, body            sql.RawBytes
	priority, fence, attempts, lapses int64
	expired, enqueued, due            int64
	expires                           sql.NullInt64
}

// newSalt is what keeps the fences of two claims apart: see sqlbatch.FenceBits.
func newSalt() int64 { return 1 + rand.Int64N(1<<sqlbatch.FenceBits) }

func (r *claimedRows) scan(rows *sql.Rows) error {
	if r.columns == nil {
		r.columns = []any{&r.id, &r.priority, &r.fence, &r.attempts, &r.lapses, &r.expired, &r.enqueued, &r.due, &r.expires, &r.key, &r.headers, &r.body, &r.size}
	}
	if err := rows.Scan(r.columns...); err != nil {
		return err
	}
	row := claimedRow{
		Row: table.Row{
			Priority: int8(r.priority), Attempts: int(r.attempts), Lapses: int(r.lapses), Enqueued: r.enqueued, Due: r.due, Expires: r.expires,
			Key: r.arena.Keep(r.key), Headers: r.arena.Keep(r.headers), Body: r.arena.Keep(r.body),
		},
		item: sqlbatch.Item{Fence: r.fence}, expired: r.expired != 0, size: int(r.size), leftOut: r.inline < 0 || int(r.size) > r.inline,
	}
	copy(row.item.ID[:], r.id)
	r.bytes += row.size
	r.rows = append(r.rows, row)
	return nil
}

// scanContents reads what Contents returns.
func (r *claimedRow) scanContents(rows *sql.Rows) error {
	var key, headers, body sql.RawBytes
	err := rows.Scan(&key, &headers, &body)
	r.Key, r.Headers, r.Body = bytes.Clone(key), bytes.Clone(headers), bytes.Clone(body)
	return err
}

// weight is about how many bytes of memory the row's part of a lease takes.
func (r *claimedRow) weight() int {
	return len(r.Key) + headersGrow*len(r.Headers) + max(r.size, len(r.Body))
}

// buildLeases makes leases of the rows of one claim, in their order.
// Those that no handler may see, because they expired, their attempts are spent or
// their body cannot be decoded, come back in state settling, to be set aside.
func buildLeases[T any](q *queue, rows []claimedRow, home *lease.Home, deadline, until time.Duration) []*Lease[T] {
	leases := newLeases[T](q, rows, home, deadline, until)
	for i := range rows {
		leases[i].fill(q, &rows[i])
	}
	return leases
}

// newLeases makes leases of rows, in their order, without headers and bodies.
func newLeases[T any](q *queue, rows []claimedRow, home *lease.Home, deadline, until time.Duration) []*Lease[T] {
	q.recorder.claimed(rows)
	leases := make([]*Lease[T], len(rows))
	var inner []lease.Lease
	var slab []Lease[T]
	for i := range rows {
		// In the order of the rows, as their bytes lie in the chunks.
		if len(inner) == 0 {
			inner = make([]lease.Lease, min(slabLeases, len(rows)-i))
		}
		if len(slab) == 0 {
			slab = make([]Lease[T], sharing[T](rows[i:]))
		}
		row, l := &rows[i], &slab[0]
		leases[i], l.lease = l, &inner[0]
		slab, inner = slab[1:], inner[1:]
		l.Queue, l.ID, l.Priority = q.label, row.item.ID, Priority(row.Priority)
		l.Key = row.OrderKey
		l.Attempt, l.Fence = row.Attempts, row.item.Fence
		l.EnqueuedAt, l.DueAt = time.UnixMilli(row.Enqueued), time.UnixMilli(row.Due)
		if row.Expires.Valid {
			l.ExpiresAt = time.UnixMilli(row.Expires.Int64)
		}
		l.lease.Home, l.lease.Item, l.lease.Due, l.lease.Priority, l.lease.Attempt, l.lease.Lapses = home, row.item, row.Due, row.Priority, row.Attempts, row.Lapses
		if size := max(row.size, len(row.Body)); size >= lease.HeavyBody {
			l.lease.Heavy = size
		}
		l.lease.Begin(deadline, until)
	}
	return leases
}

// sharing is how many leases of the first rows may share a slab: see slabLeases.
func sharing[T any](rows []claimedRow) int {
	if meetsCodec[T]() {
		return 1
	}
	n, size := 1, rows[0].weight()
	for n < len(rows) && n < slabLeases {
		if size += rows[n].weight(); size > slabBytes {
			break
		}
		n++
	}
	return n
}

// fill decodes headers and body, or has the message set aside. Decoders repeat what
// they cannot read, so their words are quiet.
func (l *Lease[T]) fill(q *queue, row *claimedRow) {
	switch {
	case row.expired:
		l.lease.SetAside(ReasonExpired)
		return
	case row.Unread != nil:
		l.lease.Take(lease.Nack)
		return
	case row.crashes > 0:
		l.lease.SetAside(crashed(row, row.crashes))
		return
	}
	var err error
	l.DedupKey = string(row.Key)
	if l.Headers, err = decodeHeaders(row.Headers); err == nil {
		err = decodeBody(q.cfg.Codec, row.Body, &l.Body)
	}
	if err != nil {
		l.lease.Quiet = true
		l.lease.SetAside(fmt.Sprintf("%s%v", reasonDecode, err))
		return
	}
}
