package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// runSustained is runJSON of a sustained run with parts intervals. It repeats the run, four times as long, while nothing
// was received: a machine may pause for all of a short one.
func runSustained(t *testing.T, length time.Duration, parts int, args ...string) (results []measure.Result, received int) {
	t.Helper()
	for ; received == 0 && length < 2*time.Minute; length *= 4 {
		results = runJSON(t, append([]string{"sustained", "-for", length.String(), "-every", (length / time.Duration(parts)).String()}, args...)...)
		for _, r := range results {
			received += r.N
		}
	}
	return results, received
}

func TestASustainedRunPrintsEachIntervalAndLeavesNothing(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, engine ...string) []measure.Result {
		t.Parallel()
		results, received := runSustained(t, time.Second, 5, append([]string{"-backlog", "500", "-consumers", "2"}, engine...)...)
		require.LessOrEqual(t, len(results), 5) // a slow machine merges two intervals, or receives nothing in one
		timed := false
		for i, r := range results {
			require.Greater(t, r.AtS, 0.2*float64(i))
			require.LessOrEqual(t, r.Backlog, 500)
			timed = timed || r.P50 > 0
			require.GreaterOrEqual(t, r.P99, r.P50)
		}
		last := results[len(results)-1]
		require.Greater(t, last.AtS, 0.89)
		require.Positive(t, received)
		require.True(t, timed)
		require.Equal(t, 2, last.Consumers)
		return results
	}
	t.Run("sqlite", func(t *testing.T) {
		for _, r := range check(t) {
			require.Positive(t, r.TableBytes)
		}
	})
	t.Run("sqlserver", func(t *testing.T) { check(t, "-engine", "sqlserver", "-dsn", emulator) })
	t.Run("postgres", func(t *testing.T) {
		results := check(t, "-engine", "postgres", "-dsn", pgtest.DSN(t))
		for _, r := range results {
			require.Positive(t, r.TableBytes)
			require.Positive(t, r.IndexBytes)
		}
		require.Greater(t, measure.Summarise(results).WALPerMsg, 200.0, "the body at least is logged")
	})
}

func TestASnapshotCanBeHeldOnEachEngine(t *testing.T) {
	t.Parallel()
	for _, o := range []options{{engine: "sqlite"}, {engine: "sqlserver", dsn: emulator}, {engine: "postgres"}} {
		t.Run(o.engine, func(t *testing.T) {
			if o.engine == "postgres" {
				o.dsn = pgtest.DSN(t)
			}
			s, err := openQueue(t.Context(), o)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.remove()) }()
			put := func() {
				require.NoError(t, s.session(t.Context(), func(session *bareSession) error { return session.enqueue(makeBodies(10, 20)) }))
			}
			put()
			release, err := s.holdSnapshot(t.Context())
			require.NoError(t, err)
			put() // never blocks
			require.NoError(t, release())
			if o.engine == "sqlite" { // only one writer
				return
			}
			release, err = s.holdSender(t.Context())
			require.NoError(t, err)
			put()
			require.NoError(t, release())
		})
	}
}

func TestOtherProcessesReadASustainedRunAtARate(t *testing.T) {
	sent, received, at := 0.0, 0.0, 0.0
	for range 5 { // a sender that pauses at the end of a run has sent fewer
		results := runJSON(t, "sustained", "-for", "2s", "-every", "500ms", "-rate", "400", "-processes", "2", "-db", filepath.Join(t.TempDir(), "x.db"))
		sent, received, at = 0, 0, 0
		for _, r := range results {
			sent += r.EnqueuePerS * (r.AtS - at)
			received += r.DrainPerS * (r.AtS - at)
			at = r.AtS
			require.Equal(t, 2, r.Processes)
		}
		require.LessOrEqual(t, sent, 400*at+250)
		if sent >= 400*at-250 && received > 0 {
			break
		}
	}
	require.InDelta(t, 400*at, sent, 250, "four hundred a second")
	require.Positive(t, received)
}

func TestASustainedRunIsPrintedRecordedAndPlotted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recorded, plot := filepath.Join(dir, "x.jsonl"), filepath.Join(dir, "x.svg")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"sustained", "-for", "500ms", "-every", "100ms", "-record", recorded, "-plot", plot}, &out, io.Discard))
	require.Contains(t, out.String(), measure.SustainedHead)
	require.Contains(t, out.String(), "last fifth / first fifth")
	drawn, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(drawn), "sqlite chanq")
	results, err := measure.ReadFile(recorded)
	require.NoError(t, err)
	require.NotEmpty(t, results)
	_, err = parse("sustained", []string{"-every", "1s", "-for", "100ms"}, io.Discard)
	require.ErrorContains(t, err, "-for")
	_, err = parse("sustained", []string{"-hold-send"}, io.Discard)
	require.ErrorContains(t, err, "one writer")
	_, err = parse("sustained", []string{"-engine", "postgres", "-hold", "-hold-send"}, io.Discard)
	require.ErrorContains(t, err, "one after the other")
}

func TestSeveralRunsMakeOnePlotAndOneTable(t *testing.T) {
	var free, held []measure.Result
	for i := range 10 {
		r := measure.Result{Engine: "postgres", Strategy: "chanq", AtS: float64(5 * (i + 1)), N: 10, DrainPerS: 1000, Processes: 4}
		free = append(free, r)
		r.Held, r.DrainPerS, r.Processes = i > 1, 500, 1
		held = append(held, r)
	}
	river := measure.Result{Engine: "postgres", Strategy: "river-pgx-tuned", AtS: 5, N: 10, DrainPerS: 100}
	in := record(t, append(free, held...)...) + "," + record(t, river)
	plot := filepath.Join(t.TempDir(), "x.svg")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"plot", "-in", in, "-out", plot, "-title", "three runs"}, &out, io.Discard))
	drawn, err := os.ReadFile(plot)
	require.NoError(t, err)
	for _, want := range []string{"three runs", "postgres chanq, 4 processes", "postgres chanq, snapshot held", "postgres river-pgx-tuned"} {
		require.Contains(t, string(drawn), want)
	}
	require.Contains(t, out.String(), "| postgres chanq, 4 processes | 50 | 1,000 | 1,000 | 1.00 |")
	require.Contains(t, out.String(), "| postgres chanq, snapshot held | 50 | 500 | 500 | 1.00 |")
	require.ErrorContains(t, run(t.Context(), []string{"plot", "-in", record(t)}, io.Discard, io.Discard), "nothing to plot")
}
