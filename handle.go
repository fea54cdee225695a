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

// Calls of handlers, and settles by their results.

// Handler handles a message: see Consumer.Handle.
type Handler[T any] func(ctx context.Context, l *Lease[T]) error

// Middleware is called around a handler, in its goroutine, for example for traces, logs, limits and deadlines. ctx is the context of the
// lease. next calls the next Middleware of ConsumerConfig.Middleware, or the handler, with the given context, and returns its result. A
// Middleware may call next again. The result of the outermost Middleware settles the lease, as Consumer.Handle describes; a Middleware
// that returns without calling next has handled the message. A panic in the handler unwinds through it.
//
// In Pipe the outputs are those of the last call of next, or none if that call failed or there was none.
type Middleware func(ctx context.Context, d *Delivery, next func(context.Context) error) error

// Handle calls fn for each lease, in up to workers goroutines, until the consumer stops. No error, panic or runtime.Goexit of fn ends
// it. The context given to fn is that of the lease, or the one that ConsumerConfig.Middleware has derived from it. The result of fn
// settles the lease, unless fn has settled it:
//
//	nil                  ack
//	RetryAfter(d, err)   nack, due after d
//	Snooze(d, err)       released uncounted, due after d
//	DeadLetter(err)      dead letter
//	any other error      nack, due after ConsumerConfig.Backoff
//	a panic              nack as for any other error, with the stack as its error
//	runtime.Goexit       nack as for any other error: t.FailNow does that
//
// An error after AckTx means that its transaction was not committed: roll back before returning. An error whose methods panic counts
// as any other error, and RetryAfter, Snooze or DeadLetter around it keeps its effect. If an error wraps several of these,
// DeadLetter precedes Snooze, and Snooze precedes RetryAfter. For tests, Outcome returns the outcome of an error. The Handled hook
// is called after each call. Without Config.Hooks the errors of fn are only in the database: set LogHooks.
//
// Set workers to the number of cores for handlers that compute, and higher for handlers that wait: as many as the systems that they call
// and the connections of the *sql.DB can serve at once. A call may take ConsumerConfig.MaxExtend, 1 h by default. Then its lease is no
// longer extended: within LeaseFor its context ends with ErrLeaseLost, and the message is redelivered.
//
// Handle ends the consumer. When the consumer stops, calls that have begun continue for ConsumerConfig.DrainFor. Then their contexts
// end with the cause ErrStopped. From then on an error, unless it is DeadLetter or Snooze, releases the message uncounted. 1 s later
// all leases that are still held are released. Handle returns when every call has returned and every settle is stored, at most 6 s
// after DrainFor: Err, or an error that states what was released or is not stored and how many calls have not returned. A long call
// can watch Delivery.Stopping.
func (c *Consumer[T]) Handle(workers int, fn Handler[T]) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return c.core.queue.failed("handle", err)
	}
	_, err := c.core.serve("handle", workers, func() { handle(c.feed.C(), fn) })
	return err
}

// Handle calls fn for each lease that it receives from a channel, in up to workers goroutines, until the channel closes and every
// call has returned. It is for a channel that merges the leases of several consumers. It settles leases as Consumer.Handle does, and
// a lease's consumer waits for the call as for its own. ConsumerConfig.MaxExtend counts from when a goroutine took the lease from the
// consumer, also if that goroutine then waits until it can send the lease on the channel. Handle ends no consumer: call
// Consumer.Shutdown. It returns an error only for invalid arguments.
func Handle[T any](leases <-chan *Lease[T], workers int, fn Handler[T]) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return fmt.Errorf("chanq: handle: %w", err)
	}
	base.Workers(workers, func() { handle(leases, fn) })
	return nil
}

// checkHandler returns an error if there is no worker or no function to call.
func checkHandler(workers int, none bool) error {
	switch {
	case workers < 1:
		return fmt.Errorf("workers is %d: must be at least 1", workers)
	case none:
		return errors.New("fn must not be nil")
	}
	return nil
}

// checkBatch checks the size of a batch and the wait for more leases.
func checkBatch(maxBatch int, wait time.Duration) error {
	switch {
	case maxBatch < 1:
		return fmt.Errorf("maxBatch is %d: must be at least 1", maxBatch)
	case wait < 0:
		return fmt.Errorf("wait is %v: must not be negative", wait)
	}
	return nil
}

func handle[T any](leases <-chan *Lease[T], fn Handler[T]) {
	for l := range leases {
		if l.lease == nil { // made by hand: there is nothing to settle
			_ = fn(l.Context(), l)
			continue
		}
		if c := holderOf(l.lease); c.engine.Begin(l.lease) {
			c.attempt(func() error { return invoke(c, l, fn) }, func(took time.Duration, err error) {
				defer c.engine.Done(l.lease)
				c.dispose(&l.Delivery, took, err)
			})
		}
	}
}

