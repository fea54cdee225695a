package claim

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// sideBySide is the total number of messages that concurrent claims may ask for.
	sideBySide = 256
	// gateMoment is how long a claim blocks others: longer than any claim takes in a
	// healthy database.
	gateMoment = 500 * time.Millisecond
)

// newGate returns a gate with room for sideBySide messages.
func newGate() *semaphore.Weighted { return semaphore.NewWeighted(sideBySide) }

// enter waits for the turn of a claim for n messages. done ends the turn. enter fails when ctx ends.
//
// Large claims on one queue, by consumers of one process on one *sql.DB, run one after another. Concurrent claims
// obstruct each other: each walks over the rows that the others have locked. On PostgreSQL a claim also locks rows that
// another claim has leased since it began; it does not get them, and they cannot be acked until it ends.
func enter(ctx context.Context, gate *semaphore.Weighted, n int) (done func(), err error) {
	weight := int64(min(n, sideBySide))
	if err := gate.Acquire(ctx, weight); err != nil {
		return nil, context.Cause(ctx)
	}
	end := sync.OnceFunc(func() { gate.Release(weight) })
	hangs := time.AfterFunc(gateMoment, end)
	return func() { hangs.Stop(); end() }, nil
}
