package claim

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Limits are settings of a consumer and of its queue: see chanq.Config and chanq.ConsumerConfig.
type Limits struct {
	Prefetch, PrefetchBytes int
	LeaseFor, MaxExtend     time.Duration
	PollMin, PollEvery      time.Duration
	StatementTimeout        time.Duration
	MaxCrashes              int
	Slots                   int                    // of an ordered queue
	Policy                  func() sqlbatch.Policy // of the queue, as it is now
}

// Config is what the claims of a consumer depend on, be its queue plain or ordered.
type Config struct {
	Limits
	Traits   sqlbatch.Traits
	Classify func(error) sqlbatch.Class
	Health   batch.Health

	Stop         context.Context // ends when the consumer stops
	Abandoned    context.Context // ends when it gives up what is not in the database yet
	Home         *lease.Home
	Consumer     Consumer
	Idleness     Idleness // nil without StopWhenIdle
	Trials       order.Process
	Subscription *notify.Subscription
	Woken        <-chan struct{} // has a value after this process has sent or given back messages
	Cleared      <-chan struct{} // has a value after a suspect has ended, or the last lease with StopWhenIdle
}

// Consumer has claims. Its methods do not wait for claims.
type Consumer interface {
	// Connect takes the connections before there are leases, where there are few.
	Connect()
	// Heard returns the places where this process has given messages back since the last call, and whether there may be messages
	// anywhere.
	Heard() (places sqlbatch.Heads, hurried bool)
	// Track has new leases extended, from which time on each may end.
	Track([]*lease.Lease)
	// Lose notes that a lease has ended in the database.
	Lose(*lease.Lease, lease.State)
	// Settle takes leases in state Settling.
	Settle(...*lease.Lease)
	// Backlogged reports that more settles wait than are to be added to.
	Backlogged() bool
	// Held returns how many leases have not ended, and how many handlers have not returned.
	Held() (leases, handlers int)
	// Delay returns the delay until a message is due again that could not be read, because of err. Its row has no contents.
	Delay(l *lease.Lease, row *table.Claimed, err error) time.Duration
	// Doomed is called before a message is dead-lettered that no reader has seen.
	Doomed(l *lease.Lease, row *table.Claimed)
	// Claimed is called after messages were leased.
	Claimed(rows []table.Claimed)
	// Delivered is called when they are on their way to readers.
	Delivered(messages, bytes int, took time.Duration)
	// Broken ends the consumer by a permanent failure.
	Broken(error)
	// PassOn wakes another consumer in place of this one.
	PassOn()
	// Freed wakes the consumers that may take slots.
	Freed()
}

// Idleness ends a consumer with StopWhenIdle when all consumers of its group are idle at once.
type Idleness interface {
	// Begin is called before a look. quiet is false if the look cannot end the consumers, since something is held.
	Begin() (now uint64, quiet bool)
	// IsIdle notes that the look found nothing, and reports that all consumers have stopped.
	IsIdle(now uint64) (stopped bool)
	// NotIdle notes that something is due, or that the database does not answer.
	NotIdle()
}

// Feed has the leases that were claimed and that no reader has taken: consume.Feed.
type Feed interface {
	Coming() int   // to the channel
	Buffered() int // on the channel
	Sent() int64   // to the channel so far
}

// patience is for how long a claim may take: what comes later than the end of its leases is of no use.
func (c *Config) patience() time.Duration { return min(c.StatementTimeout, c.LeaseFor) }

// keys is the number of keys of a slot that may be at work at once; 0 is no limit. The parts of all slots are Policy.MaxKeys
// together.
func (c *Config) keys(slot int) int {
	most := c.Policy().MaxKeys
	n := most / c.Slots
	if slot < most%c.Slots {
		n++
	}
	return n
}

// loop returns the pauses of one goroutine.
func (c *Config) loop() batch.Loop { return batch.Loop{Health: c.Health, Classify: c.Classify} }

// inline is the size of the largest body that a claim of n messages returns.
func (c *Config) inline(n int) int {
	return min(max(c.PrefetchBytes/max(1, n), inlineLeast), inlineMost)
}

const (
	// inlineLeast and inlineMost bound the size of bodies that a claim returns. Larger ones are read one by one.
	inlineLeast = 256 << 10
	inlineMost  = lease.HeavyBody
)
