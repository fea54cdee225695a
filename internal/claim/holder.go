package claim

import (
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// Holder has the functions of the consumer that holds the leases of the claims. They do not wait for claims.
type Holder struct {
	// Track has new leases extended, from which time on each may end.
	Track func([]*lease.Lease)
	// Lose notes that a lease has ended in the database.
	Lose func(*lease.Lease, lease.State)
	// Settle takes leases in state Settling.
	Settle func(...*lease.Lease)
	// Backlogged reports that more settles wait than are to be added to.
	Backlogged func() bool
	// Held returns how many leases have not ended, and how many handlers have not returned.
	Held func() (leases, handlers int)
	// Delay returns the delay until a message is due again that could not be read, because of err. Its row has no contents.
	Delay func(l *lease.Lease, row *table.Claimed, err error) time.Duration
	// Doomed is called before a message is dead-lettered that no reader has seen.
	Doomed func(l *lease.Lease, row *table.Claimed)
	// Claimed is called after messages were leased.
	Claimed func(rows []table.Claimed)
	// Delivered is called when they are on their way to readers.
	Delivered func(messages, bytes int, took time.Duration)
	// Broken ends the consumer by a permanent failure.
	Broken func(error)
	// PassOn wakes another consumer in place of this one.
	PassOn func()
	// Freed wakes the consumers that may take slots.
	Freed func()
}

// Idleness ends a consumer with StopWhenIdle when all consumers of its group are idle at once.
type Idleness interface {
	// Begin is called before a look. quiet is false if the look cannot end the consumers, since something is held.
	Begin() (now uint64, quiet bool)
	// Idle notes that the look found nothing, or with 0 instead of now that something is due, or that the database does not answer. It
	// reports that all consumers have stopped.
	Idle(now uint64) (stopped bool)
}

// Feed has the leases that were claimed and that no reader has taken: consume.Feed.
type Feed interface {
	Coming() int   // to the channel
	Buffered() int // on the channel
	Sent() int64   // to the channel so far
}
