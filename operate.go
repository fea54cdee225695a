package chanq

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// What operators do with a queue. Purge and Redrive take all messages of a state;
// PurgeIDs, RedriveIDs and Cancel take those with the IDs that they are given.

// Stats is a picture of a queue.
type Stats struct {
	// Counts of messages by state. Each is exact below Limit, and Limit itself means that
	// many or more, so that looking at a deep queue costs no more than looking at a short
	// one. Ready and leased ones are told apart among the first of each priority that are
	// due, at least twice Limit of them: where more are leased, what is ready behind them may
	// not be counted, and the other way round.
	Ready, Scheduled, Leased, Dead, Done int
	Limit                                int
	// OldestReady is for how long the oldest ready message has been due.
	OldestReady time.Duration
	Paused      bool
}

const statsLimit = 10_000

// Stats counts the messages of the queue, up to 10,000 of each state, in one
// round trip that reads no more than a few times as many entries. It takes no locks
// that others wait for; it is for operators, not for deciding whether to claim.
func (q *Queue[T]) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Limit: statsLimit}
	err := q.core.once(ctx, q.core.sql.Stats(statsLimit), s.scan)
	return s, q.core.fail("stats", err)
}

func (s *Stats) scan(rows *sql.Rows) error {
	var oldest sql.NullInt64
	var paused sql.NullBool
	err := rows.Scan(&s.Ready, &s.Scheduled, &s.Leased, &s.Dead, &s.Done, &oldest, &paused)
	s.OldestReady = time.Duration(oldest.Int64) * time.Millisecond
	s.Paused = paused.Bool
	return err
}

// State is where a stored message is in its life.
type State string

// The states.
const (
	StateReady     State = "ready"     // due, claimable
	StateScheduled State = "scheduled" // not due yet
	StateLeased    State = "leased"    // claimed, lease running
	StateDead      State = "dead"      // set aside
	StateDone      State = "done"      // kept after ack, with Config.Retain
)

// Entry is a stored message as an operator sees it. Its body is not decoded.
type Entry struct {
	ID       ID
	State    State
	Priority Priority
	// Attempts counts the claims that were deliveries, or may have been: see
	// Lease.Attempt. One that found a message expired, undecodable or spent does not count.
	Attempts   int
	Fence      int64 // of the last claim, or greater
	EnqueuedAt time.Time
	// DueAt is when the message was or will be due: its place. Zero of dead and done ones.
	DueAt time.Time
	// LeaseUntil is when its lease ends or, where nobody has claimed it since, ended.
	// Zero where there is none.
	LeaseUntil time.Time
	EndedAt    time.Time // of a dead or done one
	ExpiresAt  time.Time // zero if it never does
	// Member that holds the lease, and its name, as long as it is known. See
	// Queue.Members.
	Member    ID
	LeasedBy  string
	DedupKey  string
	LastError string
	Headers   map[string]string
	Body      []byte
	// Key and Slot are of an ordered queue.
	Key  string
	Slot int

	seq int64 // its place there
}

func (q *queue) entries(ctx context.Context, op string, st sqlbatch.Statement) ([]Entry, error) {
	var list []Entry
	err := q.once(ctx, st, func(rows *sql.Rows) error {
		var e Entry
		var id, headers, key, line []byte
		var enqueued int64
		var member []byte
		var due, lease, ended, expires sql.NullInt64
		var holder, lastError sql.NullString
		columns := []any{&e.State, &id, &e.Priority, &e.Fence, &e.Attempts, &enqueued, &due, &lease, &ended, &expires, &member, &holder, &key, &lastError, &headers, &e.Body}
		if q.ordered() {
			columns = append(columns, &e.Slot, &e.seq, &line)
		}
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		copy(e.ID[:], id)
		e.EnqueuedAt = time.UnixMilli(enqueued)
		e.DueAt, e.LeaseUntil, e.EndedAt, e.ExpiresAt = timeOf(due), timeOf(lease), timeOf(ended), timeOf(expires)
		copy(e.Member[:], member)
		e.LeasedBy, e.DedupKey, e.LastError = holder.String, string(key), lastError.String
		e.Key = string(line)
		e.Headers, _ = decodeHeaders(headers) // unreadable ones are why a message may be dead
		list = append(list, e)
		return nil
	})
	return list, q.fail(op, err)
}

