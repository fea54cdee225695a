package chanq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// Calls of handlers, and settles by their results.

// Handler handles a message: see Consumer.Handle.
type Handler[T any] func(ctx context.Context, l *Lease[T]) error

// Middleware is called around a handler, in its goroutine, for example for traces, logs, limits and timeouts. next
// calls the next Middleware, or the handler, with your context, and returns its result. You can call it again, or not
// at all. The result of the outermost Middleware settles the lease, as Consumer.Handle describes. In Pipe the last call
// of next makes the outputs.
type Middleware func(ctx context.Context, d *Delivery, next func(context.Context) error) error

// Handle calls fn for each message, in up to workers goroutines, until the consumer stops. The result settles the
// message, unless fn has settled it:
//
//	nil                  ack
//	RetryAfter(d, err)   nack, due after d
//	Snooze(d, err)       released uncounted, due after d
//	DeadLetter(err)      dead letter
//	any other error      nack, due after ConsumerConfig.Backoff
//	a panic              the same, with the stack as its error
//	runtime.Goexit       the same, and the consumer stops: t.FailNow does that
//
// fn's context is cancelled when the lease is lost, or DrainFor after the consumer has stopped, but not when it stops:
// see Delivery.Stopping. After ConsumerConfig.MaxExtend (1 h) the lease is not extended any more.
//
// Handle returns when every call has returned and every settle is stored, at most 6 s after DrainFor. Its error is Err,
// or counts what was left. Set workers to the number of cores if fn computes, and higher if it waits.
//
//   - Errors of fn are stored with the message, and logged if you set Config.Hooks (see LogHooks).
//   - If fn used AckTx, return an error only after a rollback.
//   - Of several wrappers in one error, DeadLetter precedes Snooze, and Snooze precedes RetryAfter.
func (c *Consumer[T]) Handle(workers int, fn Handler[T]) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return c.core.queue.failed("handle", err)
	}
	return c.core.serve("handle", workers, func() { handle(c.feed.C(), fn) })
}

// Handle is Consumer.Handle for leases from your own channel, for example one fed by several consumers. It returns when
// the channel is closed and every call has returned. It stops no consumer: call Consumer.Shutdown, which waits for
// these calls. Give the channel no buffer, because MaxExtend counts from when you took the lease. If fn calls
// runtime.Goexit, the other goroutines continue, and you get an error.
func Handle[T any](leases <-chan *Lease[T], workers int, fn Handler[T]) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return fmt.Errorf("chanq: handle: %w", err)
	}
	var left atomic.Bool
	crew(workers, func() { handle(leases, fn) }, func() { left.Store(true) }).Wait()
	if left.Load() {
		return fmt.Errorf("chanq: handle: %w", errGoexit)
	}
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

// HandleBatches calls fn for batches of up to maxBatch leases, in up to workers goroutines: see Receive for wait. Use
// it to write many rows in one transaction, for example with a maxBatch of 500 and a wait of 50 ms. After nil, leases
// not settled by fn are acked, and after Snooze released. It stops and returns as Handle does.
//
// After any other error fn is called again for each lease alone, and the result settles the lease as in Handle. So an
// attempt fails only for messages that fail alone.
//
//   - Roll your transaction back before you return an error. Then you can call AckTx again.
//   - One bad message costs a call for each lease of its batch. To avoid this, nack it in fn and go on with the others.
//   - Leases given to AckTx are released instead if three quarters of LeaseFor have passed.
//   - fn's context is cancelled when one of the leases is lost. After ErrStopped a failed batch is released.
//   - With a ConsumerConfig.Middleware you get an error.
func (c *Consumer[T]) HandleBatches(workers, maxBatch int, wait time.Duration,
	fn func(context.Context, []*Lease[T]) error) error {
	if err := cmp.Or(checkHandler(workers, fn == nil), checkBatch(maxBatch, wait), c.core.oneByOne()); err != nil {
		return c.core.queue.failed("handle batches", err)
	}
	return c.core.serve("handle batches", workers, func() {
		for {
			batch, err := c.Receive(context.Background(), maxBatch, wait)
			if err != nil { // the consumer has stopped
				return
			}
			handleBatch(c.core, batch, fn)
		}
	})
}

