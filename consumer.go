package chanq

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/chanq/chanq/internal/consume"
)

// The public consumer. Its engine is package internal/consume; consumer_engine.go connects the two.

// Consumer claims messages ahead of its readers and delivers them on a channel. It is safe for concurrent use: any number of goroutines
// may read it at once, by its channel, All, Receive and Handle, and each lease goes to one of them. To end it, call Stop or cancel
// Consume's context, and then call Shutdown.
//
// While busy it uses up to five of the sessions that all queues on its *sql.DB share, three in normal operation: one claims, two
// settle and two extend leases. Each Pipe that reads it uses one more. While idle it holds none.
type Consumer[T any] struct {
	core *consumer
	feed *consume.Feed[*Lease[T]]
}

// ConsumerStats has counts since Consume, and the current state, of this consumer only: see chanqadmin.Queue.Stats.
type ConsumerStats struct {
	// Claims.
	Claimed     int64 // messages
	Claims      int64 // statements that found messages
	EmptyClaims int64 // statements that found none
	Looks       int64 // reads by which an idle consumer learns when a claim might find messages

	// Settles that are in the database. An AckTx in a transaction of InTx counts after its commit. In another transaction it counts
	// when the consumer has found that the message is gone, about 1 s after the commit.
	Acked, Nacked, Released, Dead int64
	Lost                          int64 // settles that came after the lease had ended

	// Now.
	Buffered int // leases that wait for a reader
	// For an ordered queue. Waiting counts messages that were read and cannot be delivered yet, mostly because an earlier message of
	// their key has not ended. Slots are those that the consumer owns. BlockedKeys counts keys whose first message cannot be
	// delivered: a handler processes it, it is due later, or a dead message holds it. At 10,000 blocked keys the consumer reads no
	// further messages until some of the keys open.
	Waiting, Slots, BlockedKeys int
	Held                        int // leases that are buffered or delivered, and have not ended
	Settling                    int // settles that wait for their statement
	// Isolated counts the settles that fail while the database stores others. Each is repeated alone, with pauses of up to 5 s, and
	// delays no other settle. Settling includes them. See Hooks.Isolated.
	Isolated int
}

// Consume starts a consumer. The end of ctx does what Stop does, and nothing else; call Shutdown to wait for the last settles. The
// contexts of the leases have the values of ctx. Consume makes no database call: see Hooks.Availability for outages.
//
// If the *sql.DB has a connection limit (SetMaxOpenConns), a consumer reserves five of its connections, and all consumers on it
// together six (SQLite: one, shared by all queues). If that leaves none for the application, Consume returns an error that states a
// sufficient limit.
func (q *Queue[T]) Consume(ctx context.Context, cfg ConsumerConfig) (*Consumer[T], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, q.core.failed("consume", err)
	}
	c, err := newConsumer(q.core, cfg, context.WithoutCancel(ctx))
	if err != nil {
		return nil, q.core.failed("consume", err)
	}
	f := newFeed[T](c)
	unrecord, forget := q.core.recorder.Join(), context.AfterFunc(ctx, c.engine.Stop)
	c.engine.Start(f, func() { forget() }, unrecord)
	return &Consumer[T]{c, f}, nil
}

// C is the channel of leases. The consumer closes it once: after Stop, the end of Consume's context, a permanent error (see Err) or
// ConsumerConfig.StopWhenIdle. It releases the leases that are left in it, uncounted.
func (c *Consumer[T]) C() <-chan *Lease[T] { return c.feed.C() }

// All yields leases until the channel closes (see Err). Unlike C it skips leases that expired in the buffer. Leaving the loop, also
// by a panic, stops the consumer; the reader must still settle the current lease.
func (c *Consumer[T]) All() iter.Seq[*Lease[T]] {
	return func(yield func(*Lease[T]) bool) {
		defer c.Stop() // also after a break or a panic
		for l := range c.feed.C() {
			if !skip(l) && !yield(l) {
				return
			}
		}
	}
}

