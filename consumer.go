package chanq

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/chanq/chanq/internal/consume"
)

// A consumer as its user sees it. Its engine is in package internal/consume; consumer_engine.go connects the two.

// Consumer claims messages ahead of its readers and delivers them on a channel.
// It is safe for concurrent use: any number of goroutines may read it, by its
// channel, All, Receive and Handle at once, and each lease goes to one of them.
// End it by Stop, or the end of Consume's context, and Shutdown.
//
// At work it uses up to five sessions at once, of those that all queues on its *sql.DB
// share: one claims, two settle and two extend leases; in health three. Each Pipe that
// reads it uses one more. It holds none while idle: see internal/session.
type Consumer[T any] struct {
	core *consumer
	feed *consume.Feed[*Lease[T]]
}

// ConsumerStats are counts since Consume, and what is held now. Another process's
// consumers are not in it: see chanqadmin.Queue.Stats.
type ConsumerStats struct {
	// Claims.
	Claimed     int64 // messages
	Claims      int64 // statements that found some
	EmptyClaims int64 // statements that found none
	Looks       int64 // reads while idle, of when there may be something to claim

	// Settles that are in the database. An AckTx counts after the commit of InTx; for another transaction when the consumer has found
	// that the message is gone, about a second after the commit.
	Acked, Nacked, Released, Dead int64
	Lost                          int64 // settles that came after the lease had ended

	// Now.
	Buffered int // leases that wait for a reader
	// Of an ordered queue. Waiting counts messages that were read and cannot be delivered yet, mostly because an earlier message
	// of their key has not ended. Slots are those that the consumer owns. BlockedKeys counts keys whose first message cannot be
	// delivered: it is being handled, is due later, or is held by a dead message. At 10,000 blocked keys the consumer reads no
	// further messages until some of the keys open.
	Waiting, Slots, BlockedKeys int
	Held                        int // leases buffered or delivered, not ended
	Settling                    int // settles that wait for their statement
	// Isolated counts the settles that fail while the database stores others. Each is repeated by itself, with pauses
	// of up to 5 s, and delays no other. They are among those of Settling. See Hooks.Isolated.
	Isolated int
}

// Consume starts a consumer. The end of ctx does what Stop does, and nothing
// else; call Shutdown to wait for the last settles. The values of ctx are in the
// contexts of the leases. It asks the database nothing: one that does not answer is
// an outage (see Hooks.Availability). Where the *sql.DB has a limit (SetMaxOpenConns), a
// consumer keeps five of its connections, all consumers on it together six (SQLite: one,
// shared by all queues), and Consume is an error that says which limit would do if that
// leaves none for the application.
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
	unrecord, forget := q.core.record(), context.AfterFunc(ctx, c.engine.Stop)
	c.engine.Start(f, func() { forget() }, unrecord)
	return &Consumer[T]{c, f}, nil
}

// C is the channel of leases. The consumer closes it once, after Stop, the end
// of Consume's context, a permanent error (see Err) or the end of a consumer with
// ConsumerConfig.StopWhenIdle; what was in it is released uncounted.
func (c *Consumer[T]) C() <-chan *Lease[T] { return c.feed.C() }

// All yields leases until the channel closes (see Err). Leases that ran out in the
// buffer are skipped, which is what it does better than C. Leaving the loop, by a
// panic, too, stops the consumer; the lease at hand is still the reader's to settle.
func (c *Consumer[T]) All() iter.Seq[*Lease[T]] {
	return func(yield func(*Lease[T]) bool) {
		defer c.Stop() // however the loop is left; a channel that closed has stopped before
		for l := range c.feed.C() {
			if !skip(l) && !yield(l) {
				return
			}
		}
	}
}

