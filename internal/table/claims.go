package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Claims runs the statements of one consumer's claims, one after another.
type Claims struct {
	Table
	Context context.Context // outlives the end of the consumer's claims, so that the leased messages are known

	// busy means that the last claim returned messages. A busy consumer has its own session; idle consumers share one.
	busy bool
}

// ErrLate is in the error of a statement whose answer did not arrive in time.
var ErrLate = errors.New("no answer in time")

// run runs a statement. Its error has ErrLate if the answer did not arrive within the given time.
func (c *Claims) run(within time.Duration, st sqlbatch.Statement, scan session.Scan) error {
	ctx, cancel := context.WithTimeout(c.Context, within)
	defer cancel()
	run := c.Part.RunPatient
	if c.busy {
		run = c.Part.RunTimed
	}
	_, err := run(ctx, st, scan)
	if err != nil && !DidNotRun(err) && ctx.Err() != nil && c.Context.Err() == nil {
		return fmt.Errorf("%w: %w", ErrLate, err)
	}
	return err
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

// columns are the first columns of claims, reads and fetches. ordered.go and this file scan the same ones.
type columns struct {
	to                                []any // all columns
	id, key, kind, headers, body      sql.RawBytes
	priority, fence, attempts, lapses number
	expired, enqueued, due, size      number
	expires                           sql.NullInt64
	arena                             Arena
}

// number is a column of integers. To an int64 database/sql assigns by reflection, which takes several times as long.
type number int64

// Scan implements sql.Scanner.
func (n *number) Scan(value any) error {
	if v, ok := value.(int64); ok {
		*n = number(v)
		return nil
	}
	var other sql.NullInt64
	err := other.Scan(value)
	if *n = number(other.Int64); err == nil && !other.Valid {
		err = errors.New("NULL in place of an integer")
	}
	return err
}

// scan reads a row, whose further columns are more.
func (c *columns) scan(rows *sql.Rows, more ...any) error {
	if c.to == nil {
		c.to = append([]any{&c.id, &c.priority, &c.fence, &c.attempts, &c.lapses, &c.expired, &c.enqueued, &c.due,
			&c.expires, &c.key, &c.kind, &c.headers, &c.body, &c.size}, more...)
	}
	return rows.Scan(c.to...)
}

// row returns the row that was read last, without its contents.
func (c *columns) row() Row {
	return Row{Priority: int8(c.priority), Attempts: int(c.attempts), Lapses: int(c.lapses),
		Enqueued: int64(c.enqueued), Due: int64(c.due), Expires: c.expires}
}

// keep adds the contents.
func (c *columns) keep(row *Row) {
	row.Key, row.Type, row.Headers, row.Body = c.arena.Keep(c.key), c.arena.Keep(c.kind), c.arena.Keep(c.headers),
		c.arena.Keep(c.body)
}

// ClaimedRows collects the rows of a claim. They must not be used before the statement has succeeded.
type ClaimedRows struct {
	columns
	Rows   []Claimed
	Inline int // larger bodies are left out; all if it is negative
}

func (r *ClaimedRows) scan(rows *sql.Rows) error {
	if err := r.columns.scan(rows); err != nil {
		return err
	}
	row := Claimed{Row: r.row(), Item: sqlbatch.Item{Fence: int64(r.fence)}, Expired: r.expired != 0, Size: int(r.size),
		LeftOut: r.Inline < 0 || int(r.size) > r.Inline}
	r.keep(&row.Row)
	copy(row.Item.ID[:], r.id)
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
