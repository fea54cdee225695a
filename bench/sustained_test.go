package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/internal/testdb/pgtest"
)

func TestASustainedRunTellsEachIntervalAndLeavesNothing(t *testing.T) {
	check := func(t *testing.T, engine ...string) {
		results := runJSON(t, append([]string{"sustained", "-for", "1s", "-every", "200ms", "-backlog", "500", "-consumers", "2"}, engine...)...)
		require.GreaterOrEqual(t, len(results), 3)
		for i, r := range results {
			require.InDelta(t, 0.2*float64(i+1), r.AtS, 0.19)
			require.LessOrEqual(t, r.Backlog, 500)
			require.Positive(t, r.TableBytes)
		}
		last := results[len(results)-1]
		require.Positive(t, last.DrainPerS)
		require.Positive(t, last.P50)
		require.GreaterOrEqual(t, last.P99, last.P50)
	}
	t.Run("sqlite", func(t *testing.T) { check(t) })
	t.Run("postgres", func(t *testing.T) { check(t, "-engine", "postgres", "-dsn", pgtest.DSN(t)) })
}

func TestOtherProcessesReadASustainedRunAtARate(t *testing.T) {
	results := runJSON(t, "sustained", "-for", "2s", "-every", "500ms", "-rate", "400", "-processes", "2", "-db", filepath.Join(t.TempDir(), "x.db"))
	sent, received := 0.0, 0.0
	for _, r := range results {
		sent += r.EnqueuePerS * 0.5
		received += r.DrainPerS * 0.5
		require.Equal(t, 2, r.Processes)
	}
	require.InDelta(t, 600, sent, 250, "four hundred a second")
	require.Positive(t, received)
}

func TestASustainedRunPlotsAndComparesItsEnds(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "x.svg")
	var out bytes.Buffer
	results := []measure.Result{{DrainPerS: 100, AtS: 5}, {DrainPerS: 90, AtS: 10}, {DrainPerS: 90, AtS: 15}, {DrainPerS: 80, AtS: 20}, {DrainPerS: 50, AtS: 25}}
	require.NoError(t, writeSustainedEnd(&out, options{plot: plot}, results))
	require.Contains(t, out.String(), "last fifth / first fifth: 0.50 (50 / 100 a second)")
	drawn, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(drawn), "<svg")
	_, err = parse("sustained", []string{"-every", "1s", "-for", "100ms"}, io.Discard)
	require.ErrorContains(t, err, "-for")
}
