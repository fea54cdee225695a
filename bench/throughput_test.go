package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
)

// runJSON runs a command and returns its results.
func runJSON(t *testing.T, args ...string) []measure.Result {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), append(args, "-format", "json"), &out, io.Discard))
	results, err := measure.Read(&out)
	require.NoError(t, err)
	return results
}

func TestEachRoundOfEachStrategyIsOneLineOfJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sends := map[string]int{"": 0, sendChannel: 0, sendBatch: 0}
	for _, send := range []string{sendChannel, sendBatch} {
		results := runJSON(t, "throughput", "-db", filepath.Join(dir, "x.db"), "-n", "150", "-batch", "60", "-single-n", "5", "-rounds", "2", "-send", send)
		require.Len(t, results, 12)
		seen := map[string]int{}
		for _, r := range results {
			seen[r.Strategy]++
			sends[r.Send]++
			require.Equal(t, seen[r.Strategy], r.Round)
			require.Equal(t, map[string]int{"raw": 150, "chanq": 150, "raw-pipe": 150, "chanq-pipe": 150, "best": 150, "single": 5}[r.Strategy], r.N)
			require.Contains(t, r.Server, "synchronous=FULL")
			for _, v := range []float64{r.EnqueuePerS, r.DrainPerS, r.PipelinePerS, r.StatementsPerMessage, r.AllocsPerMessage} {
				require.Positive(t, v)
			}
		}
		require.Equal(t, map[string]int{"raw": 2, "chanq": 2, "raw-pipe": 2, "chanq-pipe": 2, "best": 2, "single": 2}, seen)
	}
	require.Equal(t, map[string]int{"": 16, sendChannel: 4, sendBatch: 4}, sends)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "the databases are removed")
}

func TestStatementsOfAKnownLoopAreCounted(t *testing.T) {
	t.Parallel()
	for _, r := range runJSON(t, "throughput", "-strategies", "raw,single", "-n", "1000", "-single-n", "50", "-batch", "100", "-rounds", "1") {
		switch r.Strategy {
		case "raw": // 10 each of enqueue, claim and ack
			require.InDelta(t, 0.03, r.StatementsPerMessage, 1e-9)
		case "single":
			require.InDelta(t, 3, r.StatementsPerMessage, 1e-9)
		}
	}
}

func TestAWholeLifeInBatchesOf500TakesAtMostOneStatementForFiftyMessages(t *testing.T) {
	t.Parallel()
	var each float64
	for range 3 { // if a round takes a minute, a consumer also polls and extends
		if each = runJSON(t, "throughput", "-strategies", "chanq", "-n", "2500", "-rounds", "1")[0].StatementsPerMessage; each <= 0.02 {
			return
		}
	}
	require.LessOrEqual(t, each, 0.02)
}

func TestTheTableShowsMediansRangesAndRatios(t *testing.T) {
	results := []measure.Result{
		{Strategy: "raw", Round: 1, N: 9, EnqueuePerS: 100, DrainPerS: 10, PipelinePerS: 1, DrainAllocs: 8},
		{Strategy: "chanq", Round: 1, N: 9, EnqueuePerS: 50, DrainPerS: 10, PipelinePerS: 2, DrainAllocs: 9},
		{Strategy: "raw", Round: 2, N: 9, EnqueuePerS: 200, DrainPerS: 10, PipelinePerS: 1, DrainAllocs: 8},
		{Strategy: "chanq", Round: 2, N: 9, EnqueuePerS: 180, DrainPerS: 10, PipelinePerS: 2, DrainAllocs: 9},
		{Strategy: "chanq", Round: 3, N: 9, EnqueuePerS: 1000, DrainPerS: 10, PipelinePerS: 2, DrainAllocs: 9}, // has no counterpart
	}
	var out bytes.Buffer
	require.NoError(t, writeThroughput(&out, options{}, results))
	text := strings.Join(strings.Fields(out.String()), " ")
	require.Contains(t, text, "raw 9 0 150 (100-200) 10.0 (10.0-10.0)")
	require.Contains(t, text, "chanq 9 0 180 (50.0-1000) 10.0 (10.0-10.0)")
	require.Contains(t, text, "chanq / raw 0.70 1.00 2.00 0.0 + 1.0")
}
