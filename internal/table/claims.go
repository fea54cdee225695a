package table

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Claims runs the statements of one consumer's claims, one after another.
type Claims struct {
	Part    *session.Part
	Context context.Context // outlives the end of the consumer's claims, so that the leased messages are known

	// busy means that the last claim returned messages. A busy consumer has its own session; idle consumers share one.
	busy bool
}

// run runs a statement. Its error is a *LateError if the answer did not arrive within the given time.
func (c *Claims) run(within time.Duration, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(c.Context, within)
	defer cancel()
	run := c.Part.RunPatient
	if c.busy {
		run = c.Part.RunTimed
	}
	_, err := run(ctx, st, scan)
	if err != nil && !DidNotRun(err) && ctx.Err() != nil && c.Context.Err() == nil {
		return &LateError{err, within}
	}
	return err
}

// LateError is the error of a statement whose answer did not arrive in time.
type LateError struct {
	Err    error
	Within time.Duration
}

func (e *LateError) Error() string { return e.Err.Error() }
func (e *LateError) Unwrap() error { return e.Err }

// IsLate reports that the answer of a statement did not arrive in time.
func IsLate(err error) bool {
	var late *LateError
	return errors.As(err, &late)
}

// NewSalt returns a number that distinguishes the fences of two claims: see sqlbatch.FenceBits.
func NewSalt() int64 { return 1 + rand.Int64N(1<<sqlbatch.FenceBits) }

// Claimed is a message that a consumer has leased.
type Claimed struct {
	Row
	Item    sqlbatch.Item
	Expired bool
	Size    int  // of the body, which might be left out
	LeftOut bool // Key, Type, Headers and Body are to be read
}

// ClaimedRows collects the rows of a claim. They must not be used before the statement has succeeded.
type ClaimedRows struct {
	Rows   []Claimed
	Bytes  int // of bodies
	Inline int // larger bodies are left out; all if it is negative
	arena  Arena

	columns                           []any
	id, key, kind, headers, body      sql.RawBytes
	priority, fence, attempts, lapses int64
	expired, enqueued, due, size      int64
	expires                           sql.NullInt64
}

func (r *ClaimedRows) scan(rows *sql.Rows) error {
	if r.columns == nil {
		r.columns = []any{&r.id, &r.priority, &r.fence, &r.attempts, &r.lapses, &r.expired, &r.enqueued, &r.due,
			&r.expires, &r.key, &r.kind, &r.headers, &r.body, &r.size}
	}
	if err := rows.Scan(r.columns...); err != nil {
		return err
	}
	row := Claimed{
		Row: Row{
			Priority: int8(r.priority), Attempts: int(r.attempts), Lapses: int(r.lapses), Enqueued: r.enqueued,
			Due: r.due, Expires: r.expires,
			Key: r.arena.Keep(r.key), Type: r.arena.Keep(r.kind), Headers: r.arena.Keep(r.headers),
			Body: r.arena.Keep(r.body),
		},
		Item: sqlbatch.Item{Fence: r.fence}, Expired: r.expired != 0, Size: int(r.size), LeftOut: r.Inline < 0 ||
			int(r.size) > r.Inline,
	}
	copy(row.Item.ID[:], r.id)
	r.Bytes += row.Size
	r.Rows = append(r.Rows, row)
	return nil
}

// Sort sorts the rows. Adjacent rows then have adjacent bytes, so that a few rows keep few chunks in memory.
func (r *ClaimedRows) Sort(compare func(a, b Claimed) int) {
	if slices.IsSortedFunc(r.Rows, compare) {
		return
	}
	slices.SortFunc(r.Rows, compare)
	r.arena = nil
	for i := range r.Rows {
		row := &r.Rows[i]
		for _, b := range []*[]byte{&row.Key, &row.Type, &row.Headers, &row.Body} {
			if len(*b) <= Alone {
				*b = r.arena.Keep(*b)
			}
		}
	}
}
