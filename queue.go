package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Queue is one queue of messages whose bodies are of type T. It is safe for
// concurrent use and holds no connection and no goroutine of its own.
//
// SQLite has one writer. A goroutine that holds a transaction there calls SendTx
// and AckTx, and nothing else of chanq that goes to the database (Send, Flush,
// Wait, Stats …) until it has committed or rolled back: that would wait for the
// transaction, and the transaction for it, until the call's context ends.
type Queue[T any] struct{ core *queue }

// queue is what the parts of a Queue share; it knows nothing of T.
type queue struct {
	db      *sql.DB
	name    string
	cfg     Config
	dialect sqlbatch.Dialect
	sql     sqlbatch.Queue
	key     bellKey
	lone    *health // what settles of TryLease's leases see of the database
}

// newQueue checks what op was given. Its errors are complete.
func newQueue(op string, db *sql.DB, name string, cfg Config) (*queue, error) {
	if err := sqlbatch.CheckNames(sqlbatch.Names{Queue: name}); err != nil {
		return nil, fmt.Errorf("chanq: %s: %w", op, err) // which has the name
	}
	refuse := func(err error) (*queue, error) { return nil, fmt.Errorf("chanq: %s %s: %w", op, name, err) }
	if db == nil {
		return refuse(errors.New("db is nil"))
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return refuse(err)
	}
	d := cfg.Dialect
	if isNil(d) {
		if d, err = findDialect(db); err != nil {
			return refuse(err)
		}
	}
	names := sqlbatch.Names{Schema: cfg.Schema, Queue: name}
	if err := sqlbatch.CheckNames(names); err != nil {
		return refuse(err)
	}
	q := &queue{
		db: db, name: name, cfg: cfg, dialect: d,
		sql: d.Queue(names), key: bellKey{db, schemaOf(d, cfg.Schema), name},
	}
	q.lone = &health{queue: q, part: "consumer"}
	return q, nil
}

func (q *queue) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	class := classify(q.dialect, err)
	if class == sqlbatch.NoSchema {
		err = fmt.Errorf("%w; run chanq.Migrate, or the command: chanq migrate %s (%w)", ErrNoSchema, q.name, err)
	}
	return &OpError{Op: op, Queue: q.name, Unknown: class == sqlbatch.Unknown, Err: err}
}

// once runs one statement on a session of its own: for calls outside of a
// producer or consumer.
func (q *queue) once(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	s := openOnce(q.db, q.dialect)
	defer s.close()
	return s.run(ctx, st, scan)
}

// version is 0 for a queue without tables.
func (q *queue) version(ctx context.Context) (version int, paused bool, err error) {
	err = q.once(ctx, q.sql.Version(), func(rows *sql.Rows) error { return rows.Scan(&version, &paused) })
	if err != nil && classify(q.dialect, err) == sqlbatch.NoSchema {
		return 0, false, nil
	}
	return version, paused, err
}

// Name returns the queue's name.
func (q *Queue[T]) Name() string { return q.core.name }

// Wake makes consumers of this queue in this process look for messages at
// once: call it after committing a transaction that used SendTx. It costs no
// round trip; consumers in other processes find the messages when they poll, after
// ConsumerConfig.PollMax (1 s) at the latest.
func (q *Queue[T]) Wake() { q.core.key.ring() }

// Stats is a picture of a queue.
type Stats struct {
	// Counts of messages by state. Each stops at Limit, so that looking at a deep
	// queue costs no more than looking at a short one.
	Ready, Scheduled, Leased, Dead, Done int
	Limit                                int
	// OldestReady is for how long the oldest ready message has been due.
	OldestReady time.Duration
	Paused      bool
}

const statsLimit = 10_000

// Stats counts the messages of the queue, up to 10,000 of each state, in one
// round trip. It takes no locks that others wait for; it is for operators, not
// for deciding whether to claim.
func (q *Queue[T]) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Limit: statsLimit}
	err := q.core.once(ctx, q.core.sql.Stats(statsLimit), func(rows *sql.Rows) error {
		var oldest sql.NullInt64
		var paused sql.NullBool
		err := rows.Scan(&s.Ready, &s.Scheduled, &s.Leased, &s.Dead, &s.Done, &oldest, &paused)
		s.OldestReady = time.Duration(oldest.Int64) * time.Millisecond
		s.Paused = paused.Bool
		return err
	})
	return s, q.core.fail("stats", err)
}

// State is where a stored message is in its life.
type State = sqlbatch.State

// The states.
const (
	Ready     = sqlbatch.Ready     // due, claimable
	Scheduled = sqlbatch.Scheduled // not due yet
	Leased    = sqlbatch.Leased    // claimed, lease running
	Dead      = sqlbatch.Dead      // set aside
	Done      = sqlbatch.Done      // kept after ack, with Config.Retain
)

// Entry is a stored message as an operator sees it. Its body is not decoded.
type Entry struct {
	ID       ID
	State    State
	Priority Priority
	// Attempts counts claims that were not released. For a message whose handlers
	// died it is one more than were delivered: the claim that found it out.
	Attempts   int
	Fence      int64 // of the last claim, or greater
	EnqueuedAt time.Time
	// At is when the message was or will be due; the end of its lease if leased;
	// when it ended if dead or done.
	At        time.Time
	ExpiresAt time.Time // zero if it never does
	// Member that holds the lease, and its name, as long as it is known. See
	// Queue.Members.
	Member    ID
	LeasedBy  string
	DedupKey  string
	LastError string
	Headers   map[string]string
	Body      []byte
}

