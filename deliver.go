package chanq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq/sqlbatch"
)

// The ways to read a consumer besides its channel.

// All yields leases until the channel closes (see Err). Leases that ran out in the
// buffer are skipped, which is what it does better than C. Leaving the loop stops
// the consumer; the lease at hand is still the reader's to settle.
func (c *Consumer[T]) All() iter.Seq[*Lease[T]] {
	return func(yield func(*Lease[T]) bool) {
		for l := range c.out {
			if c.skip(l) {
				continue
			}
			if !yield(l) {
				c.Stop()
				return
			}
		}
	}
}

// skip reports a lease that ran out while it lay in the buffer. It is released:
// should the database still hold it for us, the attempt does not count. Nor does
// it count as taken: where buffered leases run out, claims must become smaller.
func (c *Consumer[T]) skip(l *Lease[T]) bool {
	if !l.lease.gone() {
		return false
	}
	c.flow.skipped.Add(1)
	_ = l.Release() // its loss is what made us skip it
	return true
}

// Batches yields slices of 1 to most leases: as many as come within wait after
// the first. Each slice is the reader's; its leases are settled one by one, or all
// by AckTx. Leaving the loop stops the consumer. A most below 1 counts as 1, and a
// wait below 1 takes what is there.
func (c *Consumer[T]) Batches(most int, wait time.Duration) iter.Seq[[]*Lease[T]] {
	return func(yield func([]*Lease[T]) bool) {
		most := max(most, 1)
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for first := range c.All() {
			batch := append(make([]*Lease[T], 0, min(most, len(c.out)+1)), first)
			timer.Reset(wait)
			for open := true; open && len(batch) < most; {
				select {
				case l, ok := <-c.out:
					if open = ok; ok && !c.skip(l) {
						batch = append(batch, l)
					}
				case <-timer.C:
					open = false
				}
			}
			if !yield(batch) {
				return // All stops the consumer
			}
		}
	}
}

// Handle calls fn for each lease, in up to workers goroutines, until the
// channel closes and every call has returned; it returns Err. Neither an error of
// fn nor a panic ends it. The context given to fn is the lease's, which ends when
// the lease is lost and not when the consumer stops. What fn returns settles the
// lease, unless fn did:
//
//	nil                  ack
//	RetryAfter(d, err)   nack, due after d
//	DeadLetter(err)      set aside
//	another error        nack, due after ConsumerConfig.Backoff
//	a panic              nack likewise, with the stack as its error
//
// An error after AckTx says that its transaction was not committed: roll it back
// before returning. The Failed hook is told of every error.
//
// Call Shutdown afterwards to wait for the last settles.
func (c *Consumer[T]) Handle(workers int, fn func(context.Context, *Lease[T]) error) error {
	switch {
	case workers < 1:
		return fmt.Errorf("chanq: handle %s: workers is %d: must be at least 1", c.queue.name, workers)
	case fn == nil:
		return fmt.Errorf("chanq: handle %s: fn must not be nil", c.queue.name)
	}
	p := pool.New().WithMaxGoroutines(workers)
	for range workers {
		p.Go(func() {
			for l := range c.out {
				if !c.skip(l) {
					c.working.Add(1)
					c.dispose(l, safely(l, fn))
					c.worked()
				}
			}
		})
	}
	p.Wait()
	return c.Err()
}

// safely calls a handler and makes an error of a panic.
func safely[T any](l *Lease[T], fn func(context.Context, *Lease[T]) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(l.Context(), l)
}

// dispose settles a lease as its handler's error says.
func (c *Consumer[T]) dispose(l *Lease[T], err error) {
	var after *retryAfter
	var dead *deadLetter
	if err != nil {
		call(c.queue.cfg.Hooks.Failed, FailedEvent{Queue: c.queue.name, ID: l.lease.item.ID, Attempt: l.lease.attempt, Err: err})
	}
	switch state := l.lease.state.Load(); {
	case state >= leaseSettling:
		// settled by the handler, or lost
	case state == leaseInTx && err == nil:
		// the caller's commit acks it
	case err == nil:
		err = l.Ack()
	case errors.As(err, &dead):
		err = l.DeadLetter(err)
	case errors.As(err, &after):
		err = l.Nack(nackDelay(after.delay), err)
	default:
		err = l.Nack(nackDelay(c.backoff(l.lease.attempt)), err)
	}
	_ = err // of a settle: ErrLeaseLost, ErrSettled or ErrClosed, which Wait and the hooks tell
}

// nackDelay brings a delay of the user's into the bounds of Nack: a message that
// was handled must be settled.
func nackDelay(d time.Duration) time.Duration { return min(max(d, 0), sqlbatch.MaxDelay) }

// backoff asks ConsumerConfig.Backoff, whose panic must not end a worker.
func (c *Consumer[T]) backoff(attempt int) (d time.Duration) {
	defer func() {
		if recover() != nil {
			d = defaultBackoff(attempt)
		}
	}()
	return c.cfg.Backoff(attempt)
}
