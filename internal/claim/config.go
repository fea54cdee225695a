package claim

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Limits are settings of a consumer and of its queue: see chanq.Config and chanq.ConsumerConfig.
type Limits struct {
	Prefetch, PrefetchBytes int
	LeaseFor, MaxExtend     time.Duration
	PollEvery               time.Duration
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
	Holder       Holder
	Idleness     Idleness // nil without StopWhenIdle
	Trials       order.Process
	Subscription *notify.Subscription
	Waiter       *notify.Waiter  // is woken after this process has sent or given back messages
	Cleared      <-chan struct{} // has a value after a suspect has ended, or the last lease with StopWhenIdle
	SpareTime    time.Duration   // of a statement that no message waits for
}

// quiet reports that a last trial may begin when no other lease has been held for that long: no handler runs, or one hangs that has
// lost its lease.
func (c *Config) quiet(unheld time.Duration) bool {
	_, handlers := c.Holder.Held()
	return handlers == 0 || unheld > c.LeaseFor
}

// patience is for how long a claim may take: what comes later than the end of its leases is of no use.
func (c *Config) patience() time.Duration { return min(c.StatementTimeout, c.LeaseFor) }

// claimTime is for how long a claim may take. Of a database with one writer it keeps extensions waiting meanwhile, and is bounded as
// all statements there are, except where leases are so short that a healthy database may need most of their time.
func (c *Config) claimTime() time.Duration {
	return min(c.patience(), max(c.SpareTime, time.Second))
}

// readTime is for how long a read of contents may take: claims wait for it. What is slower than this is a failed attempt.
func (c *Config) readTime(size int) time.Duration {
	return min(c.StatementTimeout, max(c.SpareTime, time.Second), readLeast+time.Duration(size)*time.Second/readRate)
}

// lookTimeout is that of a look for the row of a lease.
func (c *Config) lookTimeout() time.Duration { return min(c.SpareTime, c.LeaseFor) }

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

// loop returns the pauses of one goroutine between tries, and idle those between looks that find nothing.
func (c *Config) loop() batch.Loop { return batch.Loop{Health: c.Health, Classify: c.Classify} }
func (c *Config) idle() batch.Backoff {
	return batch.Backoff{Low: min(firstPause, c.PollEvery), High: c.PollEvery}
}

// inline is the size of the largest body that a claim of n messages returns.
func (c *Config) inline(n int) int {
	return min(max(c.PrefetchBytes/max(1, n), inlineLeast), inlineMost)
}

const (
	// firstPause is the pause between looks at a queue that has become empty, and after a claim of few messages.
	firstPause = 10 * time.Millisecond
	// inlineLeast and inlineMost bound the size of bodies that a claim returns. Larger ones are read one by one.
	inlineLeast = 256 << 10
	inlineMost  = lease.HeavyBody
	// readLeast is for how long the read of a body may take, and readRate how many bytes come in each second more.
	readLeast = 5 * time.Second
	readRate  = 1 << 20
)