// oneByOne returns an error for a consumer with Middleware, which takes one delivery per call.
func (c *consumer) oneByOne() error {
	if len(c.cfg.Middleware) > 0 {
		return errors.New("ConsumerConfig.Middleware is set: must be empty for batches, since it gets one delivery; " +
			"or use Handle")
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
		together := err == nil || err == errGoexit || len(held) == 1 || Outcome(err).Kind == OutcomeSnooze
		for _, l := range held {
			switch {
			case together:
				c.dispose(&l.Delivery, took, err)
			case l.lease.State() >= lease.Settling: // fn has settled it, or it is lost
			case c.engine.Interrupted() || c.late(l.lease):
				_ = l.lease.Settle(context.Background(), lease.Release, lease.Settlement{})
			default:
				l.lease.RolledBack.Store(true)
				attempt([]*Lease[T]{l}, func(took time.Duration, err error) { c.dispose(&l.Delivery, took, err) })
			}
		}
	})
}

// late reports whether a lease has expired, or is not extended and will expire soon.
func (c *consumer) late(l *lease.Lease) bool {
	left := l.Period.Deadline() - base.Now()
	return left <= 0 || l.State() == lease.InTx && left < c.cfg.LeaseFor/4
}

// serve runs work, which calls handlers, in workers goroutines until the consumer stops, and ends the consumer.
func (c *consumer) serve(op string, workers int, work func()) error {
	all := crew(workers, work, func() { c.engine.Broken(op, errGoexit) })
	<-c.engine.Stopped()
	bound, cancel := context.WithTimeoutCause(context.Background(), c.cfg.DrainFor, ErrStopped)
	defer cancel()
	left, err := c.end(bound, op)
	if left.Handlers == 0 && !left.Stuck {
		all.Wait()
	}
	return cmp.Or(c.engine.Failure(), err)
}

// errGoexit is the outcome of a handler that has ended its goroutine.
var errGoexit = errors.New("a handler or a hook left by runtime.Goexit, as t.FailNow does")

// crew runs work in n goroutines. left is called for each that a function of the user ends.
func crew(n int, work, left func()) *base.Group {
	var all base.Group
	for range n {
		all.Go(func() {
			returned := false
			defer func() {
				if !returned {
					all.Go(left)
				}
			}()
			work()
			returned = true
		})
	}
	return &all
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
	text := fmt.Sprintf("leases not settled: %d, settles not confirmed: %d, handlers not returned: %d", left.Leases,
		left.Settles, left.Handlers)
	if left.Stuck {
		text += ", and a hook, a codec or the driver does not return"
	}
	return left, c.queue.failed(op, fmt.Errorf("%s: %w", text, cause))
}

// attempt calls do, and then passes its duration and outcome to then, even if do ends the goroutine. By a coarse clock
// a call takes 1 ns, because 0 means that there was none.
func (c *consumer) attempt(do func() error, then func(took time.Duration, err error)) {
	began, err := base.Now(), errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = base.Panicked(p)
		}
		then(max(base.Now()-began, 1), err)
	}()
	err = do()
}

// dispose counts a call of a handler, and settles a lease according to its error, unless it is settled or lost.
func (c *consumer) dispose(d *Delivery, took time.Duration, err error) {
	c.queue.recorder.Called(took)
	if err == nil && c.ackedInTx(d.lease) {
		c.handled(d, HandlerOutcome{Kind: OutcomeAck}, took, nil)
		return
	}
	_ = c.settle(d, Outcome(err), took, err) // Wait and the hooks report ErrLeaseLost, ErrSettled or ErrClosed
}

// ackedInTx reports whether AckTx has acked a lease whose reader has finished without an error: the caller's commit
// acks it, or has acked it, and its context is no longer needed.
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

