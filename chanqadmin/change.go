package chanqadmin

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Purge and Redrive take all messages of a state, in steps; PurgeIDs and RedriveIDs take those whose IDs they are given.

// stepRows is how many rows one statement of Purge and Redrive changes, and of an ordered queue looks at in each slot: few enough to
// hold its locks for a short time.
const stepRows = 1000

// Purge deletes every message that is of a state when it is called, leased ones if the state is StateLeased, and returns how many it
// deleted. What comes to that state later stays, so that it ends even while producers send. An error comes with the count so far.
// Messages that are locked at the moment may be left.
//
// It runs in statements of 1000 rows, each of which begins where the one before it ended, after one that asks for the database's time.
// For the live messages of a plain queue it does so for each priority; for those of an ordered queue in steps of 1000 messages of each
// slot, which cost a round trip more each.
func (q *Queue) Purge(ctx context.Context, s State) (int, error) {
	if err := s.check(); err != nil {
		return 0, q.refuse("purge", "%w", err)
	}
	w, err := q.window(ctx, "purge")
	if err != nil {
		return 0, err
	}
	if s.live() && q.ordered() {
		return q.purgeBySeq(ctx, s, w)
	}
	lowest, highest := sqlbatch.PriorityLow, sqlbatch.PriorityUrgent
	if !s.live() {
		lowest = highest // they are in no order of priorities
	}
	total := 0
	for p := highest; p >= lowest; p-- {
		w.Priority = int8(p)
		n, err := q.purge(ctx, s, w)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// purgeBySeq is Purge of live messages of an ordered queue: see full.
func (q *Queue) purgeBySeq(ctx context.Context, s State, w sqlbatch.Window) (total int, err error) {
	for w.Upto < math.MaxInt64 {
		if w.Upto, err = q.reach(ctx, "purge", w.After, stepRows); err != nil {
			return total, err
		}
		n, err := q.purge(ctx, s, w)
		if total += n; err != nil {
			return total, err
		}
		w.After = w.Upto
	}
	return total, nil
}

func (q *Queue) purge(ctx context.Context, s State, w sqlbatch.Window) (int, error) {
	return q.repeat(ctx, "purge", 0, w, func(n int, w sqlbatch.Window) sqlbatch.Statement {
		return q.sql.Purge(sqlbatch.State(s), n, w)
	})
}

// PurgeIDs deletes the dead messages with these IDs and returns the IDs of those that it found. Cancel does that for live ones. One
// round trip per 400 messages on SQL Server, per 1000 elsewhere; it waits for locked rows.
func (q *Queue) PurgeIDs(ctx context.Context, ids ...chanq.ID) ([]chanq.ID, error) {
	return q.byID(ctx, "purge", ids, q.sql.Discard, func(rows *sql.Rows, id *sql.RawBytes) error { return rows.Scan(id) })
}

// Redrive makes up to limit messages that are dead when it is called ready again (all, if limit is 0), oldest first, with no attempts
// counted and without an expiry, each once, and returns how many. One that is dead-lettered again meanwhile stays dead, and so do those
// whose ID or DedupKey is in the queue again: with DeadKeyHolds their keys stay closed until PurgeIDs discards them, or the live
// message has ended and they are redriven. It runs in statements of 1000 rows, after one that asks for the database's time; an error
// comes with the count so far. It wakes idle consumers, as a send does: those of other processes where there is a Notifier.
func (q *Queue) Redrive(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, q.refuse("redrive", "limit is %d: must be 0 (all) or more", limit)
	}
	w, err := q.window(ctx, "redrive")
	if err != nil {
		return 0, err
	}
	n, err := q.repeat(ctx, "redrive", limit, w, func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.sql.Redrive(n, nil, w) })
	if n > 0 {
		q.queue.Wake()
	}
	return n, err
}

// RedriveIDs makes the dead messages with these IDs ready again, as Redrive does, and returns the IDs of those that it moved. One round
// trip per 400 messages on SQL Server, per 1000 elsewhere.
func (q *Queue) RedriveIDs(ctx context.Context, ids ...chanq.ID) ([]chanq.ID, error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b chanq.ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids) // one that dies again meanwhile is not moved again
	build := func(ids [][16]byte) sqlbatch.Statement { return q.sql.Redrive(len(ids), ids, sqlbatch.Window{}) }
	moved, err := q.byID(ctx, "redrive", ids, build, func(rows *sql.Rows, id *sql.RawBytes) error { return rows.Scan(id, new(int64)) })
	if len(moved) > 0 {
		q.queue.Wake()
	}
	return moved, err
}