// invoke calls a handler through the Middleware of its consumer.
func invoke[T any](c *consumer, l *Lease[T], fn Handler[T]) error {
	if len(c.cfg.Middleware) == 0 {
		return fn(l.Context(), l)
	}
	return around(l.Context(), c.cfg.Middleware, &l.Delivery, func(ctx context.Context) error { return fn(ctx, l) })
}

// around calls the first Middleware, whose next calls the remaining ones and then do.
func around(ctx context.Context, all []Middleware, d *Delivery, do func(context.Context) error) error {
	if len(all) == 0 {
		return do(ctx)
	}
	return all[0](ctx, d, func(ctx context.Context) error { return around(ctx, all[1:], d, do) })
}

// HandleBatches calls fn for batches of up to maxBatch leases, in up to workers goroutines, until the consumer stops: see Receive for
// wait. It is for handlers that write many rows at once, for example with a maxBatch of 500 and a wait of 50 ms. The result of fn
// settles the leases that fn has not settled: nil acks all of them, and Snooze releases them. Without Config.Hooks the errors of fn are
// only in the database: set LogHooks.
//
// If fn returns any other error for several leases, including DeadLetter and RetryAfter, it is called again for each lease alone, and
// that result settles the lease as in Handle. Therefore an attempt fails only for messages that fail alone; the others are acked. One
// message that fails costs a call for each lease of its batch, at each of its attempts. To avoid that, nack this lease in fn and
// continue with the others; if the error is permanent, nack it with DeadLetter. A call that fails must leave nothing behind that harms
// the next one: roll its transaction back before it returns. Then AckTx may be called again. A lease that was given to AckTx is not
// extended. It is released uncounted if three quarters of LeaseFor have passed before its own call. A lease that has expired is also
// released.
//
// The context given to fn ends with the cause ErrLeaseLost when one of the leases is lost, and with ErrStopped as in Handle. After
// ErrStopped a batch that fails is released as a whole. HandleBatches ends the consumer as Handle does; a batch that it has received
// is still passed to fn. With a ConsumerConfig.Middleware it returns an error.
func (c *Consumer[T]) HandleBatches(workers, maxBatch int, wait time.Duration, fn func(context.Context, []*Lease[T]) error) error {
	if err := cmp.Or(checkHandler(workers, fn == nil), checkBatch(maxBatch, wait), c.core.oneByOne()); err != nil {
		return c.core.queue.failed("handle batches", err)
	}
	_, err := c.core.serve("handle batches", workers, func() {
		for {
			batch, err := c.Receive(context.Background(), maxBatch, wait)
			if err != nil { // the consumer has stopped
				return
			}
			handleBatch(c.core, batch, fn)
		}
	})
	return err
}

// oneByOne returns an error for a consumer with Middleware, which takes one delivery per call.
func (c *consumer) oneByOne() error {
	if len(c.cfg.Middleware) > 0 {
		return errors.New("ConsumerConfig.Middleware is set: must be empty for batches, since it gets one delivery; or use Handle")
	}
	return nil
}

// handleBatch calls fn for a batch and, if that fails, for each of its leases.
func handleBatch[T any](c *consumer, batch []*Lease[T], fn func(context.Context, []*Lease[T]) error) {
	held, all := make([]*Lease[T], 0, len(batch)), make([]*lease.Lease, 0, len(batch))
	for _, l := range batch {
		if c.engine.Begin(l.lease) {
			held, all = append(held, l), append(all, l.lease)
		}
	}
	if len(held) == 0 {
		return
	}
	c.engine.CountAsOne(len(held))
	defer c.engine.Done(all...)
	attempt := func(part []*Lease[T], then func(time.Duration, error)) {
		under := make([]*lease.Lease, len(part))
		for i, l := range part {
			under[i] = l.lease
		}
		ctx, end := lease.Together(under)
		c.attempt(func() error { return fn(ctx, slices.Clone(part)) }, func(took time.Duration, err error) {
			end()
			then(took, err)
		})
	}
	attempt(held, func(took time.Duration, err error) {
		together := err == nil || len(held) == 1 || Outcome(err).Kind == OutcomeSnooze
		base.Workers(1, func() { // a new one after a call that exited by runtime.Goexit
			for len(held) > 0 {
				l := held[0]
				held = held[1:]
				switch {
				case together:
					c.dispose(&l.Delivery, took, err)
				case l.lease.State() >= lease.Settling: // fn has settled it, or it is lost
				case c.engine.Interrupted() || c.late(l.lease):
					_ = l.lease.Settle(context.Background(), lease.Settlement{Op: lease.Release})
				default:
					l.lease.RolledBack.Store(true)
					attempt([]*Lease[T]{l}, func(took time.Duration, err error) { c.dispose(&l.Delivery, took, err) })
				}
			}
		})
	})
}

