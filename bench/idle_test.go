package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// Every step is measured briefly on every engine.
func TestIdleConsumersAreMeasured(t *testing.T) {
	testdb.Soak(t)
	t.Parallel()
	check := func(t *testing.T, args ...string) {
		t.Parallel()
		results := runJSON(t, append([]string{
			"latency", "-idle", "-rounds", "1", "-for", "200ms", "-rest", "200ms", "-burst", "100ms", "-pairs", "1", "-crowd", "3", "-saturation", "400",
		}, args...)...)
		seen := map[string]int{}
		for _, r := range results {
			seen[fmt.Sprintf("%s %d %v", r.Step, r.Processes-1, r.Notifier)]++
			require.Positive(t, r.N)
			// If a step takes long, the statements of idle consumers are subtracted, at the rate of a short pause.
			require.True(t, r.StatementsPerMessage > 0 || r.IdleStatements > 0, "polls are counted: %+v", r)
			switch r.Step {
			case "enqueue", "singles":
				require.Positive(t, r.EnqueuePerS)
			default:
				require.Positive(t, r.P50)
				require.GreaterOrEqual(t, r.Max, r.P50)
			}
			if r.Gap != "" {
				require.Positive(t, r.CommitP50)
				require.Equal(t, r.Engine == "postgres", r.Connections > 2, "at least two of the sender and one of the idle consumer")
			}
		}
		require.Equal(t, map[string]int{
			"gaps 1 true": 1, "crowd 3 true": 1, "owners 4 true": 1, "half 1 false": 1, "half 1 true": 1,
			"enqueue 0 false": 1, "enqueue 0 true": 1, "enqueue 1 false": 1, "enqueue 1 true": 1, "enqueue 3 false": 1, "enqueue 3 true": 1,
			"singles 0 false": 1, "singles 0 true": 1, "singles 1 false": 1, "singles 1 true": 1,
		}, seen)
	}
	steps := "gaps,crowd,owners,enqueue,singles,half" // cold takes too long
	t.Run("sqlite", func(t *testing.T) { check(t, "-steps", steps) })
	t.Run("postgres", func(t *testing.T) { check(t, "-steps", steps, "-engine", "postgres", "-dsn", pgtest.DSN(t)) })
	t.Run("emulator", func(t *testing.T) { check(t, "-steps", steps, "-engine", "sqlserver", "-dsn", emulator) })
}

func TestOnlyWaitsForTheLockOfNotificationsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = file.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	const line = "LOG:  process 7 still waiting for AccessExclusiveLock on object 0 of class 1262 of database 0 after 10.2 ms\n"
	write(line) // before the measurement
	info, err := os.Stat(path)
	require.NoError(t, err)
	log := &serverLog{path, info.Size()}
	count := func(want int) {
		t.Helper()
		n, err := log.waits()
		require.NoError(t, err)
		require.Equal(t, want, *n)
	}
	count(0)
	write(line + "LOG:  process 7 still waiting for ExclusiveLock on extension of relation 3 of database 5 after 10.1 ms\n" + line +
		"LOG:  process 7 acquired AccessExclusiveLock on object 0 of class 1262 of database 0 after 11 ms\n" + line[:40])
	count(2)
	count(0)
	write(line[40:])
	count(1)
	none, err := (&serverLog{}).waits()
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestAServerThatLogsNoWaitsIsRefused(t *testing.T) {
	err := run(t.Context(), []string{
		"latency", "-idle", "-engine", "postgres", "-dsn", pgtest.DSN(t), "-steps", "gaps", "-log", t.TempDir(),
	}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "log_lock_waits")
}

func sleptIn(step string, sleepers int, gap measure.Gap, took time.Duration, statements float64) measure.Result {
	r := measure.Result{Engine: "postgres", Strategy: "chanq", Notifier: true, Step: step, Gap: gap.String(), Processes: sleepers + 1, Round: 1, N: 100}
	s := slept{Ages: measure.Histogram{}}
	for range r.N {
		s.note(took)
	}
	s.into(&r)
	r.StatementsPerMessage, r.IdleStatements, r.CommitP50 = statements, 0.9, 700
	return r
}

