package chanq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// The ways to read a consumer besides its channel.

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
// AckAll or AckTx.
//
// Its errors: that of ctx, if it ends before a lease comes, and of a consumer that has
// ended Err, or else ErrClosed. Other than the loop of All it stops nothing:
// it may be called again after the end of its ctx. A ctx that ends during the wait for more ends that wait.
func (c *Consumer[T]) Receive(ctx context.Context, most int, wait time.Duration) ([]*Lease[T], error) {
	switch {
	case most < 1:
		return nil, fmt.Errorf("chanq: receive %s: most is %d: must be at least 1", c.core.queue.label, most)
	case wait < 0:
		return nil, fmt.Errorf("chanq: receive %s: wait is %v: must not be negative", c.core.queue.label, wait)
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

// holderOf is the consumer that has claimed a lease.
func holderOf(l *lease.Lease) *consumer { return l.Home.Of.(*consumer) }

// skip reports a lease that ran out in the buffer, and has its consumer release it.
func skip[T any](l *Lease[T]) bool {
	return l.lease.Gone() && holderOf(l.lease).engine.Skip(l.lease)
}

// Handle calls fn for each lease, in up to workers goroutines, until the
// channel closes and every call has returned; it returns Err. Nothing that fn does
// ends it. The context given to fn is the lease's, which ends when the lease is lost
// and not when the consumer stops. What fn returns settles the lease, unless fn did:
//
//	nil                  ack
//	RetryAfter(d, err)   nack, due after d
//	Snooze(d, err)       given back uncounted, due after d
//	DeadLetter(err)      set aside
//	another error        nack, due after ConsumerConfig.Backoff
//	a panic              nack likewise, with the stack as its error
//	runtime.Goexit       nack likewise: t.FailNow does that
//
// An error after AckTx says that its transaction was not committed: roll it back
// before returning. The Failed hook is told of every error. An error whose methods
// panic counts as another error. Of several that are wrapped in one DeadLetter goes before
// Snooze, and Snooze before RetryAfter. Outcome tells a test what is made of an error.
//
// A call that does not return keeps its worker, and Handle and Shutdown, waiting; its
// lease is extended for ConsumerConfig.MaxExtend, and its context ends with the lease.
// After a Shutdown that gave up that is within ConsumerConfig.LeaseFor, and Handle
// returns when fn heeds it.
//
// Call Shutdown afterwards to wait for the last settles.
func (c *Consumer[T]) Handle(workers int, fn func(context.Context, *Lease[T]) error) error {
	if err := Handle(c.feed.C(), workers, fn); err != nil {
		return c.core.queue.failed("handle", err)
	}
	return c.Err()
}

// Handle calls fn for each lease that comes through a channel, in up to workers goroutines, until the
// channel closes and every call has returned. It settles each lease as Consumer.Handle does, and the
// lease's consumer waits for the call as if it had made it. It is for a channel that merges the leases of
// several consumers. Its only errors are wrong arguments.
func Handle[T any](leases <-chan *Lease[T], workers int, fn func(context.Context, *Lease[T]) error) error {
	switch {
	case workers < 1:
		return fmt.Errorf("workers is %d: must be at least 1", workers)
	case fn == nil:
		return errors.New("fn must not be nil")
	}
	base.Workers(workers, func() {
		for l := range leases {
			if c := holderOf(l.lease); c.engine.Begin(l.lease) {
				c.serve(l.lease, func() error { return fn(l.Context(), l) }, c.dispose)
			}
		}
	})
	return nil
}

// serve calls do and deals with its outcome in deferred functions: where do leaves by
// runtime.Goexit nothing else is run any more.
func (c *consumer) serve(l *lease.Lease, do func() error, then func(*lease.Lease, error)) {
	defer c.engine.Done()
	err := base.ErrGoexit
	defer func() { then(l, err) }()
	defer func() {
		if p := recover(); p != nil {
			err = base.Panicked(p)
		}
	}()
	err = do()
}

// dispose settles a lease as its handler's error says.
func (c *consumer) dispose(l *lease.Lease, err error) {
	if err != nil {
		call(c.queue.cfg.Hooks.Failed, FailedEvent{Queue: c.queue.label, ID: l.Item.ID, Attempt: l.Attempt, Err: err})
	}
	ctx := context.Background()
	switch state := l.State(); {
	case state >= lease.Settling:
		// settled by the handler, or lost
	case state == lease.InTx && err == nil:
		l.Unwatch() // the caller's commit acks it, and its context is not needed any more
		c.engine.Returned(l)
	case err == nil:
		err = l.Settle(ctx, lease.Ack, 0, "")
	default:
		switch o := Outcome(err); o.Kind {
		case OutcomeDeadLetter:
			err = l.Settle(ctx, lease.Dead, 0, o.Reason)
		case OutcomeSnooze:
			err = l.Settle(ctx, lease.Snooze, o.Delay, o.Reason)
		case OutcomeRetryAfter:
			err = l.Settle(ctx, lease.Nack, o.Delay, o.Reason)
		default:
			err = l.Settle(ctx, lease.Nack, c.backoff(l.Failures()), o.Reason)
		}
	}
	_ = err // of a settle: ErrLeaseLost, ErrSettled or ErrClosed, which Wait and the hooks tell
}

// nackDelay brings a delay of the user's into the bounds of Nack: a message that
// was handled must be settled.
func nackDelay(d time.Duration) time.Duration { return min(max(d, 0), sqlbatch.MaxDelay) }

// backoff asks ConsumerConfig.Backoff. The default stands in for one that fails, or
// returns what is no delay.
func (c *consumer) backoff(attempt int) time.Duration {
	d := time.Duration(-1)
	_ = base.Call(func() { d = c.cfg.Backoff(attempt) })
	if d < 0 || d > sqlbatch.MaxDelay {
		return defaultBackoff(attempt)
	}
	return d
}
