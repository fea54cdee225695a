package claim

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Limits are settings of a consumer and of its queue: see chanq.Config and chanq.ConsumerConfig.
type Limits struct {
	lease.Times
	Prefetch, PrefetchBytes int
	PollEvery               time.Duration
	MaxCrashes              int
	Slots                   int // of an ordered queue
}

// Config has what the claims of a consumer depend on, for plain and ordered queues.
type Config struct {
	Limits
	Queue  *table.Queue
	Traits sqlbatch.Traits
	Health batch.Health

	Stop         context.Context // ends when the consumer stops
	Abandoned    context.Context // ends when the consumer drops what is not stored in the database yet
	Home         *lease.Home
	Holder       Holder
	Halt         context.CancelFunc // stops the consumer when it is idle; nil without StopWhenIdle
	Neighbours   *Neighbours
	Subscription *notify.Subscription
	Waiter       *notify.Waiter  // is woken after this process has sent or released messages
	Cleared      <-chan struct{} // with StopWhenIdle, has a value when no lease or handler is left
}

// holds reports whether a lease has not ended, or a handler has not returned.
func (c *Config) holds() bool {
	leases, handlers := c.Holder.Held()
	return leases+handlers > 0
}

// claimTime is the timeout of a claim. In a database with one writer a claim blocks extensions, so it has the limit of
// all statements there, unless leases are so short that a healthy database might need most of their time.
func (c *Config) claimTime() time.Duration {
	return min(c.UsefulTimeout(), max(c.SpareTimeout(), time.Second))
}

// readTime is the timeout of a read of contents, which claims wait for. A slower read is a failed attempt.
func (c *Config) readTime(size int) time.Duration {
	return min(c.StatementTimeout, max(c.SpareTimeout(), time.Second),
		readLeast+time.Duration(size)*time.Second/readRate)
}

// keys is the number of keys of a slot that may be active at the same time; 0 is no limit. The sum over all slots is
// Policy.MaxKeys.
func (c *Config) keys(slot int) int {
	most := c.Queue.Policy().MaxKeys
	n := most / c.Slots
	if slot < most%c.Slots {
		n++
	}
	return n
}

// loop returns the pauses of one goroutine between attempts, and idle the pauses between polls that find nothing.
func (c *Config) loop() batch.Loop { return batch.Loop{Health: c.Health, Classify: c.Queue.Classify} }
func (c *Config) idle() batch.Backoff {
	return batch.Backoff{Low: min(firstPause, c.PollEvery), High: c.PollEvery}
}

// inline is the size of the largest body that a claim of n messages returns.
func (c *Config) inline(n int) int {
	return min(max(c.PrefetchBytes/max(1, n), inlineLeast), inlineMost)
}

const (
	// firstPause is the pause between polls of a queue that has just become empty, and after a claim of few messages.
	firstPause = 10 * time.Millisecond
	// inlineLeast and inlineMost bound the size of bodies that a claim returns. Larger ones are read one by one.
	inlineLeast = 256 << 10
	inlineMost  = lease.HeavyBody
	// readLeast is the base of the timeout for reading a body. readRate adds a second for each so many bytes.
	readLeast = 5 * time.Second
	readRate  = 1 << 20
)