// loaded returns pairs in which the notifier reduces the rate to a part and increases the statements.
func loaded(step string, sleepers int, part float64) (pairs []measure.Result) {
	for round := range 3 {
		off := measure.Result{Engine: "postgres", Strategy: "chanq", Step: step, Processes: sleepers + 1, Round: round, EnqueuePerS: float64(1000 * (round + 1)), StatementsPerMessage: 0.1}
		on := off
		on.Notifier = true
		on.EnqueuePerS *= part
		on.StatementsPerMessage /= part
		pairs = append(pairs, off, on)
	}
	return pairs
}

func TestTargetsAreShownWithTheMeasurements(t *testing.T) {
	two := 2
	results := append(loaded("enqueue", 48, 0.98), loaded("singles", 0, 0.8)...)
	results = append(results, loaded("half", 1, 0.9)...)
	results = append(results,
		sleptIn("gaps", 1, measure.Warm, 2*time.Millisecond, 5), sleptIn("cold", 1, measure.Cold, 30*time.Millisecond, 5),
		sleptIn("crowd", 48, measure.Warm, 4*time.Millisecond, 4.5))
	results[0].LockWaits = &two
	var out bytes.Buffer
	require.NoError(t, writeLatency(&out, options{idle: true, engine: "postgres", rounds: 1}, results))
	for _, want := range []string{
		`gaps of 100ms-500ms: p50 +2\.00 ms +≤ 5 ms +met`,
		`gaps of 2s-4s: p50 +30\.0 ms +≤ 5 ms +MISSED`,
		`gaps of 2s-4s: p99 +30\.0 ms +≤ 20 ms +MISSED`,
		`48 idle consumers, gaps of 100ms-500ms: statements a message +4\.50 +≤ 4 +MISSED`,
		`48 idle consumers, gaps of 100ms-500ms: statements a second of one that idles +0\.90 +≤ 1 +met`,
		`one producer, 48 idle consumers: notifier on / off +0\.98 +≥ 0\.97 +met`,
		`eight producers, no idle consumer: notifier on / off +0\.80 +≥ 0\.9 +MISSED`,
		`half of full speed, one idle consumer: notifier on / off +1\.11 +≤ 1\.05 +MISSED`,
		`waits for the lock of notifications of more than 10 ms +2\.00 +≤ 0 +MISSED`,
	} {
		require.Regexp(t, want, out.String())
	}
	out.Reset()
	require.NoError(t, writeLatency(&out, options{idle: true, engine: "sqlserver", dsn: emulator, rounds: 1}, results))
	require.NotContains(t, out.String(), "≤ 5 ms", "the emulator has no speed")
}

func TestIdleConsumersArePlottedTogether(t *testing.T) {
	in := record(t,
		sleptIn("gaps", 1, measure.Warm, 2*time.Millisecond, 5), sleptIn("gaps", 1, measure.Warm, 3*time.Millisecond, 5), sleptIn("cold", 1, measure.Cold, 3*time.Millisecond, 5),
		sleptIn("crowd", 48, measure.Warm, 4*time.Millisecond, 4.5), loaded("half", 1, 1)[0])
	var out bytes.Buffer
	to := filepath.Join(t.TempDir(), "idle.svg")
	require.NoError(t, run(t.Context(), []string{"plot", "-in", in, "-out", to, "-title", "Asleep"}, &out, io.Discard))
	require.Contains(t, out.String(), "| postgres chanq, notifier | 1 | 100ms-500ms | 200 | 2.0", "the quantiles of the rounds together")
	plot, err := os.ReadFile(to)
	require.NoError(t, err)
	requireXML(t, plot)
	for _, want := range []string{"Asleep", "chanq, notifier, 2s-4s", "48 idle consumers", "slowest: 3.00 ms"} {
		require.Contains(t, string(plot), want)
	}
}

func TestFlagsOfIdleConsumersAreChecked(t *testing.T) {
	_, err := parse("latency", []string{"-idle", "-steps", "gaps,snores", "-crowd", "0", "-pairs", "0", "-rest", "0s", "-log", "x"}, io.Discard)
	for _, problem := range []string{`-steps "snores"`, "-crowd is 0", "-pairs is 0", "-rest is 0s", "-log is for"} {
		require.ErrorContains(t, err, problem)
	}
}