// timeOf is zero of NULL.
func timeOf(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64)
}

const maxPeek = 1000

// Peek returns up to n (at most 1000) messages of a state without claiming
// them: live ones in the order of claims, dead and done ones latest first. One
// round trip; for live ones of an ordered queue two, and two more for each 1000
// messages in one slot that are of another state. PeekAfter goes on behind them.
func (q *Queue[T]) Peek(ctx context.Context, s State, n int) ([]Entry, error) {
	return q.core.peek(ctx, s, n, nil)
}

// PeekAfter is Peek of the messages behind last, in the order of Peek and of the state
// that last had in it; last is the last entry of a Peek or a PeekAfter before, or one of
// Get. To see all messages of a state, call it with the last of each page, until one is
// shorter than n. It costs what a first page costs, however many are before last.
//
// The place counts, and not whether the message is still there. Of messages that come, go
// or change their state or due time between two pages, some may be missed; one that
// stays where it is is shown, once, unless SQL Server has it locked at the moment.
func (q *Queue[T]) PeekAfter(ctx context.Context, last Entry, n int) ([]Entry, error) {
	place := sqlbatch.Place{Priority: int8(last.Priority), At: last.DueAt.UnixMilli(), ID: last.ID}
	switch live := sqlbatch.State(last.State).Live(); {
	case !live:
		place.At = last.EndedAt.UnixMilli()
	case q.core.ordered():
		place.At = last.seq
	}
	return q.core.peek(ctx, last.State, n, &place)
}

func (q *queue) peek(ctx context.Context, s State, n int, after *sqlbatch.Place) ([]Entry, error) {
	if err := checkState(s); err != nil {
		return nil, fmt.Errorf("chanq: peek %s: %w", q.name, err)
	}
	if n < 1 || n > maxPeek {
		return nil, fmt.Errorf("chanq: peek %s: n is %d: must be from 1 to %d", q.name, n, maxPeek)
	}
	if sqlbatch.State(s).Live() && q.ordered() {
		return q.peekBySeq(ctx, sqlbatch.State(s), n, after)
	}
	return q.entries(ctx, "peek", q.sql.Peek(sqlbatch.State(s), n, after))
}

func checkState(s State) error {
	switch s {
	case StateReady, StateScheduled, StateLeased, StateDead, StateDone:
		return nil
	}
	return fmt.Errorf("state %q: must be ready, scheduled, leased, dead or done", s)
}

// Get returns one message wherever it is, or ErrNotFound. One round trip.
func (q *Queue[T]) Get(ctx context.Context, id ID) (Entry, error) {
	list, err := q.core.entries(ctx, "get", q.core.sql.Get(id))
	if err != nil {
		return Entry{}, err
	}
	if len(list) == 0 {
		return Entry{}, &OpError{Op: "get", Queue: q.core.name, ID: id, Err: ErrNotFound}
	}
	found := list[0]
	for _, e := range list[1:] {
		// An ID that was sent again after its end may have ended twice.
		if e.State == found.State && e.EndedAt.After(found.EndedAt) {
			found = e
		}
	}
	return found, nil
}

// Cancel deletes messages that are ready, scheduled or leased and returns the
// IDs of those it found. The holder of a leased one learns of it by
// ErrLeaseLost. One round trip per 400 messages on SQL Server, per 1000 elsewhere.
func (q *Queue[T]) Cancel(ctx context.Context, ids ...ID) ([]ID, error) {
	return q.core.byID(ctx, "cancel", ids, q.core.sql.Cancel, collectIDs)
}

// CancelTx is Cancel in the caller's transaction: the messages are gone if and when that
// commits. It waits for rows that others have locked, as long as ctx lets it, and so does
// whoever wants to settle one of them until the transaction ends. After an error roll
// back.
func (q *Queue[T]) CancelTx(ctx context.Context, tx *sql.Tx, ids ...ID) ([]ID, error) {
	if tx == nil {
		return nil, errors.New("chanq: cancel: tx is nil")
	}
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return session.RunTx(ctx, tx, st, scan) }
	return byIDs(q.core, run, func(err error) error { return q.core.failTx("cancel", err) }, ids, q.core.sql.InTx().Cancel, collectIDs)
}

