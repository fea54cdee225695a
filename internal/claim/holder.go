package claim

import (
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// Holder is the consumer that holds the claimed leases. Its methods do not wait for claims.
type Holder interface {
	// Track registers new leases for extension. From then on each lease might end.
	Track([]*lease.Lease)
	// Lose records that a lease has ended in the database.
	Lose(*lease.Lease, lease.State)
	// SettleAll takes leases in state Settling.
	SettleAll(...*lease.Lease)
	// Backlogged reports that too many settles are waiting to add more.
	Backlogged() bool
	// Held returns how many leases have not ended, and how many handlers have not returned.
	Held() (leases, handlers int)
	// Delay returns the delay until a message that could not be read, because of err, is due again. Its row has no
	// contents.
	Delay(l *lease.Lease, row *table.Claimed, err error) time.Duration
	// Describe is called before a message is dead-lettered without a delivery.
	Describe(l *lease.Lease, row *table.Claimed)
	// Claimed is called after messages were leased.
	Claimed(rows []table.Claimed)
	// Delivered is called when claimed messages are on their way to readers.
	Delivered(messages, bytes int, took time.Duration)
	// Broken ends the consumer with a permanent failure of op.
	Broken(op string, err error)
	// PassOn wakes another consumer in place of this one.
	PassOn()
	// Freed wakes the consumers that may take slots.
	Freed()
}

// Feed has the claimed leases that no reader has taken: consume.Feed.
type Feed interface {
	Coming() int   // on their way to the channel
	Buffered() int // in the channel
	Sent() int64   // put on the channel, or left out, so far; minus those that were taken back
}
