package chanq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
)

// What calls handlers, and settles leases by what they return.

// Handle calls fn for each lease, in up to workers goroutines, until the consumer stops. Nothing that fn does ends it. The context
// given to fn is that of the lease. What fn returns settles the lease, unless fn has settled it:
//
//	nil                  ack
//	RetryAfter(d, err)   nack, due after d
//	Snooze(d, err)       released uncounted, due after d
//	DeadLetter(err)      dead letter
//	another error        nack, due after ConsumerConfig.Backoff
//	a panic              nack likewise, with the stack as its error
//	runtime.Goexit       nack likewise: t.FailNow does that
//
// An error after AckTx says that its transaction was not committed: roll it back before returning. The Failed hook is called with
// every error. An error whose methods panic counts as another error. Of several that are wrapped in one, DeadLetter goes before
// Snooze, and Snooze before RetryAfter. Outcome returns what is made of an error, for tests.
//
// Handle ends the consumer. When that stops, calls that have begun go on for ConsumerConfig.DrainFor. Then their contexts end with
// the cause ErrStopped, and an error that is returned from then on, other than DeadLetter and Snooze, releases the message uncounted.
// A second later what is still held is released. Handle returns when every call has returned and every settle is stored, at most
// 6 s after DrainFor. It returns Err, or an error that says what was released or is not stored, and how many calls have not
// returned. A long call learns by Delivery.Stopping that the consumer stops.
func (c *Consumer[T]) Handle(workers int, fn func(context.Context, *Lease[T]) error) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return c.core.queue.failed("handle", err)
	}
	_, err := c.core.serve("handle", workers, func() { handle(c.feed.C(), fn) })
	return err
}

// Handle calls fn for each lease that comes through a channel, in up to workers goroutines, until the channel closes and every call
// has returned. It settles each lease as Consumer.Handle does, and the lease's consumer waits for the call as if it had made it; but
// ends no consumer: Consumer.Shutdown does. It is for a channel that merges the leases of several consumers. Its only errors are
// wrong arguments.
func Handle[T any](leases <-chan *Lease[T], workers int, fn func(context.Context, *Lease[T]) error) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return fmt.Errorf("chanq: handle: %w", err)
	}
	base.Workers(workers, func() { handle(leases, fn) })
	return nil
}

// checkHandler returns an error for arguments that call nothing.
func checkHandler(workers int, none bool) error {
	switch {
	case workers < 1:
		return fmt.Errorf("workers is %d: must be at least 1", workers)
	case none:
		return errors.New("fn must not be nil")
	}
	return nil
}

// checkBatch returns an error for the size of a batch and the wait for more that no batch can have.
func checkBatch(most int, wait time.Duration) error {
	switch {
	case most < 1:
		return fmt.Errorf("most is %d: must be at least 1", most)
	case wait < 0:
		return fmt.Errorf("wait is %v: must not be negative", wait)
	}
	return nil
}

func handle[T any](leases <-chan *Lease[T], fn func(context.Context, *Lease[T]) error) {
	for l := range leases {
		if l.lease == nil { // made by hand: there is nothing to settle
			_ = fn(l.Context(), l)
			continue
		}
		if c := holderOf(l.lease); c.engine.Begin(l.lease) {
			c.attempt(func() error { return fn(l.Context(), l) }, func(err error) {
				defer c.engine.Done()
				c.dispose(l.lease, err)
			})
		}
	}
}

// HandleBatches calls fn for batches of up to most leases, in up to workers goroutines, until the consumer stops: see Receive for
// wait. It is for handlers that write many rows at once. What fn returns settles the leases that fn has not settled: nil acks all of
// them, and Snooze releases them.
//
// After another error of a batch of several, fn is called again for each of its leases alone, and what it returns then settles that
// lease as Handle does. So only the messages that fail alone have failed an attempt; the others are acked at once. A call that
// fails must leave nothing behind that harms the next: roll its transaction back before it returns. AckTx may be called again then.
// A lease that was given to AckTx is not extended: when three quarters of LeaseFor are over before its turn has come, it is released,
// uncounted, and so is one that has expired.
//
// The context given to fn ends when one of the leases is lost, with the cause ErrLeaseLost, and with ErrStopped as that of Handle.
// After ErrStopped a batch that fails is released as a whole. HandleBatches ends the consumer as Handle does; a batch that it has
// received is still handed over.
func (c *Consumer[T]) HandleBatches(workers, most int, wait time.Duration, fn func(context.Context, []*Lease[T]) error) error {
	if err := cmp.Or(checkHandler(workers, fn == nil), checkBatch(most, wait)); err != nil {
		return c.core.queue.failed("handle batches", err)
	}
	_, err := c.core.serve("handle batches", workers, func() {
		for {
			batch, err := c.Receive(context.Background(), most, wait)
			if err != nil { // the consumer has stopped
				return
			}
			handleBatch(c.core, batch, fn)
		}
	})
	return err
}

