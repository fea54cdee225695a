package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// What operators do with a queue: they count, look, cancel and pause. Purges and redrives are in
// purge.go.

// Stats is a picture of a queue.
type Stats struct {
	// Counts of messages by state. Each is exact below Limit, and Limit itself means that
	// many or more, so that looking at a deep queue costs no more than looking at a short
	// one. Ready and leased ones are told apart among the first of each priority that are
	// due, at least twice Limit of them: where more are leased, what is ready behind them may
	// not be counted, and the other way round. Of an ordered queue scheduled and leased ones, and
	// the oldest, are looked for among the first Limit/Config.Slots of each slot (SQLite: the
	// first 2*Limit in the order of their sends): there may be more behind them.
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
	return q.core.stats(ctx)
}

func (q *queue) stats(ctx context.Context) (Stats, error) {
	s := Stats{Limit: statsLimit}
	err := q.once(ctx, q.sql.Stats(statsLimit), s.scan)
	return s, q.fail("stats", err)
}

// Empty reports whether the queue has no ready, scheduled or leased message, whether it is paused or not.
// Dead and done messages do not count. Use it, and not a sum of Stats, to decide that a queue is drained:
// on SQL Server Stats leaves out rows that are locked at that moment.
//
// The answer is that of one moment during the call. Empty never returns true while a committed message is
// in the queue: a message counts until the commit of its ack or of its move to the dead messages. It
// counts while another process holds it, while an AckTx is open, and while an Ack waits to be written (see
// Consumer.Flush). What a Producer has not stored, or a SendTx has not committed, need not count. On SQL
// Server Empty may also return false while a transaction that has written to the queue is open, so call it
// again before concluding that a message is left.
//
// Empty costs one round trip, and reads one entry of the primary key if the newest message is live.
// Otherwise it also reads the entries of ended messages that the database has not cleaned up: on PostgreSQL
// until a vacuum, on SQL Server until its ghost cleanup. It never waits for a locked row. On SQL Server, if a
// first look finds no row, a second one locks the table against writers while it reads.
func (q *Queue[T]) Empty(ctx context.Context) (empty bool, err error) {
	err = q.core.once(ctx, q.core.sql.Empty(), func(rows *sql.Rows) error { return rows.Scan(&empty) })
	return empty, q.core.fail("empty", err)
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
	Size      int // of the body, in bytes, also where Browse left it out
	// Key and Slot are of an ordered queue.
	Key  string
	Slot int

	seq int64 // its place there
}

func (q *queue) entries(ctx context.Context, op string, st sqlbatch.Statement) ([]Entry, error) {
	return q.entriesOf(ctx, op, st, func(e *Entry) any { return &e.Body })
}

// entriesOf has the column of bodies scanned to where body says.
func (q *queue) entriesOf(ctx context.Context, op string, st sqlbatch.Statement, body func(*Entry) any) ([]Entry, error) {
	var list []Entry
	err := q.once(ctx, st, func(rows *sql.Rows) error {
		var e Entry
		var id, headers, key, line []byte
		var enqueued int64
		var member []byte
		var due, lease, ended, expires sql.NullInt64
		var holder, lastError sql.NullString
		columns := []any{&e.State, &id, &e.Priority, &e.Fence, &e.Attempts, &enqueued, &due, &lease, &ended, &expires, &member, &holder, &key, &lastError, &headers, body(&e)}
		if q.ordered() {
			columns = append(columns, &e.Slot, &e.seq, &line)
		}
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		copy(e.ID[:], id)
		e.Size = max(e.Size, len(e.Body))
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
	place := q.core.placeOf(&last)
	return q.core.peek(ctx, last.State, n, &place)
}

func (q *queue) peek(ctx context.Context, s State, n int, after *sqlbatch.Place) ([]Entry, error) {
	if err := q.checkPeek("peek", s, n); err != nil {
		return nil, err
	}
	if sqlbatch.State(s).Live() && q.ordered() {
		return q.peekBySeq(ctx, sqlbatch.State(s), n, after)
	}
	return q.entries(ctx, "peek", q.sql.Peek(sqlbatch.State(s), n, after))
}

func (q *queue) checkPeek(op string, s State, n int) error {
	if err := checkState(s); err != nil {
		return fmt.Errorf("chanq: %s %s: %w", op, q.label, err)
	}
	if n < 1 || n > maxPeek {
		return fmt.Errorf("chanq: %s %s: n is %d: must be from 1 to %d", op, q.label, n, maxPeek)
	}
	return nil
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
	if err == nil && len(list) == 0 {
		err = &OpError{Op: "get", Queue: q.core.label, ID: id, Err: ErrNotFound}
	}
	if err != nil {
		return Entry{}, err
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

// placeOf is where a message stands among those of its state.
func (q *queue) placeOf(e *Entry) sqlbatch.Place {
	p := sqlbatch.Place{Priority: int8(e.Priority), At: e.DueAt.UnixMilli(), ID: e.ID}
	switch live := sqlbatch.State(e.State).Live(); {
	case !live:
		p.At = e.EndedAt.UnixMilli()
	case q.ordered():
		p.At = e.seq
	}
	return p
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
		q.core.wake()
	}
	return q.core.fail("resume", err)
}
