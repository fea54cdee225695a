package chanq

import (
	"context"
	"database/sql"
	"math"

	"github.com/chanq/chanq/sqlbatch"
)

// peekBySeq goes through an ordered queue in steps, each of which ends after a number of messages: a
// few that wait or are leased may lie among millions that are ready, and one statement through all
// of them would take too long.
func (q *queue) peekBySeq(ctx context.Context, s sqlbatch.State, n int, after *sqlbatch.Place) (list []Entry, err error) {
	var place sqlbatch.Place
	if after != nil {
		place = *after
	}
	for len(list) < n && place.Upto < math.MaxInt64 {
		if place.Upto, err = q.reach(ctx, place.At, operateRows); err != nil {
			return nil, q.fail("peek", err)
		}
		found, err := q.entries(ctx, "peek", q.sql.Peek(s, n-len(list), &place))
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
		place.At = place.Upto
	}
	return list, nil
}

// reach is up to which seq a step behind a seq looks, that looks at some rows a slot.
func (q *queue) reach(ctx context.Context, after int64, rows int) (upto int64, err error) {
	err = q.once(ctx, q.sql.Reach(after, rows), func(rows *sql.Rows) error { return rows.Scan(&upto) })
	return upto, err
}

// A Browse looks at so many messages of all slots together, and of each at leastBrowsed or more: each
// may be in another page of the table.
const (
	mostBrowsedBySeq = 3_200
	leastBrowsed     = 50
)

// browseBySeq is one such step.
func (q *queue) browseBySeq(ctx context.Context, s State, n int, after *sqlbatch.Place) (found browsed, err error) {
	var from sqlbatch.Place
	if after != nil {
		from = *after
	}
	if from.Upto, err = q.reach(ctx, from.At, max(leastBrowsed, mostBrowsedBySeq/q.cfg.Slots)); err != nil {
		return found, q.fail("browse", err)
	}
	if found.list, err = q.outlines(ctx, s, n, &from); err != nil {
		return found, err
	}
	switch {
	case len(found.list) == n:
		end := q.placeOf(&found.list[n-1])
		found.end = &end
	case from.Upto < math.MaxInt64:
		found.end = &sqlbatch.Place{At: from.Upto}
	}
	return found, nil
}

// purgeBySeq is to purge what peekBySeq is to a peek.
func (q *queue) purgeBySeq(ctx context.Context, s sqlbatch.State, w sqlbatch.Window) (total int, err error) {
	for w.Upto < math.MaxInt64 {
		if w.Upto, err = q.reach(ctx, w.After, operateRows); err != nil {
			return total, q.fail("purge", err)
		}
		n, err := q.purge(ctx, s, w)
		if total += n; err != nil {
			return total, err
		}
		w.After = w.Upto
	}
	return total, nil
}
