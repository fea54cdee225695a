package table

import (
	"context"
	"database/sql"
	"slices"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Insert has the statements of sends and cancellations: on a session, or in a transaction.
type Insert struct {
	*Queue
	Build sqlbatch.Queue // builds the statements: those in a transaction are different
	Run   func(ctx context.Context, st sqlbatch.Statement, scan session.Scan) error
}

// Insert returns the statements of sends, each in its own transaction.
func (t Table) Insert() Insert { return Insert{t.Queue, t.SQL, t.Part.Run} }

// InTx returns the statements of sends in a transaction.
func (q *Queue) InTx(tx session.Tx) Insert {
	return Insert{q, q.SQL.InTx(), func(ctx context.Context, st sqlbatch.Statement, scan session.Scan) error {
		return session.RunTx(ctx, tx, st, scan)
	}}
}

// Enqueue stores new rows.
func (i Insert) Enqueue(ctx context.Context, rows []sqlbatch.Row) error {
	return i.Run(ctx, i.Build.Enqueue(rows), nil)
}

// EnqueueNew stores the rows whose ID and dedup key are not in the queue yet, and returns them, without their keys. If
// OnDuplicate of a row is not KeepFirst, it also returns the messages with such keys that it has kept or replaced, and
// all with their keys: see sqlbatch.Queue.EnqueueOver.
func (i Insert) EnqueueNew(ctx context.Context, rows []sqlbatch.Row) (stored []Live, err error) {
	var raw, key sql.RawBytes
	st, columns := i.Build.EnqueueNew, []any{&raw}
	if slices.ContainsFunc(rows, func(r sqlbatch.Row) bool { return r.OnDuplicate != sqlbatch.KeepFirst }) {
		st, columns = i.Build.EnqueueOver, append(columns, &key)
	}
	err = i.Run(ctx, st(rows), func(rows *sql.Rows) error {
		err := rows.Scan(columns...)
		stored = append(stored, Live{ID: id(raw), Key: string(key)})
		return err
	})
	return stored, err
}

// Live is a message that is in the queue.
type Live struct {
	ID    [16]byte
	Key   string // for deduplication
	Fence int64
}

// Find returns the messages that are in the queue, by ID or dedup key.
func (i Insert) Find(ctx context.Context, ids [][16]byte, keys []string) (found []Live, err error) {
	err = i.Run(ctx, i.Build.Find(ids, keys), func(rows *sql.Rows) error {
		var raw, key []byte
		var l Live
		err := rows.Scan(&raw, &key, &l.Fence)
		l.ID, l.Key = id(raw), string(key)
		found = append(found, l)
		return err
	})
	return found, err
}

// Begun is a transaction that stores one batch of rows.
type Begun struct {
	q  *Queue
	tx *sql.Tx
}

// InOwnTx runs f in its own transaction, which is committed if f returns nil.
func (t Table) InOwnTx(ctx context.Context, f func(Begun) error) error {
	return t.Part.InTx(ctx, func(tx *sql.Tx) error { return f(Begun{t.Queue, tx}) })
}

// Draw draws the number that gives the rows of an ordered queue their place, unless the INSERT does it. It reports
// whether it did.
func (b Begun) Draw(ctx context.Context) (drawn bool, err error) {
	begun := b.q.SQL.Begun()
	if !b.q.Ordered || begun.Text == "" {
		return false, nil
	}
	return true, session.RunTx(ctx, b.tx, begun, nil)
}

// Placed reports that the start time of the transaction is the place of the rows.
func (b Begun) Placed() bool { return b.q.Dialect.Traits().PlacesBegun && !b.q.Ordered }

// Enqueue stores the rows.
func (b Begun) Enqueue(ctx context.Context, st sqlbatch.Statement) error {
	return session.RunTx(ctx, b.tx, st, nil)
}

func id(raw []byte) (id [16]byte) {
	copy(id[:], raw)
	return id
}

// Pack makes the statement that Begun.Enqueue runs.
func (q *Queue) Pack(rows []sqlbatch.Row) sqlbatch.Statement {
	return q.SQL.InOwnTx().EnqueueBegun(rows)
}