// settle settles a lease, and calls the Handled hook, except for a Nack without a cause. err is the error of a handler,
// or the cause.
func (c *consumer) settle(d *Delivery, o HandlerOutcome, took time.Duration, err error) error {
	op := lease.Nack
	switch {
	case o.Kind == OutcomeAck:
		op = lease.Ack
	case o.Kind == OutcomeDeadLetter && (o.Cause != CauseExhausted || !c.engine.Interrupted()):
		op = lease.Dead
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
	refused := d.lease.Settle(context.Background(), op,
		lease.Settlement{Delay: o.Delay, Took: took, Text: o.Reason, Cause: o.Cause})
	if refused != nil && op != lease.Release { // the end of the consumer may have released it before
		o = HandlerOutcome{Kind: OutcomeNone}
	}
	if err != nil || op == lease.Ack {
		c.handled(d, o, took, err)
	}
	return refused
}

// handled calls the Handled hook. After an error that call has its own goroutine, as for all hooks. After a success,
// for speed, it uses the goroutine of the worker. Without a hook it allocates nothing.
func (c *consumer) handled(d *Delivery, o HandlerOutcome, took time.Duration, err error) {
	hook := c.queue.cfg.Hooks.Handled
	if hook == nil {
		return
	}
	e := HandledEvent{Delivery: *d, Outcome: o.Kind, Next: o.Delay, Took: took, Err: err}
	if (o.Kind == OutcomeRetry || o.Kind == OutcomeRetryAfter) && c.queue.table.IsLast(d.Failures()+1) {
		e.Outcome, e.Next = OutcomeDeadLetter, 0
	}
	e.lease = nil
	if err != nil {
		call(hook, e)
		return
	}
	e.Headers = nil
	callHere(hook, e)
}

// OutcomeKind is what happens to a message after its handler returned. Outcome returns the first five kinds.
type OutcomeKind string

// The kinds.
const (
	OutcomeAck        OutcomeKind = "ack"
	OutcomeRetry      OutcomeKind = "retry"       // nacked, due after ConsumerConfig.Backoff
	OutcomeRetryAfter OutcomeKind = "retry after" // nacked, due after Delay
	OutcomeSnooze     OutcomeKind = "snooze"      // released uncounted, due after Delay
	OutcomeDeadLetter OutcomeKind = "dead-letter"
	OutcomeRelease    OutcomeKind = "release" // released uncounted, after an error when the time to drain was over
	// Unchanged: the handler had settled the message itself, or the lease was lost
	OutcomeNone OutcomeKind = "none"
)

// HandlerOutcome is what Consumer.Handle does with a message when its handler returns. After the last attempt
// (Spec.MaxAttempts) a retry dead-letters it.
type HandlerOutcome struct {
	Kind   OutcomeKind
	Delay  time.Duration // of OutcomeRetryAfter and OutcomeSnooze, else 0
	Reason string        // stored as the message's last error; "" keeps the previous one
	Cause  Cause         // of OutcomeDeadLetter, else 0
}

// Outcome returns what Consumer.Handle and Pipe do with a handler's error, so that you can test a handler without a
// database.
func Outcome(err error) HandlerOutcome {
	if err == nil {
		return HandlerOutcome{Kind: OutcomeAck}
	}
	// The methods of the user's error may panic. What wraps it, or is joined with it, counts nevertheless.
	o := HandlerOutcome{Kind: OutcomeRetry, Reason: fmt.Sprintf("%T, whose methods cannot be called", err)}
	base.Call(func() {
		o.Reason = errorText(err)
	})
	for left := []error{err}; len(left) > 0; {
		e := left[0]
		left = left[1:]
		switch w := e.(type) {
		case *deadLetter:
			return HandlerOutcome{Kind: OutcomeDeadLetter, Reason: o.Reason, Cause: w.cause}
		case *snooze:
			if o.Kind != OutcomeSnooze {
				o.Kind, o.Delay = OutcomeSnooze, nackDelay(w.delay)
			}
		case *retryAfter:
			if o.Kind == OutcomeRetry {
				o.Kind, o.Delay = OutcomeRetryAfter, nackDelay(w.delay)
			}
		}
		left = append(inside(e), left...)
	}
	return o
}

// inside returns the wrapper that err.As finds, and what err.Unwrap returns, except for a method that panics.
func inside(err error) (in []error) {
	base.Call(func() {
		var w interface {
			error
			wraps()
		}
		if x, ok := err.(interface{ As(any) bool }); ok && x.As(&w) && w != nil { // an As method may accept any target
			in = append(in, w)
		}
	})
	base.Call(func() {
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			in = append(in, x.Unwrap())
		case interface{ Unwrap() []error }:
			in = append(in, x.Unwrap()...)
		}
	})
	return in
}

