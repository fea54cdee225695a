package chanq

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// Purge and Redrive take all messages of a state, in steps; PurgeIDs and RedriveIDs take those
// with the IDs that they are given.

// operateRows is how many rows one statement of Purge and Redrive touches, and of an ordered queue
// looks at in each slot: few enough to hold its locks shortly.
const operateRows = 1000

// Purge deletes every message that is of a state when it is called, leased ones
// too, if asked, and returns how many it deleted. What comes to that state later
// stays, so it ends beside producers, too. It runs in statements of 1000 rows each, for
// each priority where they are live and the queue is plain, or else for each 1000 messages of a slot, after
// one that asks for the database's time; each
// begins where the one before it ended. An error comes with the count so
// far. Messages that others have locked at the moment may be left.
func (q *Queue[T]) Purge(ctx context.Context, s State) (int, error) {
	if err := checkState(s); err != nil {
		return 0, fmt.Errorf("chanq: purge %s: %w", q.core.label, err)
	}
	return q.core.purgeAll(ctx, s)
}

func (q *queue) purgeAll(ctx context.Context, s State) (int, error) {
	w, err := q.window(ctx)
	if err != nil {
		return 0, q.fail("purge", err)
	}
	if sqlbatch.State(s).Live() && q.ordered() {
		return q.purgeBySeq(ctx, sqlbatch.State(s), w)
	}
	lowest, highest := sqlbatch.PriorityLow, sqlbatch.PriorityUrgent
	if !sqlbatch.State(s).Live() {
		lowest = highest // their order knows no priorities
	}
	total := 0
	for p := highest; p >= lowest; p-- {
		w.Priority = int8(p)
		n, err := q.purge(ctx, sqlbatch.State(s), w)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

func (q *queue) purge(ctx context.Context, s sqlbatch.State, w sqlbatch.Window) (int, error) {
	return q.repeat(ctx, "purge", 0, w, func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.sql.Purge(s, n, w) })
}

// PurgeIDs deletes the dead messages with these IDs and returns the IDs of those that it
// found: what Cancel is for live ones. One round trip per 400 messages on SQL Server, per
// 1000 elsewhere; it waits for those that others have locked.
func (q *Queue[T]) PurgeIDs(ctx context.Context, ids ...ID) ([]ID, error) {
	return q.core.byID(ctx, "purge", ids, q.core.sql.Discard, collectIDs)
}

// Redrive makes up to limit messages that are dead when it is called ready again
// (all, if limit is 0), oldest first, with no attempts counted and without an
// expiry, each once, and returns how many. One that is set aside again meanwhile
// stays dead, and so do those whose ID or DedupKey is in the queue again: with DeadKeyHolds their keys stay closed until
// PurgeIDs discards them, or the live message has ended and they are redriven. It runs in
// statements of 1000 rows, after one that asks for the database's time; an error
// comes with the count so far. It wakes idle consumers, as a send does: those of other
// processes where there is a Notifier.
func (q *Queue[T]) Redrive(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, fmt.Errorf("chanq: redrive %s: limit is %d: must be 0 (all) or more", q.core.label, limit)
	}
	return q.core.redrive(ctx, limit)
}

func (q *queue) redrive(ctx context.Context, limit int) (int, error) {
	w, err := q.window(ctx)
	if err != nil {
		return 0, q.fail("redrive", err)
	}
	n, err := q.repeat(ctx, "redrive", limit, w, func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.sql.Redrive(n, nil, w) })
	if n > 0 {
		q.wake()
	}
	return n, err
}

// RedriveIDs makes the dead messages with these IDs ready again, as Redrive
// does, and returns the IDs of those it moved. One round trip per 400 messages on
// SQL Server, per 1000 elsewhere.
func (q *Queue[T]) RedriveIDs(ctx context.Context, ids ...ID) ([]ID, error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids) // one that dies again meanwhile is not moved again
	moved, err := q.core.byID(ctx, "redrive", ids, func(ids [][16]byte) sqlbatch.Statement {
		return q.core.sql.Redrive(len(ids), ids, sqlbatch.Window{})
	}, collectPlaced)
	if len(moved) > 0 {
		q.core.wake()
	}
	return moved, err
}

// window is that of what is there now, by the database's clock. Whatever comes to its
// place once window has returned is not in it: the millisecond that the clock was in is
// over by then.
func (q *queue) window(ctx context.Context) (w sqlbatch.Window, err error) {
	if err := q.once(ctx, q.sql.Clock(), func(rows *sql.Rows) error { return rows.Scan(&w.Before) }); err != nil {
		return w, err
	}
	w.Before++
	batch.Sleep(ctx, 2*time.Millisecond)
	return w, context.Cause(ctx)
}

// repeat runs a statement of up to operateRows rows of a window until it finds none or
// limit rows are done (0: no limit). One that
// finds fewer than it may is no sign of the end: a redrive leaves those whose keys
// are taken. Each begins behind the last that the one before has returned, so none walks
// over what others have deleted, or left.
func (q *queue) repeat(ctx context.Context, op string, limit int, w sqlbatch.Window, build func(int, sqlbatch.Window) sqlbatch.Statement) (int, error) {
	total := 0
	for limit == 0 || total < limit {
		n, found := operateRows, 0
		if limit > 0 {
			n = min(n, limit-total)
		}
		err := q.once(ctx, build(n, w), func(rows *sql.Rows) error {
			found++
			return scanPlace(rows, &w)
		})
		if err != nil {
			return total, q.fail(op, err)
		}
		if found == 0 {
			break
		}
		total += found
	}
	return total, nil
}

// scanPlace moves the window behind a message, if it is not there already: rows come in
// any order.
func scanPlace(rows *sql.Rows, w *sqlbatch.Window) error {
	var raw sql.RawBytes
	var at int64
	if err := rows.Scan(&raw, &at); err != nil {
		return err
	}
	from, last := w.First(math.MinInt64)
	if id := idOf(raw); at > from || at == from && bytes.Compare(id[:], last[:]) > 0 {
		w.After, w.AfterID = at, id
	}
	return nil
}

// collectPlaced is collectIDs for statements that tell the place of a message, too.
func collectPlaced(found *[]ID) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var raw sql.RawBytes
		var place int64
		err := rows.Scan(&raw, &place)
		*found = append(*found, idOf(raw))
		return err
	}
}
