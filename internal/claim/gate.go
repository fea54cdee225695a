package claim

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Gate has the claims on one queue by consumers of one process, on one *sql.DB, follow
// each other, except for small ones. Claims that run side by side are in each other's
// way: each walks over what the others have locked, and on PostgreSQL it locks rows that
// another one has leased since it began, of which it gets none, and which cannot be acked
// until it is over. It is safe for concurrent use.
type Gate struct {
	rows *semaphore.Weighted // free ones, of sideBySide
}

const (
	// sideBySide is for how many messages claims may ask that are under way at once.
	sideBySide = 256
	// gateMoment is for how long a claim keeps others waiting: longer than any does in a
	// healthy database.
	gateMoment = 500 * time.Millisecond
)

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{semaphore.NewWeighted(sideBySide)} }

// enter waits for the turn of a claim that asks for n messages. done ends it. It fails at
// the end of ctx.
func (g *Gate) enter(ctx context.Context, n int) (done func(), err error) {
	weight := int64(min(n, sideBySide))
	if err := g.rows.Acquire(ctx, weight); err != nil {
		return nil, context.Cause(ctx)
	}
	end := sync.OnceFunc(func() { g.rows.Release(weight) })
	hangs := time.AfterFunc(gateMoment, end)
	return func() { hangs.Stop(); end() }, nil
}
