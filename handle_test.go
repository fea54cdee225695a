package chanq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

// A Lease is not a Message: it has no fields for the message's former queue position and due time, so a body that is
// sent on becomes a new message.
func TestABodyThatIsSentOnIsANewMessage(t *testing.T) {
	ctx := t.Context()
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	q, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	_, err = q.Send(ctx, chanq.Msg("a"))
	require.NoError(t, err)
	c, err := q.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(t, err)
	seen := map[chanq.ID]bool{}
	require.NoError(t, c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
		seen[l.ID] = true
		if len(seen) == 3 {
			return nil
		}
		receipts, err := q.Send(ctx, chanq.Msg(l.Body))
		require.False(t, receipts[0].Duplicate)
		return err
	}))
	require.Len(t, seen, 3)
	for _, field := range []string{"Message", "Delay", "TTL"} {
		_, found := reflect.TypeFor[chanq.Lease[string]]().FieldByName(field)
		require.False(t, found, field)
	}
}

// An error determines what happens to a message, the same one for a handler, Settle and Nack. There is no method for
// each outcome.
func TestADeliveryHasOneMethodForAllFailures(t *testing.T) {
	var methods []string
	for i := range reflect.TypeFor[*chanq.Delivery]().NumMethod() {
		methods = append(methods, reflect.TypeFor[*chanq.Delivery]().Method(i).Name)
	}
	require.Equal(t, []string{"Ack", "AckTx", "Context", "Deadline", "Extend", "Failures", "Nack", "Release", "Settle",
		"Stopping", "Wait"}, methods)
}

// A lease that a test has made belongs to no message. All its methods return.
func TestALeaseWithoutAConsumerReportsIt(t *testing.T) {
	ctx := t.Context()
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	l := &chanq.Lease[string]{Delivery: chanq.Delivery{Attempt: 3}, Body: "order"}
	for name, do := range map[string]func() error{
		"Ack":          l.Ack,
		"Nack":         func() error { return l.Nack(chanq.RetryAfter(time.Second, nil)) },
		"Release":      l.Release,
		"ReleaseAfter": func() error { return l.Nack(chanq.Snooze(time.Second, nil)) },
		"DeadLetter":   func() error { return l.Nack(chanq.DeadLetter(errors.New("no"))) },
		"Wait":         func() error { return l.Wait(ctx) },
		"Extend":       func() error { return l.Extend(ctx, time.Second) },
		"Lease.AckTx":  func() error { return l.AckTx(ctx, tx) },
		"AckTx":        func() error { return chanq.AckTx(ctx, tx, l) },
		"Ack of many":  func() error { return chanq.Ack(ctx, l) },
	} {
		require.ErrorContains(t, do(), "was not received from a Consumer", name)
	}
	require.NoError(t, l.Context().Err())
	require.Zero(t, l.Deadline())
}

// odd is an error whose methods misbehave.
type odd struct{}

func (odd) Error() string { panic("no text") }

func TestOutcomeReturnsWhatHandleWouldDo(t *testing.T) {
	failure := errors.New("no")
	for _, c := range []struct {
		err  error
		want chanq.HandlerOutcome
	}{
		{nil, chanq.HandlerOutcome{Kind: chanq.OutcomeAck}},
		{failure, chanq.HandlerOutcome{Kind: chanq.OutcomeRetry, Reason: "no"}},
		{chanq.RetryAfter(time.Hour, failure), chanq.HandlerOutcome{Kind: chanq.OutcomeRetryAfter, Delay: time.Hour,
			Reason: "no"}},
		{chanq.RetryAfter(-1, nil), chanq.HandlerOutcome{Kind: chanq.OutcomeRetryAfter}},
		{chanq.Snooze(time.Minute, failure), chanq.HandlerOutcome{Kind: chanq.OutcomeSnooze, Delay: time.Minute,
			Reason: "no"}},
		{fmt.Errorf("fetch: %w", chanq.Snooze(-1, failure)),
			chanq.HandlerOutcome{Kind: chanq.OutcomeSnooze, Reason: "fetch: no"}},
		{chanq.DeadLetter(failure),
			chanq.HandlerOutcome{Kind: chanq.OutcomeDeadLetter, Reason: "no", Cause: chanq.CauseRejected}},
		{errors.Join(chanq.Snooze(1, failure), chanq.DeadLetter(failure)),
			chanq.HandlerOutcome{Kind: chanq.OutcomeDeadLetter, Reason: "no\nno", Cause: chanq.CauseRejected}},
		{chanq.DeadLetterAs(chanq.CauseExhausted, failure),
			chanq.HandlerOutcome{Kind: chanq.OutcomeDeadLetter, Reason: "no", Cause: chanq.CauseExhausted}},
		{fmt.Errorf("mail: %w", chanq.DeadLetterAs(chanq.CauseUndecodable, failure)),
			chanq.HandlerOutcome{Kind: chanq.OutcomeDeadLetter, Reason: "mail: chanq: cannot decode: no",
				Cause: chanq.CauseUndecodable}},
		{chanq.DeadLetterAs(chanq.CauseKilled, failure),
			chanq.HandlerOutcome{Kind: chanq.OutcomeDeadLetter, Reason: "no", Cause: chanq.CauseRejected}},
	} {
		require.Equal(t, c.want, chanq.Outcome(c.err))
	}
	require.Equal(t, chanq.OutcomeRetry, chanq.Outcome(odd{}).Kind)
	require.Contains(t, chanq.Outcome(odd{}).Reason, "odd")
}

