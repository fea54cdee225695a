package claim

import (
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// Holder has the functions of the consumer that holds the claimed leases. They do not wait for claims.
type Holder struct {
	// Track registers new leases for extension. From then on each lease might end.
	Track func([]*lease.Lease)
	// Lose records that a lease has ended in the database.
	Lose func(*lease.Lease, lease.State)
	// Settle takes leases in state Settling.
	Settle func(...*lease.Lease)
	// Backlogged reports that too many settles are waiting to add more.
	Backlogged func() bool
	// Held returns how many leases have not ended, and how many handlers have not returned.
	Held func() (leases, handlers int)
	// Delay returns the delay until a message that could not be read, because of err, is due again. Its row has no
	// contents.
	Delay func(l *lease.Lease, row *table.Claimed, err error) time.Duration
	// Doomed is called before a message is dead-lettered without a delivery.
	Doomed func(l *lease.Lease, row *table.Claimed)
	// Claimed is called after messages were leased.
	Claimed func(rows []table.Claimed)
	// Delivered is called when claimed messages are on their way to readers.
	Delivered func(messages, bytes int, took time.Duration)
	// Broken ends the consumer with a permanent failure.
	Broken func(error)
	// PassOn wakes another consumer in place of this one.
	PassOn func()
	// Freed wakes the consumers that may take slots.
	Freed func()
}

// Feed has the claimed leases that no reader has taken: consume.Feed.
type Feed interface {
	Coming() int   // on their way to the channel
	Buffered() int // in the channel
	Sent() int64   // on the channel so far
}