// late reports whether a lease has expired, or is not extended and will expire soon.
func (c *consumer) late(l *lease.Lease) bool {
	left := l.Period.Deadline() - base.Now()
	return left <= 0 || l.State() == lease.InTx && left < c.cfg.LeaseFor/4
}

// serve runs work, which calls handlers, in workers goroutines until the consumer stops, and ends the consumer. stuck reports that a
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
	if failure := c.engine.Failure(); failure != nil {
		return left.Stuck, failure
	}
	return left.Stuck, err
}

// end ends the consumer: see consume.Consumer.End. The error counts the remaining work.
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

// attempt calls do, and then passes its duration and outcome to then. Deferred functions do that, since nothing else runs after
// runtime.Goexit.
func (c *consumer) attempt(do func() error, then func(took time.Duration, err error)) {
	began, err := base.Now(), base.ErrGoexit
	defer func() { then(base.Now()-began, err) }()
	defer func() {
		if p := recover(); p != nil {
			err = base.Panicked(p)
		}
	}()
	err = do()
}

// dispose settles a lease according to its handler's error, unless it is settled or lost.
func (c *consumer) dispose(d *Delivery, took time.Duration, err error) {
	if err == nil && c.ackedInTx(d.lease) {
		c.handled(d, HandlerOutcome{Kind: OutcomeAck}, took, nil)
		return
	}
	_ = c.settle(d, Outcome(err), took, err) // Wait and the hooks report ErrLeaseLost, ErrSettled or ErrClosed
}

// ackedInTx reports whether AckTx has acked a lease whose reader has finished without an error: the caller's commit acks it, or has
// acked it, and its context is no longer needed.
func (c *consumer) ackedInTx(l *lease.Lease) bool {
	switch {
	case l.State() == lease.InTx && !l.RolledBack.Load():
		l.Unwatch()
		c.engine.Returned(l)
		return true
	case l.State() == lease.Settled && l.ByTx:
		l.Unwatch()
		return true
	}
	return false
}

// settle settles a lease, and calls the Handled hook, except for a Nack without a cause. err is the error of a handler, or the cause.
func (c *consumer) settle(d *Delivery, o HandlerOutcome, took time.Duration, err error) error {
	op, cause := lease.Nack, Cause(0)
	switch {
	case o.Kind == OutcomeAck:
		op = lease.Ack
	case o.Kind == OutcomeDeadLetter:
		op, cause = lease.Dead, CauseRejected
		if o.output {
			cause = CauseOutput
		}
	case o.Kind == OutcomeSnooze:
		op = lease.Snooze
	case c.engine.Interrupted():
		op, o = lease.Release, HandlerOutcome{Kind: OutcomeRelease}
	case o.Kind == OutcomeRetry:
		o.Delay = c.backoff(d, err)
	}
	if op == lease.Dead || op == lease.Nack {
		d.doomed()
	}
	refused := d.lease.Settle(context.Background(), lease.Settlement{Op: op, Delay: o.Delay, Text: o.Reason, Cause: cause})
	if refused != nil && op != lease.Release { // the end of the consumer may have released it before
		o = HandlerOutcome{Kind: OutcomeNone}
	}
	if err != nil || op == lease.Ack {
		c.handled(d, o, took, err)
	}
	return refused
}

// handled calls the Handled hook. After an error the call has its own goroutine, as for all hooks. After a success, for speed, it uses
// the goroutine of the worker, which is replaced if the hook calls runtime.Goexit. Without a hook it allocates nothing.
func (c *consumer) handled(d *Delivery, o HandlerOutcome, took time.Duration, err error) {
	hook := c.queue.cfg.Hooks.Handled
	if hook == nil {
		return
	}
	e := HandledEvent{Delivery: *d, Outcome: o.Kind, Next: o.Delay, Took: took, Err: err}
	if (o.Kind == OutcomeRetry || o.Kind == OutcomeRetryAfter) && c.queue.table.IsLast(d.failures()) {
		e.Outcome, e.Next = OutcomeDeadLetter, 0
	}
	e.lease = nil
	if err != nil {
		call(hook, e)
		return
	}
	e.Headers = nil
	defer func() { _ = recover() }()
	hook(e)
}
