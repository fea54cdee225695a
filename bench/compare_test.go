package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
)

// compared returns the result of compare for a dozen rounds before and after, in which other
// figures vary by 20 %.
func compared(t *testing.T, rounds int, change func(round int, r *measure.Result)) (string, error) {
	t.Helper()
	var before, after []measure.Result
	for round := range rounds {
		noise := 1 + 0.2*float64(round%3)
		r := measure.Result{
			Engine: "sqlite", Strategy: "chanq", EnqueuePerS: 1000 * noise, DrainPerS: 500 * noise, PipelinePerS: 300 * noise,
			EnqueueCPU: 3, DrainCPU: 4, EnqueueAllocs: 3, DrainAllocs: 8, StatementsPerMessage: 0.004,
		}
		before = append(before, r)
		change(round, &r)
		after = append(after, r)
	}
	var out bytes.Buffer
	err := runCompare([]string{record(t, before...), record(t, after...)}, &out, &out)
	return strings.Join(strings.Fields(out.String()), " "), err
}

func TestTwoEqualVersionsAreNotWorse(t *testing.T) {
	text, err := compared(t, 12, func(int, *measure.Result) {})
	require.NoError(t, err)
	require.Contains(t, text, "sqlite chanq enqueue/s 1200 1200 1.000 (1.00-1.00)")
	require.NotContains(t, text, "WORSE")
}

func TestAVersionThatIsSlowerInEveryRoundIsWorse(t *testing.T) {
	text, err := compared(t, 12, func(_ int, r *measure.Result) { r.DrainPerS *= 0.95; r.PipelinePerS *= 0.98; r.EnqueueCPU *= 0.5 })
	require.ErrorContains(t, err, "worse figures: 1")
	require.Contains(t, text, "drain/s 600 570 0.950 (0.95-0.95) WORSE")
}

func TestOneAllocationInTenMessagesMoreIsWorse(t *testing.T) {
	text, err := compared(t, 12, func(_ int, r *measure.Result) { r.DrainAllocs += 0.1 })
	require.ErrorContains(t, err, "worse figures: 1")
	require.Contains(t, text, "allocs/msg, drain 8.00 8.10 1.012 (1.01-1.01) WORSE")
}

func TestQueuesOfDifferentKeysAreComparedApart(t *testing.T) {
	text, err := compared(t, 12, func(_ int, r *measure.Result) { r.Keys = 1 })
	require.ErrorContains(t, err, "nothing to compare", text)
}

func TestADisturbedRoundIsNotJudged(t *testing.T) {
	text, err := compared(t, 12, func(round int, r *measure.Result) {
		if round%2 == 0 {
			r.EnqueuePerS /= 3
		}
	})
	require.NoError(t, err, text)
	require.Contains(t, text, "(0.33-1.00)")
}

func TestFewRoundsAreNoProof(t *testing.T) {
	_, err := compared(t, 9, func(int, *measure.Result) {})
	require.ErrorContains(t, err, "9 rounds are too few")
}

func TestFilesWithNothingInCommonAreNotEqual(t *testing.T) {
	ours, theirs := record(t, measure.Result{Engine: "sqlite", Strategy: "chanq", DrainPerS: 1}), record(t, measure.Result{Engine: "postgres", Strategy: "chanq", DrainPerS: 1})
	require.ErrorContains(t, runCompare([]string{ours, theirs}, new(bytes.Buffer), new(bytes.Buffer)), "nothing to compare")
	require.ErrorContains(t, runCompare([]string{ours}, new(bytes.Buffer), new(bytes.Buffer)), "two files")
}

func TestChanceIsABinomialTail(t *testing.T) {
	require.InDelta(t, 1, byChance(0, 10), 1e-12)
	require.InDelta(t, 1./1024, byChance(10, 10), 1e-12)
	require.InDelta(t, 11./1024, byChance(9, 10), 1e-12)
}
