package chanq

import (
	"context"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// A settle or an extension does not return the rows that are gone, that another
// holder has, or that somebody has locked at the moment. A look at them, which waits
// for nobody, tells these apart: no lease is called lost before.

// standing is how a row stands to a lease.
type standing uint8

const (
	standsOurs  standing = iota // the lease's fence: the row is locked, or was a moment ago
	standsMoved                 // another fence
	standsGone                  // there is no such row
)

// sight is what a look found.
type sight struct {
	fences map[[16]byte]int64
	locked map[[16]byte]bool // could not be seen, which is to say: exist
}

func (s sight) of(it sqlbatch.Item) standing {
	fence, live := s.fences[it.ID]
	switch {
	case s.locked[it.ID], live && fence == it.Fence:
		return standsOurs
	case live:
		return standsMoved
	}
	return standsGone
}

// lookStatements bounds the statements of a look that is cut into halves for the
// sake of rows that cannot be seen: those that are left are called locked, and
// looked at again later.
const lookStatements = 32

// look sees how the rows of leases stand to them. A statement takes up to timeout.
func (q *queue) look(ctx context.Context, s *sessions, timeout time.Duration, leases []*lease) (sight, error) {
	seen := sight{fences: map[[16]byte]int64{}, locked: map[[16]byte]bool{}}
	ids := make([][16]byte, len(leases))
	for i, l := range leases {
		ids[i] = l.item.ID
	}
	read := map[[16]byte]sqlbatch.ReadItem{}
	if len(leases) > 0 && leases[0].seq != 0 {
		for _, l := range leases {
			read[l.item.ID] = l.readItem()
		}
	}
	parts := slices.Collect(slices.Chunk(ids, q.dialect.Traits().FindIDs))
	for statements := 1; len(parts) > 0; statements++ {
		part := parts[0]
		parts = parts[1:]
		within, cancel := context.WithTimeout(ctx, timeout)
		st := q.sql.Look(part)
		if len(read) > 0 {
			items := make([]sqlbatch.ReadItem, len(part))
			for i, id := range part {
				items[i] = read[id]
			}
			st = q.sql.LookRead(items)
		}
		rows, _, err := s.Items(within, st, nil)
		cancel()
		switch {
		case err == nil:
			for _, row := range rows {
				seen.fences[row.ID] = row.Fence
			}
		case q.classify(err) != sqlbatch.RolledBack:
			return sight{}, unread(err)
		case len(part) > 1 && statements < lookStatements:
			parts = append(parts, part[:len(part)/2], part[len(part)/2:])
		default:
			for _, id := range part {
				seen.locked[id] = true
			}
		}
	}
	return seen, nil
}

// unread is the error of a statement that changes nothing, and so has no unknown
// outcome: the settle or extension before it was not applied to what it looks for.
func unread(err error) error {
	if _, notRun := err.(*session.NotRunError); notRun {
		return err
	}
	return &session.NotRunError{Err: err}
}