// RetryAfter wraps the error of a handler, or the cause of a Nack, even inside another wrapper. The message is nacked
// and due again after d, instead of ConsumerConfig.Backoff. The attempt counts. A nil err keeps the message's last
// error. d is limited to 0 to 100 years.
func RetryAfter(d time.Duration, err error) error { return &retryAfter{wrapper{err}, d} }

type retryAfter struct {
	wrapper
	delay time.Duration
}

// wrapper wraps the error of a handler. Its type determines what happens to the message.
type wrapper struct{ err error }

func (w *wrapper) Error() string { return errorText(w.err) }
func (w *wrapper) Unwrap() error { return w.err }
func (w *wrapper) wraps()        {}

// Snooze wraps the error of a handler, or the cause of a Nack. The message is released uncounted and due again after d,
// limited as in RetryAfter. Use it for faults of others: a service that answers 429 must not dead-letter a healthy
// message. It also clears the count of expired leases. Without a TTL, a message can be snoozed without end.
//
// It wakes no consumer: an idle one finds the message at its next poll, up to ConsumerConfig.PollEvery (1 s) after it
// is due.
func Snooze(d time.Duration, err error) error { return &snooze{wrapper{err}, d} }

type snooze struct {
	wrapper
	delay time.Duration
}

// DeadLetter wraps the error of a handler, or the cause of a Nack. The message is dead-lettered immediately, with the
// error's text; err can be nil. chanqadmin.Queue.Redrive makes it ready again.
func DeadLetter(err error) error { return &deadLetter{wrapper{err}, CauseRejected} }

// DeadLetterAs is DeadLetter for code that decodes or counts attempts in place of chanq. The cause is stored, so that
// operators find the message among others of its cause:
//
//	CauseUndecodable  err is of a decoder. Redacted texts hide it, because it can contain parts of the body.
//	CauseExhausted    the last attempt failed: see Delivery.Failures. After ErrStopped the message is released.
//
// Any other cause is stored as CauseRejected.
func DeadLetterAs(cause Cause, err error) error {
	if cause != CauseUndecodable && cause != CauseExhausted {
		cause = CauseRejected
	}
	return &deadLetter{wrapper{err}, cause}
}

type deadLetter struct {
	wrapper
	cause Cause
}

func (e *deadLetter) Error() string {
	text := cmp.Or(errorText(e.err), "dead-lettered by its handler, without an error")
	if e.cause == CauseUndecodable {
		return base.ReasonDecode + text
	}
	return text
}

// errorText returns the text of err, even if its Error method panics, as on a nil pointer.
func errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("%T, whose Error method panicked: %v", err, p)
		}
	}()
	return err.Error()
}

var defaultBackoff = ExponentialBackoff(time.Second, time.Hour)

// ExponentialBackoff returns a ConsumerConfig.Backoff. The delay doubles from low, after the first failed attempt, to
// high. It is random, at least half of that, so messages do not return together.
func ExponentialBackoff(low, high time.Duration) func(d *Delivery, err error) time.Duration {
	low, high = max(low, time.Millisecond), min(high, sqlbatch.MaxDelay)
	return func(d *Delivery, _ error) time.Duration {
		delay := low
		for i := 0; i < d.Failures() && delay < high; i++ {
			delay *= 2 // below 100 years, so without overflow
		}
		delay = max(min(delay, high), 2)
		return delay/2 + rand.N(delay/2) + time.Millisecond
	}
}

// nackDelay limits a delay to the bounds of Nack: a message that was handled must be settled.
func nackDelay(d time.Duration) time.Duration { return min(max(d, 0), sqlbatch.MaxDelay) }

// backoff calls ConsumerConfig.Backoff. If that panics, or returns a delay out of bounds, the default is used.
func (c *consumer) backoff(d *Delivery, err error) time.Duration {
	delay := time.Duration(-1)
	base.Call(func() { delay = c.cfg.Backoff(d, err) })
	if delay < 0 || delay > sqlbatch.MaxDelay {
		return defaultBackoff(d, err)
	}
	return delay
}
