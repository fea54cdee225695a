package chanq

import (
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// OutcomeKind is what becomes of a message by what its handler returned.
type OutcomeKind string

// The kinds.
const (
	OutcomeAck        OutcomeKind = "ack"
	OutcomeRetry      OutcomeKind = "retry"       // nacked, due after ConsumerConfig.Backoff
	OutcomeRetryAfter OutcomeKind = "retry after" // nacked, due after Delay
	OutcomeSnooze     OutcomeKind = "snooze"      // given back uncounted, due after Delay
	OutcomeDeadLetter OutcomeKind = "dead-letter"
)

// HandlerOutcome is what Consumer.Handle does with a message when its handler returns. A
// retry of the last attempt (Config.MaxAttempts) sets the message aside.
type HandlerOutcome struct {
	Kind   OutcomeKind
	Delay  time.Duration // of OutcomeRetryAfter and OutcomeSnooze, else 0
	Reason string        // what is kept as the message's last error; "" keeps the one before
}

// Outcome says what Consumer.Handle and Pipe make of the error that a handler returns,
// so that a handler can be tested without a database. It asks nothing and keeps nothing.
func Outcome(err error) HandlerOutcome {
	if err == nil {
		return HandlerOutcome{Kind: OutcomeAck}
	}
	// The error is the user's, and its methods may do anything. Those that fail make it
	// an error like another.
	o := HandlerOutcome{Kind: OutcomeRetry, Reason: fmt.Sprintf("%T, whose methods cannot be called", err)}
	_ = base.Call(func() {
		o.Reason = errorText(err)
	})
	_ = base.Call(func() {
		var after *retryAfter
		var later *snooze
		var dead *deadLetter
		// An As method may say yes to anything.
		switch {
		case errors.As(err, &dead) && dead != nil:
			o.Kind = OutcomeDeadLetter
		case errors.As(err, &later) && later != nil:
			o.Kind, o.Delay = OutcomeSnooze, nackDelay(later.delay)
		case errors.As(err, &after) && after != nil:
			o.Kind, o.Delay = OutcomeRetryAfter, nackDelay(after.delay)
		}
	})
	return o
}
