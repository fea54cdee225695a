package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Config is what the claims of a consumer depend on, be its queue plain or ordered.
type Config struct {
	Prefetch, PrefetchBytes int
	MaxBody, MaxCrashes     int // of the queue
	LeaseFor, MaxExtend     time.Duration
	PollMin, PollMax        time.Duration
	StatementTimeout        time.Duration
	Traits                  sqlbatch.Traits
	Classify                func(error) sqlbatch.Class
	Health                  batch.Health

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
	// Delay returns when a message is due again after so many failed attempts.
	Delay(failures int) time.Duration
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

// SlabLeases is how many leases share an allocation at most. A reader may keep one of them for long.
const SlabLeases = 32

// leases makes leases of messages, in their order.
func (c *Config) leases(rows []table.Claimed, deadline, until time.Duration) []*lease.Lease {
	c.Consumer.Claimed(rows)
	leases := make([]*lease.Lease, len(rows))
	var slab []lease.Lease
	for i := range rows {
		if len(slab) == 0 {
			slab = make([]lease.Lease, min(SlabLeases, len(rows)-i))
		}
		row, l := &rows[i], &slab[0]
		leases[i], slab = l, slab[1:]
		l.Home, l.Item, l.Due, l.Priority, l.Attempt, l.Lapses = c.Home, row.Item, row.Due, row.Priority, row.Attempts, row.Lapses
		if size := max(row.Size, len(row.Body)); size >= lease.HeavyBody {
			l.Heavy = size
		}
		l.Begin(deadline, until)
	}
	return leases
}

// blame makes a failed attempt of a settling lease whose message cannot be read.
func (c *Config) blame(l *lease.Lease, cause error) {
	if late, ok := cause.(*table.LateError); ok {
		l.Text = "chanq: could not be read within " + late.Within.String()
	} else {
		l.Text, l.Quiet = base.ReasonRead+cause.Error(), true
	}
	l.Op, l.Delay = lease.Nack, c.Consumer.Delay(l.Failures())
}

// crashed says why a message is dead.
func crashed(row *table.Claimed, crashes int) string {
	return fmt.Sprintf("chanq: %d attempts, and %d leases that ran out without a settle: %d while its consumer handled no other suspect, the last one while it handled no other message. Its handlers die, hang, or lose their leases",
		row.Attempts-1, row.Lapses, crashes)
}