// broken is an error with a method that does not return.
type broken struct {
	error
	method string
	end    func()
}

func (e broken) call(method string) {
	if e.method == method {
		e.end()
	}
}
func (e broken) Error() string { e.call("Error"); return "broken" }
func (e broken) Unwrap() error { e.call("Unwrap"); return e.error }
func (e broken) Is(error) bool { e.call("Is"); return false }
func (e broken) As(any) bool   { e.call("As"); return false }

// hidden passes on what As finds in it, and nothing else.
type hidden struct{ inner error }

func (hidden) Error() string        { return "hidden" }
func (e hidden) As(target any) bool { return errors.As(e.inner, target) }

func TestWrappersOfAnErrorWhoseMethodsPanicKeepTheirEffect(t *testing.T) {
	for _, method := range []string{"Error", "Unwrap", "Is", "As"} {
		for how, end := range map[string]func(){"panics": func() { panic("no") }, "exits": runtime.Goexit} {
			bad := broken{errors.New("inner"), method, end}
			for _, c := range []struct {
				kind  chanq.OutcomeKind
				delay time.Duration
				wrap  func(error) error
			}{
				{chanq.OutcomeRetryAfter, time.Minute,
					func(err error) error { return chanq.RetryAfter(time.Minute, err) }},
				{chanq.OutcomeSnooze, time.Hour, func(err error) error { return chanq.Snooze(time.Hour, err) }},
				{chanq.OutcomeDeadLetter, 0, chanq.DeadLetter},
				{chanq.OutcomeSnooze, time.Hour, func(err error) error {
					return chanq.RetryAfter(time.Minute,
						chanq.Snooze(time.Hour, err))
				}},
			} {
				wrapped := c.wrap(bad)
				for where, err := range map[string]error{
					"around it": wrapped, "beside it": errors.Join(bad, c.wrap(nil)),
					"hidden": hidden{errors.Join(nil, wrapped)},
				} {
					o := chanq.Outcome(err)
					require.Equal(t, c.kind, o.Kind, "%s %s: %T %s", method, how, wrapped, where)
					require.Equal(t, c.delay, o.Delay)
					require.NotEmpty(t, o.Reason)
				}
			}
			require.Equal(t, chanq.OutcomeRetry, chanq.Outcome(bad).Kind)
		}
	}
}

func TestExponentialBackoffDoublesWithJitterUpToItsLimit(t *testing.T) {
	delay := chanq.ExponentialBackoff(time.Second, 10*time.Second)
	for attempt, most := range []time.Duration{1, 1, 2, 4, 8, 10, 10, 10} {
		most *= time.Second
		low, high := most, time.Duration(0)
		for range 300 {
			d := delay(&chanq.Delivery{Attempt: attempt}, nil)
			require.Positive(t, d)
			require.LessOrEqual(t, d, most+time.Millisecond)
			low, high = min(low, d), max(high, d)
		}
		require.GreaterOrEqual(t, low, most/2, "attempt %d", attempt)
		require.Less(t, low, most*5/8, "attempt %d: a random part", attempt)
		require.Greater(t, high, most*7/8, "attempt %d", attempt)
	}
	require.LessOrEqual(t, delay(&chanq.Delivery{Attempt: 1_000_000}, nil), 10*time.Second+time.Millisecond)
	for _, odd := range []func(*chanq.Delivery, error) time.Duration{
		chanq.ExponentialBackoff(0, 0), chanq.ExponentialBackoff(-time.Second, -time.Second),
		chanq.ExponentialBackoff(time.Hour, time.Second), chanq.ExponentialBackoff(1<<62, 1<<62),
	} {
		for attempt := range 100 {
			require.Positive(t, odd(&chanq.Delivery{Attempt: attempt}, nil))
		}
	}
}