// byID runs a statement on chunks of ids and returns the ids that it returns.
func (q *queue) byID(ctx context.Context, op string, ids []ID, build func([][16]byte) sqlbatch.Statement, collect func(*[]ID) func(*sql.Rows) error) ([]ID, error) {
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return q.once(ctx, st, scan) }
	return byIDs(q, run, func(err error) error { return q.fail(op, err) }, ids, build, collect)
}

func byIDs(q *queue, run func(sqlbatch.Statement, func(*sql.Rows) error) error, fail func(error) error, ids []ID, build func([][16]byte) sqlbatch.Statement, collect func(*[]ID) func(*sql.Rows) error) ([]ID, error) {
	var found []ID
	for len(ids) > 0 {
		n := min(len(ids), q.dialect.Traits().FindIDs)
		chunk := make([][16]byte, n)
		for i := range chunk {
			chunk[i] = ids[i]
		}
		ids = ids[n:]
		if err := run(build(chunk), collect(&found)); err != nil {
			return found, fail(err)
		}
	}
	return found, nil
}

func collectIDs(found *[]ID) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var raw sql.RawBytes
		err := rows.Scan(&raw)
		*found = append(*found, idOf(raw))
		return err
	}
}

func idOf(raw []byte) (id ID) {
	copy(id[:], raw)
	return id
}

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
		return 0, fmt.Errorf("chanq: purge %s: %w", q.core.name, err)
	}
	w, err := q.core.window(ctx)
	if err != nil {
		return 0, q.core.fail("purge", err)
	}
	if sqlbatch.State(s).Live() && q.core.ordered() {
		return q.core.purgeBySeq(ctx, sqlbatch.State(s), w)
	}
	lowest, highest := sqlbatch.PriorityLow, sqlbatch.PriorityUrgent
	if !sqlbatch.State(s).Live() {
		lowest = highest // their order knows no priorities
	}
	total := 0
	for p := highest; p >= lowest; p-- {
		w.Priority = int8(p)
		n, err := q.core.purge(ctx, sqlbatch.State(s), w)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

func (q *queue) purge(ctx context.Context, s sqlbatch.State, w sqlbatch.Window) (int, error) {
	return q.repeat(ctx, "purge", -1, w, func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.sql.Purge(s, n, w) })
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
// stays dead, and so do those whose DedupKey is in the queue again. It runs in
// statements of 1000 rows, after one that asks for the database's time; an error
// comes with the count so far.
func (q *Queue[T]) Redrive(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, fmt.Errorf("chanq: redrive %s: limit is %d: must be 0 (all) or more", q.core.name, limit)
	}
	if limit == 0 {
		limit = -1
	}
	w, err := q.core.window(ctx)
	if err != nil {
		return 0, q.core.fail("redrive", err)
	}
	n, err := q.core.repeat(ctx, "redrive", limit, w, func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.core.sql.Redrive(n, nil, w) })
	if n > 0 {
		q.Wake()
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
		q.Wake()
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
	retry.Sleep(ctx, 2*time.Millisecond)
	return w, context.Cause(ctx)
}

// repeat runs a statement of up to operateRows rows of a window until it finds none or
// limit rows (-1: no limit) are done. One that
// finds fewer than it may is no sign of the end: a redrive leaves those whose keys
// are taken. Each begins behind the last that the one before has returned, so none walks
// over what others have deleted, or left.
func (q *queue) repeat(ctx context.Context, op string, limit int, w sqlbatch.Window, build func(int, sqlbatch.Window) sqlbatch.Statement) (int, error) {
	total := 0
	for total != limit {
		n := operateRows
		if limit >= 0 {
			n = min(n, limit-total)
		}
		found := 0
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

// Pause stops claims of this queue in all processes, as soon as each polls
// next. What is leased already may be settled, and what consumers have buffered is
// still delivered; sends go on. One round trip.
func (q *Queue[T]) Pause(ctx context.Context) error {
	return q.core.fail("pause", q.core.once(ctx, q.core.sql.Pause(), nil))
}

// Resume ends a pause. One round trip.
func (q *Queue[T]) Resume(ctx context.Context) error {
	err := q.core.once(ctx, q.core.sql.Resume(), nil)
	if err == nil {
		q.Wake()
	}
	return q.core.fail("resume", err)
}
