package chanq

import (
	"context"
	"errors"
	"fmt"

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

	// Settles that are in the database. Those of AckTx are not counted: only the
	// caller learns whether his transaction was committed.
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

// Stop ends claiming and gives back what no reader has taken, uncounted. It
// returns at once; delivered leases go on and may be settled. It may be called
// again, by anyone.
func (c *Consumer[T]) Stop() { c.core.engine.Stop() }

// Shutdown stops, waits until every delivered lease is settled or lost, every
// handler of Handle and Pipe has returned and every settle is in the database,
// and joins all goroutines. If ctx ends before, it gives up what is not settled
// yet (those messages are delivered again when their leases end, at most
// ConsumerConfig.LeaseFor later) and returns an error that says how much; the
// goroutines end as soon as the driver returns. A lease in the hands of a reader
// who neither settles nor loses it keeps Shutdown waiting. It may be called again: after
// one that gave up it waits for the goroutines and handlers that have not ended yet; the
// *sql.DB is in use until then. On SQLite a goroutine that holds a transaction must not
// call it: see Queue.
func (c *Consumer[T]) Shutdown(ctx context.Context) error {
	c.Stop()
	if c.core.engine.Over(ctx) {
		return nil
	}
	held, settling, working := c.core.engine.GiveUp()
	return c.core.queue.failed("shutdown", fmt.Errorf("%d leases not settled, %d settles not confirmed, %d handlers not returned: %w", held, settling, working, context.Cause(ctx)))
}

// Done is closed when the consumer begins to stop: by Stop, Shutdown, the end of
// Consume's context, ConsumerConfig.StopWhenIdle or a permanent error, which Err tells by
// then. What was delivered may still be settled.
func (c *Consumer[T]) Done() <-chan struct{} { return c.core.engine.Stopped() }

// Err is the permanent error that ended the consumer (the table is missing, a
// right is missing, the driver has panicked), or nil. Outages do not end a consumer.
func (c *Consumer[T]) Err() error { return c.core.failure() }

// Flush waits until every settle that was handed over before is in the database or refused, or
// until ctx ends, whose error it returns. Lease.Wait returns the outcome of one settle. Flush also
// waits for settles whose rows another session has locked, which no other settle does. On SQLite a
// goroutine that holds a transaction must not call it: see Queue.
func (c *Consumer[T]) Flush(ctx context.Context) error {
	return c.core.queue.failed("flush", c.core.engine.WaitSettled(ctx))
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

// ReleaseAll stops, as Stop does, and gives back everything that this consumer holds:
// what lies in the buffer, and also what readers and handlers have and have not settled,
// uncounted, for other consumers to have at once. It is for a program that must end and
// whose handlers may not be done in time. Their leases are lost to them before the
// database has that: contexts end with ErrLeaseLost, and settles return it. What was
// acked in a transaction is the transaction's.
//
// It waits until the database has all that, and every settle that was handed in before,
// or ctx ends; one or two round trips. What is not given back by then is delivered again
// when its lease ends, and the error says how much it is. Call Shutdown afterwards: it
// waits for handlers that ignore their contexts. On SQLite a goroutine that holds a
// transaction must not call it: see Queue.
func (c *Consumer[T]) ReleaseAll(ctx context.Context) error {
	err := c.core.engine.ReleaseAll(ctx)
	if u := (*consume.UnreleasedError)(nil); errors.As(err, &u) {
		switch {
		case u.Lease != nil:
			u.Err = deliveryError(u.Lease, u.Err)
		case u.Failure:
			u.Err = c.core.failure()
		}
	}
	return c.core.queue.failed("release all of", err)
}