// Receive waits for a lease, and then up to wait for more, up to most leases in all. It returns at least one,
// unless it returns an error. A wait of 0 takes what is in the buffer already. Leases that ran out in the buffer are
// skipped. It costs no round trip. The slice is the caller's; its leases are settled one by one, or all together by
// Ack or AckTx.
//
// Its errors: that of ctx, if it ends before a lease comes, and of a consumer that has
// ended Err, or else ErrClosed. Other than the loop of All it stops nothing:
// it may be called again after the end of its ctx. A ctx that ends during the wait for more ends that wait.
func (c *Consumer[T]) Receive(ctx context.Context, most int, wait time.Duration) ([]*Lease[T], error) {
	if err := checkBatch(most, wait); err != nil {
		return nil, fmt.Errorf("chanq: receive %s: %w", c.core.queue.label, err)
	}
	first, err := c.receive(ctx)
	if err != nil {
		return nil, err
	}
	batch := append(make([]*Lease[T], 0, min(most, c.feed.Buffered()+1)), first)
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	for len(batch) < most {
		var l *Lease[T]
		open := true
		select { // what is there comes before the end of a wait
		case l, open = <-c.feed.C():
		default:
			if wait == 0 {
				return batch, nil
			}
			select {
			case l, open = <-c.feed.C():
			case <-over:
				return batch, nil
			case <-ctx.Done():
				return batch, nil
			}
		}
		if !open {
			return batch, nil
		}
		if !skip(l) {
			batch = append(batch, l)
		}
	}
	return batch, nil
}

// receive waits for one lease.
func (c *Consumer[T]) receive(ctx context.Context) (*Lease[T], error) {
	for {
		if ctx.Err() != nil { // rather than what is there
			return nil, c.core.queue.failed("receive", context.Cause(ctx))
		}
		select {
		case l, open := <-c.feed.C():
			if !open {
				return nil, c.ending()
			}
			if !skip(l) {
				return l, nil
			}
		case <-ctx.Done():
		}
	}
}

// ending is why no lease will come any more.
func (c *Consumer[T]) ending() error {
	if err := c.Err(); err != nil {
		return err
	}
	return &OpError{Op: "receive", Queue: c.core.queue.label, Err: ErrClosed}
}

// Stop ends claiming and gives back what no reader has taken, uncounted. It
// returns at once; delivered leases go on and may be settled. It may be called
// again, by anyone.
func (c *Consumer[T]) Stop() { c.core.engine.Stop() }

// Shutdown stops, and waits until every lease that was delivered is settled or lost, every handler has returned and every settle
// is stored; it joins all goroutines. When ctx ends before that, the time to drain is over, as it is for Handle after
// ConsumerConfig.DrainFor: contexts of leases end with the cause ErrStopped; a second later what readers still hold is released,
// uncounted; five seconds later what is not stored is given up, so those messages are delivered again when their leases expire.
// Shutdown returns then, 6 s after the end of ctx at the latest, with an error that says how much was released or given up, and how
// many handlers have not returned. It wraps the cause of ctx.
//
// It may be called again, by any goroutine: the first ctx that ends counts, and a later call waits for handlers that had not
// returned. The *sql.DB is in use until they have. After Handle, HandleBatches or Pipe has returned it has nothing left to do. On
// SQLite a goroutine that holds a transaction must not call it: see Queue.
func (c *Consumer[T]) Shutdown(ctx context.Context) error {
	_, err := c.core.end(ctx, "shutdown")
	return err
}

// Done is closed when the consumer begins to stop: by Stop, Shutdown, the end of Consume's context, ConsumerConfig.StopWhenIdle or a
// permanent error, which Err returns by then. What was delivered may still be settled. A handler has the same from
// Delivery.Stopping.
func (c *Consumer[T]) Done() <-chan struct{} { return c.core.engine.Stopped() }

// Err is the permanent error that ended the consumer (the table is missing, a
// right is missing, the driver has panicked), or nil. Outages do not end a consumer.
func (c *Consumer[T]) Err() error { return c.core.failure() }

// Flush waits until every settle that was handed over before is in the database or refused, or
// until ctx ends, whose error it returns. Lease.Wait returns the outcome of one settle. Flush also
// waits for settles whose rows another session has locked, which no other settle does. On SQLite a
// goroutine that holds a transaction must not call it: see Queue.
func (c *Consumer[T]) Flush(ctx context.Context) error {
	return c.core.queue.failed("flush", c.core.engine.Flush(ctx))
}

// Stats returns counts, and asks the database nothing.
func (c *Consumer[T]) Stats() ConsumerStats {
	s := c.core.engine.Stats()
	return ConsumerStats{
		Looks: s.Looks, Claims: s.Claims, Claimed: s.Claimed, EmptyClaims: s.Empty,
		Acked: int64(s.Acked), Nacked: int64(s.Nacked), Released: int64(s.Released), Dead: int64(s.Dead), Lost: int64(s.Lost),
		Buffered: s.Buffered, Waiting: s.Unread, Slots: s.Slots, BlockedKeys: s.BlockedKeys,
		Held: s.Held, Settling: s.Settling, Isolated: s.Isolated,
	}
}