// byID runs a statement on chunks of ids and returns those of the rows that it returns.
func (q *Queue) byID(ctx context.Context, op string, ids []chanq.ID, build func([][16]byte) sqlbatch.Statement, scan func(*sql.Rows, *sql.RawBytes) error) (found []chanq.ID, err error) {
	err = table.EachChunk(q.dialect, ids, func(chunk [][16]byte) error {
		return q.once(ctx, build(chunk), func(rows *sql.Rows) error {
			var raw sql.RawBytes
			if err := scan(rows, &raw); err != nil {
				return err
			}
			found = append(found, chanq.ID(raw))
			return nil
		})
	})
	return found, q.fail(op, err)
}

// window is that of what is there now, by the database's clock. What comes to its place once window has returned is not in it: the
// millisecond that the clock was in is over by then.
func (q *Queue) window(ctx context.Context, op string) (w sqlbatch.Window, err error) {
	err = q.once(ctx, q.sql.Clock(), func(rows *sql.Rows) error { return rows.Scan(&w.Before) })
	if err != nil {
		return w, q.fail(op, err)
	}
	w.Before++
	batch.Sleep(ctx, 2*time.Millisecond)
	return w, q.fail(op, context.Cause(ctx))
}

// repeat runs a statement of up to stepRows rows of a window until it finds none or limit rows are done (0: no limit). One that finds
// fewer than it may is no sign of the end: a redrive leaves those whose keys are taken. Each begins behind the last row that the one
// before has returned, so that none walks over what others have deleted, or left.
func (q *Queue) repeat(ctx context.Context, op string, limit int, w sqlbatch.Window, build func(int, sqlbatch.Window) sqlbatch.Statement) (int, error) {
	total := 0
	for limit == 0 || total < limit {
		n, found := stepRows, 0
		if limit > 0 {
			n = min(n, limit-total)
		}
		err := q.once(ctx, build(n, w), func(rows *sql.Rows) error {
			found++
			return advance(rows, &w)
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

// advance moves the window behind the message of a row, unless it is there already: rows come in any order.
func advance(rows *sql.Rows, w *sqlbatch.Window) error {
	var raw sql.RawBytes
	var at int64
	if err := rows.Scan(&raw, &at); err != nil {
		return err
	}
	from, last := w.First(math.MinInt64)
	if id := [16]byte(raw); at > from || at == from && bytes.Compare(id[:], last[:]) > 0 {
		w.After, w.AfterID = at, id
	}
	return nil
}

// Pause stops claims of this queue in all processes, as soon as each polls next. What is leased already may be settled, and what
// consumers have buffered is still delivered; sends go on. The reason and who pauses, as host/pid, are kept for other operators: see
// Paused. A reason has at most 400 bytes of UTF-8 without NUL. One round trip.
func (q *Queue) Pause(ctx context.Context, reason string) error {
	if len(reason) > sqlbatch.MaxPauseText || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0) {
		return q.refuse("pause", "reason %.63q of %d bytes: must be at most %d, of UTF-8 without NUL", reason, len(reason), sqlbatch.MaxPauseText)
	}
	host, _ := os.Hostname()
	return q.fail("pause", q.once(ctx, q.sql.Pause(fmt.Sprintf("%.200s/%d", strings.ToValidUTF8(host, ""), os.Getpid()), reason), nil))
}

// Pause is a pause of a queue.
type Pause struct {
	Since      time.Time // by the clock of the database; zero: the queue is not paused
	By, Reason string
}

// Paused returns the pause of the queue. One round trip.
func (q *Queue) Paused(ctx context.Context) (Pause, error) {
	var found table.Stored
	if err := q.once(ctx, q.sql.Version(), found.Scan); err != nil || !found.Paused {
		return Pause{}, q.fail("look at the pause", err)
	}
	return Pause{Since: time.UnixMilli(found.PausedAt.Int64), By: found.PausedBy.String, Reason: found.PauseReason.String}, nil
}

// Configure changes the fields of the queue's Spec that are not zero in spec, while programs use the queue: its consumers adopt them with
// their next heartbeat, every third of chanq.ConsumerConfig.LeaseFor. Kind and Slots cannot be changed: ErrSpec. The role needs the right
// to update the queue's row, as for Pause. Up to nine round trips, four if nothing changes. ErrNoSchema: there is no such queue.
func (q *Queue) Configure(ctx context.Context, spec chanq.Spec) error {
	if _, err := q.Spec(ctx); err != nil { // a queue that was dropped is not to be made again
		return err
	}
	cfg := q.cfg
	cfg.Spec = spec
	return chanq.Migrate(ctx, q.db, q.Name(), cfg)
}

// Spec returns what the database says of the queue. One round trip.
func (q *Queue) Spec(ctx context.Context) (chanq.Spec, error) {
	cfg, err := chanq.StoredConfig(ctx, q.db, q.Name(), q.cfg)
	return cfg.Spec, err
}

// Resume ends a pause. One round trip.
func (q *Queue) Resume(ctx context.Context) error {
	err := q.once(ctx, q.sql.Resume(), nil)
	if err == nil {
		q.queue.Wake()
	}
	return q.fail("resume", err)
}