func (q *queue) entries(ctx context.Context, op string, st sqlbatch.Statement) ([]Entry, error) {
	var list []Entry
	err := q.once(ctx, st, func(rows *sql.Rows) error {
		var e Entry
		var id, headers, key []byte
		var enqueued, at int64
		var member []byte
		var expires sql.NullInt64
		var holder, lastError sql.NullString
		err := rows.Scan(&e.State, &id, &e.Priority, &e.Fence, &e.Attempts, &enqueued, &at, &expires, &member, &holder, &key, &lastError, &headers, &e.Body)
		if err != nil {
			return err
		}
		copy(e.ID[:], id)
		e.EnqueuedAt, e.At = time.UnixMilli(enqueued), time.UnixMilli(at)
		if expires.Valid {
			e.ExpiresAt = time.UnixMilli(expires.Int64)
		}
		copy(e.Member[:], member)
		e.LeasedBy, e.DedupKey, e.LastError = holder.String, string(key), lastError.String
		e.Headers, _ = decodeHeaders(headers) // unreadable ones are why a message may be dead
		list = append(list, e)
		return nil
	})
	return list, q.fail(op, err)
}

const maxPeek = 1000

// Peek returns up to n (at most 1000) messages of a state without claiming
// them: live ones in the order of claims, dead and done ones latest first. One
// round trip.
func (q *Queue[T]) Peek(ctx context.Context, s State, n int) ([]Entry, error) {
	if err := checkState(s); err != nil {
		return nil, fmt.Errorf("chanq: peek %s: %w", q.core.name, err)
	}
	if n < 1 || n > maxPeek {
		return nil, fmt.Errorf("chanq: peek %s: n is %d: must be from 1 to %d", q.core.name, n, maxPeek)
	}
	return q.core.entries(ctx, "peek", q.core.sql.Peek(s, n))
}

func checkState(s State) error {
	switch s {
	case Ready, Scheduled, Leased, Dead, Done:
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
		if e.State == found.State && e.At.After(found.At) {
			found = e
		}
	}
	return found, nil
}

// Cancel deletes messages that are ready, scheduled or leased and returns the
// IDs of those it found. The holder of a leased one learns of it by
// ErrLeaseLost. One round trip per 400 messages on SQL Server, per 1000 elsewhere.
func (q *Queue[T]) Cancel(ctx context.Context, ids ...ID) ([]ID, error) {
	return q.core.byID(ctx, "cancel", ids, q.core.sql.Cancel)
}

// byID runs a statement on chunks of ids and returns the ids that it returns.
func (q *queue) byID(ctx context.Context, op string, ids []ID, build func([][16]byte) sqlbatch.Statement) ([]ID, error) {
	var found []ID
	for len(ids) > 0 {
		n := min(len(ids), q.dialect.Traits().FindIDs)
		chunk := make([][16]byte, n)
		for i := range chunk {
			chunk[i] = ids[i]
		}
		ids = ids[n:]
		if err := q.once(ctx, build(chunk), collectIDs(&found)); err != nil {
			return found, q.fail(op, err)
		}
	}
	return found, nil
}

func collectIDs(found *[]ID) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var raw sql.RawBytes
		err := rows.Scan(&raw)
		var id ID
		copy(id[:], raw)
		*found = append(*found, id)
		return err
	}
}

// operateRows is how many rows one statement of Purge and Redrive touches: few
// enough to hold its locks shortly.
const operateRows = 1000

// Purge deletes every message of a state and returns how many there were:
// leased ones too, if asked. It runs in statements of 1000 rows each; an error
// comes with the count so far. Messages that others have locked at the moment
// may be left.
func (q *Queue[T]) Purge(ctx context.Context, s State) (int, error) {
	if err := checkState(s); err != nil {
		return 0, fmt.Errorf("chanq: purge %s: %w", q.core.name, err)
	}
	return q.core.repeat(ctx, "purge", -1, func(n int) sqlbatch.Statement { return q.core.sql.Purge(s, n, sqlbatch.Window{}) })
}

// Redrive makes up to limit dead messages ready again (all, if limit is 0),
// oldest first, with no attempts counted, and returns how many. Messages whose
// DedupKey is in the queue again stay dead. It runs in statements of 1000 rows.
func (q *Queue[T]) Redrive(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, fmt.Errorf("chanq: redrive %s: limit is %d: must be 0 (all) or more", q.core.name, limit)
	}
	if limit == 0 {
		limit = -1
	}
	n, err := q.core.repeat(ctx, "redrive", limit, func(n int) sqlbatch.Statement { return q.core.sql.Redrive(n, nil, sqlbatch.Window{}) })
	if n > 0 {
		q.Wake()
	}
	return n, err
}

// RedriveIDs makes the dead messages with these IDs ready again, as Redrive
// does, and returns the IDs of those it moved.
func (q *Queue[T]) RedriveIDs(ctx context.Context, ids ...ID) ([]ID, error) {
	moved, err := q.core.byID(ctx, "redrive", ids, func(ids [][16]byte) sqlbatch.Statement { return q.core.sql.Redrive(0, ids, sqlbatch.Window{}) })
	if len(moved) > 0 {
		q.Wake()
	}
	return moved, err
}

// repeat runs a statement of up to operateRows rows until it finds none, or
// limit rows (-1: no limit) are done. One that finds fewer than it may is no
// sign of the end: a redrive leaves those whose keys are taken.
func (q *queue) repeat(ctx context.Context, op string, limit int, build func(n int) sqlbatch.Statement) (int, error) {
	total := 0
	for total != limit {
		n := operateRows
		if limit >= 0 {
			n = min(n, limit-total)
		}
		var found []ID
		if err := q.once(ctx, build(n), collectIDs(&found)); err != nil {
			return total, q.fail(op, err)
		}
		if len(found) == 0 {
			break
		}
		total += len(found)
	}
	return total, nil
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
