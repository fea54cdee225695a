package chanq_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// A program links what it uses: no driver but its own, no server of the tests, and
// besides the standard library nothing but these.
func TestTheRootPackagePullsInNoDriverAndNoCommand(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	allowed := []string{"jackc/puddle/v2", "sourcegraph/conc", "golang.org/x/sync", "google/uuid", "chanq/chanq/sqlbatch", "chanq/chanq/internal/"}
	for dep := range strings.FieldsSeq(string(out)) {
		require.True(t, dep == "github.com/chanq/chanq" || slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(dep, a) }), dep)
		for _, proof := range []string{"internal/prove", "internal/testdb"} {
			require.NotContains(t, dep, proof)
		}
	}
	require.Contains(t, string(out), "github.com/chanq/chanq/sqlbatch/sqlserver")
}

func TestIDsRiseAndKeepTheirTime(t *testing.T) {
	var mu sync.Mutex
	var made []chanq.ID
	var makers sync.WaitGroup
	before := time.Now().Truncate(time.Millisecond)
	for range 4 {
		makers.Go(func() {
			mine := make([]chanq.ID, 500)
			for i := range mine {
				mine[i] = chanq.NewID()
			}
			rises := func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) }
			if !slices.IsSortedFunc(mine, rises) {
				t.Error("an ID is not greater than the one before")
			}
			mu.Lock()
			defer mu.Unlock()
			made = append(made, mine...)
		})
	}
	makers.Wait()
	seen := map[chanq.ID]bool{}
	for _, id := range made {
		require.False(t, seen[id], "made twice")
		seen[id] = true
		require.WithinRange(t, id.Time(), before, time.Now().Add(time.Second))
		require.False(t, id.IsZero())
	}
	require.True(t, chanq.ID{}.IsZero())
}

func TestIDsAreReadAsTheyAreWritten(t *testing.T) {
	id := chanq.NewID()
	require.Len(t, id.String(), 36)
	parsed, err := chanq.ParseID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, parsed)
	text, err := json.Marshal(map[string]chanq.ID{"id": id})
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "`+id.String()+`"}`, string(text))
	var read map[string]chanq.ID
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, id, read["id"])
	for _, bad := range []string{"", "x", id.String()[1:], id.String() + "0"} {
		_, err := chanq.ParseID(bad)
		requireWords(t, err, "id")
		require.Error(t, new(chanq.ID).UnmarshalText([]byte(bad)))
	}
}

func TestPrioritiesAndStatesHaveNames(t *testing.T) {
	require.Equal(t, "low normal high urgent Priority(9)",
		strings.Join([]string{chanq.PriorityLow.String(), chanq.PriorityNormal.String(), chanq.PriorityHigh.String(), chanq.PriorityUrgent.String(), chanq.Priority(9).String()}, " "))
	require.Equal(t, chanq.PriorityNormal, chanq.Priority(0))
}

func TestExponentialBackoffDoublesWithFullJitterUpToItsLimit(t *testing.T) {
	delay := chanq.ExponentialBackoff(time.Second, 10*time.Second)
	for attempt, most := range []time.Duration{1, 1, 2, 4, 8, 10, 10, 10} {
		most *= time.Second
		low, high := most, time.Duration(0)
		for range 300 {
			d := delay(attempt)
			require.Positive(t, d)
			require.LessOrEqual(t, d, most+time.Millisecond)
			low, high = min(low, d), max(high, d)
		}
		require.Less(t, low, most/4, "attempt %d: jitter is full", attempt)
		require.Greater(t, high, most*3/4, "attempt %d", attempt)
	}
	require.LessOrEqual(t, delay(1_000_000), 10*time.Second+time.Millisecond)
	for _, odd := range []func(int) time.Duration{
		chanq.ExponentialBackoff(0, 0), chanq.ExponentialBackoff(-time.Second, -time.Second), chanq.ExponentialBackoff(time.Hour, time.Second), chanq.ExponentialBackoff(1<<62, 1<<62),
	} {
		for attempt := range 100 {
			require.Positive(t, odd(attempt))
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
			Dead:         func(e chanq.DeadEvent) { got = append(got, name+" dead "+e.Queue) },
			Availability: func(e chanq.AvailabilityEvent) { got = append(got, name+" availability "+e.Queue) },
			Housekeeping: func(e chanq.HousekeepingEvent) { got = append(got, name+" housekeeping "+e.Queue) },
		}
	}
	panicking := chanq.Hooks{Sent: func(chanq.SentEvent) { panic("a hook") }}
	h := chanq.JoinHooks(note("a"), chanq.Hooks{}, panicking, note("b"))
	h.Sent(chanq.SentEvent{Queue: "q"})
	h.Claimed(chanq.ClaimedEvent{Queue: "q"})
	h.Settled(chanq.SettledEvent{Queue: "q"})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "q"})
	h.Dead(chanq.DeadEvent{Queue: "q"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q"})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q"})
	require.Equal(t, []string{
		"a sent q", "b sent q", "a claimed q", "b claimed q", "a settled q", "b settled q",
		"a lost q", "b lost q", "a dead q", "b dead q", "a availability q", "b availability q", "a housekeeping q", "b housekeeping q",
	}, got)
	require.NotPanics(t, func() { chanq.JoinHooks().Sent(chanq.SentEvent{}) })
}

func TestLogHooksLogLossesAsWarningsAndTheRestForDebugging(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := chanq.LogHooks(log)
	id := chanq.NewID()
	h.Sent(chanq.SentEvent{Queue: "q", Messages: 3})
	h.Claimed(chanq.ClaimedEvent{Queue: "q", Messages: 3})
	h.Settled(chanq.SettledEvent{Queue: "q", Acked: 3})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "q", ID: id})
	h.Dead(chanq.DeadEvent{Queue: "q", ID: id, Reason: "enough"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Err: errors.New("gone")})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Up: true})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim", Err: errors.New("refused")})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim"})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 9)
	for i, want := range [][]string{
		{"DEBUG", "messages=3"}, {"DEBUG", "messages=3"}, {"DEBUG", "acked=3"},
		{"WARN", "lease lost", id.String()}, {"WARN", "dead", "reason=enough"},
		{"WARN", "does not answer", "err=gone"}, {"INFO", "answers again"},
		{"WARN", "housekeeping", "task=trim", "err=refused"}, {"INFO", "housekeeping", "task=trim"},
	} {
		for _, word := range want {
			require.Contains(t, lines[i], word)
		}
	}
	require.NotNil(t, chanq.LogHooks(nil).Sent, "nil is the default logger")
}

func TestHooksThatPanicEndNothing(t *testing.T) {
	panicking := chanq.Hooks{
		Sent:    func(chanq.SentEvent) { panic("sent") },
		Claimed: func(chanq.ClaimedEvent) { panic("claimed") },
		Settled: func(chanq.SettledEvent) { panic("settled") },
	}
	_, _, q := opened(t, chanq.Config{Hooks: panicking})
	p, err := q.Producer(chanq.ProducerConfig{})
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