// handleBatch calls fn for a batch, and if that fails for each of its leases.
func handleBatch[T any](c *consumer, batch []*Lease[T], fn func(context.Context, []*Lease[T]) error) {
	held := make([]*Lease[T], 0, len(batch))
	for _, l := range batch {
		if c.engine.Begin(l.lease) {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return
	}
	c.engine.CountAsOne(len(held))
	defer c.engine.Done()
	attempt := func(part []*Lease[T], then func(error)) {
		under := make([]*lease.Lease, len(part))
		for i, l := range part {
			under[i] = l.lease
		}
		ctx, end := lease.Together(under)
		c.attempt(func() error { return fn(ctx, slices.Clone(part)) }, func(err error) {
			end()
			then(err)
		})
	}
	attempt(held, func(err error) {
		if err == nil || len(held) == 1 || Outcome(err).Kind == OutcomeSnooze {
			for _, l := range held {
				c.dispose(l.lease, err)
			}
			return
		}
		base.Workers(1, func() { // another one after a call that left by runtime.Goexit
			for len(held) > 0 {
				l := held[0]
				held = held[1:]
				switch {
				case l.lease.State() >= lease.Settling: // fn has settled it, or it is lost
				case c.engine.Interrupted() || c.late(l.lease):
					_ = l.lease.Settle(context.Background(), lease.Release, 0, "")
				default:
					l.lease.RolledBack.Store(true)
					attempt([]*Lease[T]{l}, func(err error) { c.dispose(l.lease, err) })
				}
			}
		})
	})
}

// late reports a lease that is over, or is not extended and soon over.
func (c *consumer) late(l *lease.Lease) bool {
	left := l.Deadline() - base.Now()
	return left <= 0 || l.State() == lease.InTx && left < c.cfg.LeaseFor/4
}

// serve runs work, which calls handlers, in workers goroutines until the consumer stops, and ends the consumer. stuck says that a
// hook, a codec or the driver does not return.
func (c *consumer) serve(op string, workers int, work func()) (stuck bool, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		base.Workers(workers, work)
	}()
	<-c.engine.Stopped()
	bound, cancel := context.WithTimeoutCause(context.Background(), c.cfg.DrainFor, ErrStopped)
	defer cancel()
	left, err := c.end(bound, op)
	if left.Handlers == 0 && !left.Stuck {
		<-over
	}
	if failure := c.failure(); failure != nil {
		return left.Stuck, failure
	}
	return left.Stuck, err
}

// end ends the consumer: see consume.Consumer.End. The error says what is left.
func (c *consumer) end(bound context.Context, op string) (consume.Left, error) {
	left := c.engine.End(bound)
	if left == (consume.Left{}) {
		return left, nil
	}
	cause := context.Cause(bound)
	if cause == nil { // another call's bound has ended first
		cause = ErrStopped
	}
	text := fmt.Sprintf("%d leases not settled, %d settles not confirmed, %d handlers not returned", left.Leases, left.Settles, left.Handlers)
	if left.Stuck {
		text += ", and a hook, a codec or the driver does not return"
	}
	return left, c.queue.failed(op, fmt.Errorf("%s: %w", text, cause))
}

// attempt calls do, and then with its outcome in deferred functions: where do leaves by runtime.Goexit nothing else is run.
func (c *consumer) attempt(do func() error, then func(error)) {
	err := base.ErrGoexit
	defer func() { then(err) }()
	defer func() {
		if p := recover(); p != nil {
			err = base.Panicked(p)
		}
	}()
	err = do()
}

// dispose settles a lease as its handler's error says, unless it is settled or lost.
func (c *consumer) dispose(l *lease.Lease, err error) {
	if err == nil && l.State() == lease.InTx && !l.RolledBack.Load() {
		l.Unwatch() // the caller's commit acks it, and its context is not needed any more
		c.engine.Returned(l)
		return
	}
	_ = c.settle(l, err) // ErrLeaseLost, ErrSettled or ErrClosed, as Wait and the hooks have it
}

// settle settles a lease as an error says, and calls the Failed hook with the error.
func (c *consumer) settle(l *lease.Lease, err error) error {
	o := Outcome(err)
	op, delay, text := lease.Nack, o.Delay, o.Reason
	switch {
	case o.Kind == OutcomeAck:
		op = lease.Ack
	case o.Kind == OutcomeDeadLetter:
		op = lease.Dead
	case o.Kind == OutcomeSnooze:
		op = lease.Snooze
	case c.engine.Interrupted():
		op, delay, text = lease.Release, 0, ""
	case o.Kind == OutcomeRetry:
		delay = c.backoff(l.Failures())
	}
	if err != nil && op != lease.Release {
		call(c.queue.cfg.Hooks.Failed, FailedEvent{Queue: c.queue.label, ID: l.Item.ID, Attempt: l.Attempt, Err: err})
	}
	if op == lease.Dead {
		cause := CauseRejected
		if o.output {
			cause = CauseOutput
		}
		return l.Reject(context.Background(), cause, text)
	}
	return l.Settle(context.Background(), op, delay, text)
}