// Receive waits for a lease, and then at most wait for more, up to maxBatch leases in all. It returns at least one lease or an error.
// With a wait of 0 it takes only buffered leases. It skips leases that expired in the buffer. It costs no round trip. The caller owns
// the slice, and settles its leases one by one, or all together by Ack or AckTx.
//
// If ctx ends before the first lease arrives, Receive returns the cause of ctx. If the consumer has ended, it returns Err, or
// ErrClosed if Err is nil. If ctx ends during the wait for more, that wait ends. Unlike the loop over All, Receive stops nothing: it
// may be called again after the end of its ctx.
func (c *Consumer[T]) Receive(ctx context.Context, maxBatch int, wait time.Duration) ([]*Lease[T], error) {
	if err := checkBatch(maxBatch, wait); err != nil {
		return nil, c.core.queue.failed("receive", err)
	}
	var batch []*Lease[T]
	for len(batch) == 0 {
		if ctx.Err() != nil { // also if a lease is buffered
			return nil, c.core.queue.failed("receive", context.Cause(ctx))
		}
		select {
		case l, open := <-c.feed.C():
			if !open {
				return nil, cmp.Or(c.Err(), c.core.queue.failed("receive", ErrClosed))
			}
			if !skip(l) {
				batch = append(make([]*Lease[T], 0, min(maxBatch, c.feed.Buffered()+1)), l)
			}
		case <-ctx.Done():
		}
	}
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	for len(batch) < maxBatch {
		l := c.next(ctx, over)
		if l == nil {
			break
		}
		if !skip(l) {
			batch = append(batch, l)
		}
	}
	return batch, nil
}

// next returns a buffered lease, or the first that arrives before the end of ctx and over, or nil. If over is nil, it does not wait.
func (c *Consumer[T]) next(ctx context.Context, over <-chan time.Time) *Lease[T] {
	select {
	case l := <-c.feed.C(): // nil if the channel is closed
		return l
	default:
	}
	if over == nil {
		return nil
	}
	select {
	case l := <-c.feed.C():
		return l
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// Stop ends claiming and releases the leases that no reader has taken, uncounted. It returns immediately. Delivered leases may still
// be settled. Any goroutine may call it, also repeatedly.
func (c *Consumer[T]) Stop() { c.core.engine.Stop() }

// Shutdown stops the consumer, and waits until every delivered lease is settled or lost, every handler has returned and every settle
// is stored. It joins all goroutines. If ctx ends before that, the time to drain is over, as it is for Handle after
// ConsumerConfig.DrainFor:
//
//   - The contexts of leases end with the cause ErrStopped.
//   - One second later the consumer releases the leases that readers still hold, uncounted.
//   - Five seconds later it gives up the settles that are not stored: those messages are redelivered when their leases expire.
//     Shutdown returns, 6 s after the end of ctx at the latest.
//
// The error is Err if the consumer ended by a permanent error, as that of Handle is. Otherwise it wraps the cause of ctx, and counts the
// leases not settled, which were released, the settles not confirmed, and the handlers that have not returned.
//
// Any goroutine may call Shutdown again: the first ctx that ends counts, and a later call waits for handlers that had not returned.
// The *sql.DB is in use until they have. After Handle, HandleBatches or Pipe has returned, Shutdown has nothing left to do. On SQLite
// a goroutine that holds a transaction must not call it: see Queue.
func (c *Consumer[T]) Shutdown(ctx context.Context) error {
	_, err := c.core.end(ctx, "shutdown")
	return cmp.Or(c.Err(), err)
}

// Done is closed when the consumer begins to stop: by Stop, Shutdown, the end of Consume's context, ConsumerConfig.StopWhenIdle or a
// permanent error. By then Err returns that error. Delivered leases may still be settled. Handlers get the same channel from
// Delivery.Stopping.
func (c *Consumer[T]) Done() <-chan struct{} { return c.core.engine.Stopped() }

// Err returns the permanent error that ended the consumer (a missing table, a missing permission, a panic of the driver), or nil.
// Outages do not end a consumer.
func (c *Consumer[T]) Err() error { return c.core.engine.Failure() }

// Flush waits until every settle that was handed over before is in the database or refused. If ctx ends first, Flush returns its
// error. Lease.Wait returns the outcome of one settle. Flush also waits for settles whose rows another session has locked; these
// delay no other settle. On SQLite a goroutine that holds a transaction must not call it: see Queue.
func (c *Consumer[T]) Flush(ctx context.Context) error {
	q := c.core.queue
	if err := q.outsideTx(ctx, afterCommit); err != nil {
		return q.failed("flush", err)
	}
	return q.failed("flush", c.core.engine.Flush(ctx))
}

// Stats returns counts. It makes no database call.
func (c *Consumer[T]) Stats() ConsumerStats {
	s := c.core.engine.Stats()
	return ConsumerStats{
		Looks: s.Looks, Claims: s.Claims, Claimed: s.Claimed, EmptyClaims: s.Empty,
		Acked: int64(s.Acked), Nacked: int64(s.Nacked), Released: int64(s.Released), Dead: int64(s.Dead), Lost: int64(s.Lost),
		Buffered: s.Buffered, Waiting: s.Unread, Slots: s.Slots, BlockedKeys: s.BlockedKeys,
		Held: s.Held, Settling: s.Settling, Isolated: s.Isolated,
	}
}
