package claim

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Gate makes large claims on one queue, by consumers of one process on one *sql.DB, run
// one after another. Concurrent claims obstruct each other: each walks over the rows that
// the others have locked. On PostgreSQL a claim also locks rows that another claim has
// leased since it began; it does not get them, and they cannot be acked until it ends. A
// Gate is safe for concurrent use.
type Gate struct {
	rows *semaphore.Weighted // free ones, of sideBySide
}

const (
	// sideBySide is the total number of messages that concurrent claims may ask for.
	sideBySide = 256
	// gateMoment is how long a claim blocks others: longer than any claim takes in a
	// healthy database.
	gateMoment = 500 * time.Millisecond
)

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{semaphore.NewWeighted(sideBySide)} }

// enter waits for the turn of a claim for n messages. done ends the turn. enter fails
// when ctx ends.
func (g *Gate) enter(ctx context.Context, n int) (done func(), err error) {
	weight := int64(min(n, sideBySide))
	if err := g.rows.Acquire(ctx, weight); err != nil {
		return nil, context.Cause(ctx)
	}
	end := sync.OnceFunc(func() { g.rows.Release(weight) })
	hangs := time.AfterFunc(gateMoment, end)
	return func() { hangs.Stop(); end() }, nil
}
