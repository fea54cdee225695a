package table

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Queue is one queue in one database.
type Queue struct {
	Dialect sqlbatch.Dialect
	SQL     sqlbatch.Queue // builds the statements, with its names
	Ordered bool
	// Classify returns the class of an error: session.Classify, with errors that a user of the package adds.
	Classify func(error) sqlbatch.Class

	policy atomic.Pointer[sqlbatch.Policy]
}

// Policy returns the policy of the queue that was last read from the database. It costs no round trip.
func (q *Queue) Policy() sqlbatch.Policy {
	if p := q.policy.Load(); p != nil {
		return *p
	}
	return sqlbatch.DefaultPolicy
}

// IsLast reports that a message with this number of failed attempts is dead-lettered.
func (q *Queue) IsLast(failures int) bool {
	most := q.Policy().MaxAttempts
	return most > 0 && failures >= most
}

// SetPolicy stores the current policy in the database.
func (q *Queue) SetPolicy(p sqlbatch.Policy) { q.policy.Store(&p) }

// AckStatement returns a statement that deletes messages, or archives them.
func (q *Queue) AckStatement(sql sqlbatch.Queue, items []sqlbatch.Item) sqlbatch.Statement {
	if q.Policy().Retain > 0 {
		return sql.Archive(items)
	}
	return sql.Ack(items)
}

// IsPermanent reports a failure that no repetition fixes, and that every statement would get: a missing table or
// permission.
func IsPermanent(c sqlbatch.Class) bool {
	return c == sqlbatch.NoSchema || c == sqlbatch.Permanent
}

// Table is a queue on the sessions of one of its parts.
type Table struct {
	*Queue
	Part *session.Part
}

// CompareItems defines the order of the items of a statement: two statements that lock the same rows lock them in the
// same order.
func CompareItems(a, b sqlbatch.Item) int {
	return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Fence, b.Fence))
}

// Items runs a settle, and appends the items whose rows it has changed to into: see session.Part.
func (t Table) Items(ctx context.Context, st sqlbatch.Statement, into []sqlbatch.Item) (changed []sqlbatch.Item,
	left bool, err error) {
	return t.Part.Items(ctx, st, into)
}

// Build builds settles and extensions, which may leave out locked rows.
func (t Table) Build(skipLocked bool) sqlbatch.Queue {
	if skipLocked {
		return t.SQL.SkipLocked()
	}
	return t.SQL
}

// Replace acks, in one transaction, the items that are still held, calls store with them, and commits.
func (t Table) Replace(ctx context.Context, items []sqlbatch.Item, skipLocked bool,
	store func(tx *sql.Tx, held []sqlbatch.Item) error) error {
	acks := t.SQL.InOwnTx()
	if skipLocked {
		acks = acks.SkipLocked()
	}
	return t.Part.InTx(ctx, func(tx *sql.Tx) error {
		var held []sqlbatch.Item
		if err := session.RunTx(ctx, tx, t.AckStatement(acks, items), session.CollectItems(&held)); err != nil {
			return err
		}
		return store(tx, held)
	})
}

// Seen is the result of a look-up of rows.
type Seen struct {
	Fences map[[16]byte]int64
	Locked map[[16]byte]bool // could not be seen because they are locked, so they exist
}

// Of returns how the row of a message was found.
func (s Seen) Of(id [16]byte) (fence int64, live, locked bool) {
	fence, live = s.Fences[id]
	return fence, live, s.Locked[id]
}

// lookStatements is the maximum number of statements of a look-up that is halved because of rows that cannot be seen.
// The remaining rows are reported as locked, and looked up again later.
const lookStatements = 32

// Look looks up which rows exist. It waits for no lock. A statement takes up to timeout.
func (t Table) Look(ctx context.Context, timeout time.Duration, ids [][16]byte) (Seen, error) {
	seen := Seen{Fences: map[[16]byte]int64{}, Locked: map[[16]byte]bool{}}
	parts := slices.Collect(slices.Chunk(ids, t.Dialect.Traits().FindIDs))
	for statements := 1; len(parts) > 0; statements++ {
		part := parts[0]
		parts = parts[1:]
		within, cancel := context.WithTimeout(ctx, timeout)
		rows, _, err := t.Part.Items(within, t.SQL.Look(part), nil)
		cancel()
		switch {
		case err == nil:
			for _, row := range rows {
				seen.Fences[row.ID] = row.Fence
			}
		case t.Classify(err) != sqlbatch.RolledBack:
			return Seen{}, NotRun(err)
		case len(part) > 1 && statements < lookStatements:
			parts = append(parts, part[:len(part)/2], part[len(part)/2:])
		default:
			for _, id := range part {
				seen.Locked[id] = true
			}
		}
	}
	return seen, nil
}

// Unconnected reports a failure to get a connection.
func Unconnected(err error) bool { return session.Unconnected(err) }

// NotRun returns the error of a read, whose outcome cannot be unknown. The earlier statement was not applied to the
// rows that the read looks up.
func NotRun(err error) error {
	if DidNotRun(err) {
		return err
	}
	return &session.NotRunError{Err: err}
}

// DidNotRun reports a failure before the statement could have been applied.
func DidNotRun(err error) bool {
	_, notRun := err.(*session.NotRunError)
	return notRun
}
