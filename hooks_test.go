package chanq_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

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
		"a lost q", "b lost q", "a handled q", "b handled q", "a unsent q", "b unsent q", "a dead q", "b dead q", "a availability q", "b availability q", "a isolated q", "b isolated q", "a housekeeping q", "b housekeeping q",
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
		h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q", ID: id, Key: "k"}, Outcome: o, Next: time.Minute, Took: time.Second, Err: err})
	}
	handled(chanq.OutcomeRetry, errors.New("500"))
	handled(chanq.OutcomeNone, errors.New("500"))
	handled(chanq.OutcomeSnooze, errors.New("429"))
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
		{"ERROR", "failed", id.String(), "key=k", "outcome=retry", "next=1m0s", "took=1s", "err=500"}, {"ERROR", "outcome=none"},
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
