package chanq

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

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
	OutcomeNone       OutcomeKind = "none"    // unchanged: the handler had settled the message itself, or the lease had ended
)

// HandlerOutcome is what Consumer.Handle does with a message when its handler returns. A retry of the last attempt (Spec.MaxAttempts)
// dead-letters the message.
type HandlerOutcome struct {
	Kind   OutcomeKind
	Delay  time.Duration // of OutcomeRetryAfter and OutcomeSnooze, else 0
	Reason string        // stored as the message's last error; "" keeps the previous one

	output bool // OutcomeDeadLetter is for an output that cannot be stored
}

// Outcome returns what Consumer.Handle and Pipe do for an error that a handler returns, so that a handler can be tested without a
// database. It makes no database call and keeps no state.
func Outcome(err error) HandlerOutcome {
	if err == nil {
		return HandlerOutcome{Kind: OutcomeAck}
	}
	// The methods of the user's error may panic. What wraps it, or is joined with it, counts nevertheless.
	o := HandlerOutcome{Kind: OutcomeRetry, Reason: fmt.Sprintf("%T, whose methods cannot be called", err)}
	_ = base.Call(func() {
		o.Reason = errorText(err)
	})
	for left := []error{err}; len(left) > 0; {
		e := left[0]
		left = left[1:]
		switch w := e.(type) {
		case *deadLetter:
			return HandlerOutcome{Kind: OutcomeDeadLetter, Reason: o.Reason, output: w.output}
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
	_ = base.Call(func() {
		var w interface {
			error
			wraps()
		}
		if x, ok := err.(interface{ As(any) bool }); ok && x.As(&w) && w != nil { // an As method may accept any target
			in = append(in, w)
		}
	})
	_ = base.Call(func() {
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			in = append(in, x.Unwrap())
		case interface{ Unwrap() []error }:
			in = append(in, x.Unwrap()...)
		}
	})
	return in
}

// RetryAfter wraps the error of a handler, or the cause of a Nack. The message is nacked and due again after d, by the database's
// clock, instead of after ConsumerConfig.Backoff. The attempt counts. It also works inside another wrapper. A nil err keeps the
// message's last error. A negative d counts as 0, and a d above 100 years as 100 years.
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

// Snooze wraps the error of a handler, or the cause of a Nack. The message is released uncounted and due again after d, with the
// bounds of RetryAfter, behind messages that are due earlier. Use it for temporary faults that the message did not cause: a service
// that answers 429 must not dead-letter a healthy message. Earlier leases that expired are removed from the count: see
// Delivery.Attempt. A message that is always snoozed never ends, unless it has a TTL.
//
// Unlike a nack a Snooze wakes no consumer, because a consumer that snoozes every message would never pause. An idle consumer finds
// the message at its next poll, which may be ConsumerConfig.PollEvery (1 s) after it is due.
func Snooze(d time.Duration, err error) error { return &snooze{wrapper{err}, d} }

type snooze struct {
	wrapper
	delay time.Duration
}

// DeadLetter wraps the error of a handler, or the cause of a Nack. The message is dead-lettered immediately, with the error's text.
// err may be nil. chanqadmin.Queue.Redrive makes the message ready again.
func DeadLetter(err error) error { return &deadLetter{wrapper: wrapper{err}} }

type deadLetter struct {
	wrapper
	output bool // of a pipe
}

func (e *deadLetter) Error() string {
	return cmp.Or(errorText(e.err), "dead-lettered by its handler, without an error")
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

// ExponentialBackoff returns a ConsumerConfig.Backoff. The delay doubles from low, after the first failed attempt, to high. The
// result is random between half of the delay and all of it, so that messages that failed together do not return together. Earlier
// leases that expired in a row do not count.
func ExponentialBackoff(low, high time.Duration) func(d *Delivery, err error) time.Duration {
	low, high = max(low, time.Millisecond), min(high, sqlbatch.MaxDelay)
	return func(d *Delivery, _ error) time.Duration {
		delay := low
		for i := 1; i < d.failures() && delay < high; i++ {
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
	_ = base.Call(func() { delay = c.cfg.Backoff(d, err) })
	if delay < 0 || delay > sqlbatch.MaxDelay {
		return defaultBackoff(d, err)
	}
	return delay
}