func TestJoinHooksCallsEachInOrderAndSurvivesPanics(t *testing.T) {
	var got []string
	note := func(name string) chanq.Hooks {
		return chanq.Hooks{
			Sent:         func(e chanq.SentEvent) { got = append(got, name+" sent "+e.Queue) },
			Claimed:      func(e chanq.ClaimedEvent) { got = append(got, name+" claimed "+e.Queue) },
			Settled:      func(e chanq.SettledEvent) { got = append(got, name+" settled "+e.Queue) },
			LeaseLost:    func(e chanq.LeaseLostEvent) { got = append(got, name+" lost "+e.Queue) },
			Handled:      func(e chanq.HandledEvent) { got = append(got, name+" handled "+e.Queue) },
			Unsent:       func(e chanq.UnsentEvent) { got = append(got, name+" unsent "+e.Queue) },
			Dead:         func(e chanq.DeadEvent) { got = append(got, name+" dead "+e.Queue) },
			Availability: func(e chanq.AvailabilityEvent) { got = append(got, name+" availability "+e.Queue) },
			Isolated:     func(e chanq.IsolatedEvent) { got = append(got, name+" isolated "+e.Queue) },
			Housekeeping: func(e chanq.HousekeepingEvent) { got = append(got, name+" housekeeping "+e.Queue) },
		}
	}
	panicking := chanq.Hooks{Sent: func(chanq.SentEvent) { panic("a hook") }}
	h := chanq.JoinHooks(note("a"), chanq.Hooks{}, panicking, note("b"))
	h.Sent(chanq.SentEvent{Queue: "q"})
	h.Claimed(chanq.ClaimedEvent{Queue: "q"})
	h.Settled(chanq.SettledEvent{Queue: "q"})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "q"})
	h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q"}})
	h.Unsent(chanq.UnsentEvent{Queue: "q"})
	h.Dead(chanq.DeadEvent{Queue: "q"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q"})
	h.Isolated(chanq.IsolatedEvent{Queue: "q"})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q"})
	require.Equal(t, []string{
		"a sent q", "b sent q", "a claimed q", "b claimed q", "a settled q", "b settled q",
		"a lost q", "b lost q", "a handled q", "b handled q", "a unsent q", "b unsent q", "a dead q", "b dead q",
		"a availability q", "b availability q", "a isolated q", "b isolated q", "a housekeeping q",
		"b housekeeping q",
	}, got)
	require.NotPanics(t, func() { chanq.JoinHooks().Sent(chanq.SentEvent{}) })
}

func TestLogHooksLogLossesAsWarningsAndTheRestForDebugging(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := chanq.LogHooks(log, slog.LevelError)
	id := chanq.NewID()
	h.Sent(chanq.SentEvent{Queue: "q", Messages: 3})
	h.Claimed(chanq.ClaimedEvent{Queue: "q", Messages: 3})
	h.Settled(chanq.SettledEvent{Queue: "q", Acked: 3})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "q", ID: id})
	h.Dead(chanq.DeadEvent{Queue: "q", ID: id, Key: "k", Reason: "enough"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Err: errors.New("gone")})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Up: true})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim", Err: errors.New("refused")})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Up: true, Ended: true})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim", Ended: true})
	handled := func(o chanq.OutcomeKind, err error) {
		h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q", ID: id, Key: "k"}, Outcome: o,
			Next: time.Minute, Took: time.Second, Err: err})
	}
	handled(chanq.OutcomeRetry, errors.New("500"))
	handled(chanq.OutcomeNone, errors.New("500"))
	handled(chanq.OutcomeSnooze, chanq.Snooze(time.Minute, errors.New("429")))
	handled(chanq.OutcomeRelease, errors.New("stopped"))
	handled(chanq.OutcomeAck, nil)
	handled(chanq.OutcomeDeadLetter, errors.New("never"))
	h.Unsent(chanq.UnsentEvent{Queue: "q", ID: id, Err: errors.New("too large")})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 18)
	for i, want := range [][]string{
		{"DEBUG", "messages=3"}, {"DEBUG", "messages=3"}, {"DEBUG", "acked=3"},
		{"WARN", "lease lost", id.String()}, {"WARN", "dead", "key=k", "reason=enough"},
		{"WARN", "does not answer", "err=gone"}, {"INFO", "answers again"},
		{"WARN", "housekeeping", "task=trim", "err=refused"}, {"INFO", "housekeeping", "task=trim"},
		{"INFO", "ended while the database did not answer"}, {"INFO", "ended while housekeeping was refused"},
		{"ERROR", "failed", id.String(), "key=k", "outcome=retry", "next=1m0s", "took=1s", "err=500"},
		{"ERROR", "outcome=none"},
		{"DEBUG", "handled", "outcome=snooze", "err=429"}, {"DEBUG", "outcome=release"}, {"DEBUG", "outcome=ack"},
		{"DEBUG", "outcome=dead-letter", "err=never"}, // the line of the dead letter has the error
		{"WARN", "cannot be stored", id.String(), "too large"},
	} {
		for _, word := range want {
			require.Contains(t, lines[i], word)
		}
	}
	require.NotNil(t, chanq.LogHooks(nil, slog.LevelError).Sent, "nil is the default logger")
}

func TestHooksThatPanicEndNothing(t *testing.T) {
	panicking := chanq.Hooks{
		Sent:    func(chanq.SentEvent) { panic("sent") },
		Claimed: func(chanq.ClaimedEvent) { panic("claimed") },
		Settled: func(chanq.SettledEvent) { panic("settled") },
	}
	_, _, q := opened(t, chanq.Config{Hooks: panicking})
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{})
	require.NoError(t, err)
	for range 3 {
		_, err = p.Send(t.Context(), chanq.Message[string]{})
		require.NoError(t, err)
		l := <-c.C()
		require.NoError(t, l.Ack())
		require.NoError(t, l.Wait(t.Context()))
	}
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, c.Shutdown(t.Context()))
}
