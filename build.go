package chanq

import (
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// From what was claimed to leases with bodies.
//
// A lease that a reader keeps, for long after its ack perhaps, must not keep its
// neighbours in memory. So what several leases share is small: a slab of leases
// holds few of them, with few bytes of bodies in all, the bytes lie in small
// chunks, and a large body lies alone. What a codec makes of a body may be of any
// size, however few bytes it came from: those leases share nothing but the slab of
// their inner parts, which refer to no message. Together that is less than 48 KiB.
const (
	slabBytes = 8 << 10 // of keys, headers and bodies whose leases share a slab
	// headersGrow is how many times their encoded size decoded headers take, at
	// most about: a map, and a string for each name and value.
	headersGrow = 8
)

// build appends leases that readers may get. Those whose message cannot be decoded are dead-lettered, and those that ran out
// meanwhile are released.
func build[T any](c *consumer, b claim.Batch, into []*Lease[T]) []*Lease[T] {
	var slab []Lease[T]
	var dead []*lease.Lease
	for i, under := range b.Leases {
		if len(slab) == 0 {
			slab = make([]Lease[T], sharing[T](b.Rows[i:]))
		}
		l := &slab[0] // also for those that are left out: the others of the slab were weighed with them
		slab = slab[1:]
		if under.State() != lease.Held {
			c.engine.Skip(under)
			continue
		}
		if err := l.fill(c.queue, under, &b.Rows[i]); err != nil {
			under.Quiet = true // decoders repeat what they cannot read
			if under.DeadLetter(fmt.Sprintf("%s%v", base.ReasonDecode, err)); under.State() == lease.Settling {
				dead = append(dead, under)
			}
			continue
		}
		into = append(into, l)
	}
	if len(dead) > 0 {
		c.engine.HandBack(dead...)
	}
	return into
}

// sharing is how many leases of the first rows may share a slab.
func sharing[T any](rows []table.Claimed) int {
	if meetsCodec[T]() {
		return 1
	}
	n, size := 1, weight(&rows[0])
	for n < len(rows) && n < claim.SlabLeases {
		if size += weight(&rows[n]); size > slabBytes {
			break
		}
		n++
	}
	return n
}

// weight is about how many bytes of memory the row's part of a lease takes.
func weight(row *table.Claimed) int {
	return len(row.Key) + headersGrow*len(row.Headers) + max(row.Size, len(row.Body))
}

// fill makes a lease of a message. Its error is that of a decoder.
func (l *Lease[T]) fill(q *queue, under *lease.Lease, row *table.Claimed) (err error) {
	l.lease = under
	l.ID, l.Queue, l.Priority, l.Key = row.Item.ID, q.label, Priority(row.Priority), row.OrderKey
	l.Attempt, l.Fence = row.Attempts, row.Item.Fence
	if under.Message != nil {
		l.Fence = under.Delivery
	}
	l.EnqueuedAt, l.DueAt = time.UnixMilli(row.Enqueued), time.UnixMilli(row.Due)
	if row.Expires.Valid {
		l.ExpiresAt = time.UnixMilli(row.Expires.Int64)
	}
	l.DedupKey = string(row.Key)
	if l.Headers, err = decodeHeaders(row.Headers); err != nil {
		return err
	}
	return decodeBody(q.cfg.Codec, row.Body, &l.Body)
}
