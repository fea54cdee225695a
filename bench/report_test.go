package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
)

// record writes results like a run.
func record(t *testing.T, results ...measure.Result) string {
	t.Helper()
	var lines bytes.Buffer
	for _, r := range results {
		require.NoError(t, measure.Write(&lines, r))
	}
	path := filepath.Join(t.TempDir(), "recorded.jsonl")
	require.NoError(t, os.WriteFile(path, lines.Bytes(), 0o600))
	return path
}

func TestAReportShowsEveryKindOfResult(t *testing.T) {
	ours := record(t,
		measure.Result{
			Engine: "postgres", Strategy: "raw", N: 100, BodyBytes: 200, Batch: 50, Round: 1, EnqueuePerS: 1000, DrainPerS: 500, PipelinePerS: 300,
			EnqueueStatement: 900, ClaimStatement: 1000, AckStatement: 800, GOOS: "linux", GOARCH: "amd64", CPU: "Abacus", Server: "PostgreSQL 15", Command: "go run ./bench",
		},
		measure.Result{Engine: "postgres", Strategy: "chanq", N: 100, BodyBytes: 200, Batch: 50, Round: 1, EnqueuePerS: 900, DrainPerS: 600, PipelinePerS: 330},
		measure.Result{Engine: "postgres", Strategy: "chanq", BodyBytes: 200, Batch: 50, Round: 1, RatePerS: 77, Load: 0.1, Processes: 2, P50: 1234, P99: 2345, P999: 3456, CommitP50: 456},
		measure.Result{Engine: "postgres", Strategy: "raw", BodyBytes: 200, Round: 1, Axis: "backlog", Size: 1000, ClaimStatement: 2},
		measure.Result{Engine: "postgres", Strategy: "raw", BodyBytes: 200, Round: 1, Axis: "backlog", Size: 5_000_000, ClaimStatement: 2.5},
	)
	peers := filepath.Join(t.TempDir(), "peers.jsonl") // another program's lines have fewer fields
	require.NoError(t, os.WriteFile(peers, []byte(`{"engine":"postgres","strategy":"<peer>","n":100,"body_bytes":200,"round":1,"enqueue_per_s":450,"drain_per_s":60,"pipeline_per_s":33}
{"engine":"postgres","strategy":"chanq","n":100,"body_bytes":200,"round":1,"enqueue_per_s":777,"drain_per_s":60,"rate_per_s":500,"enqueue_to_deliver_p50_us":4321}`+"\n"), 0o600))
	out := filepath.Join(t.TempDir(), "made")
	require.NoError(t, run(t.Context(), []string{"report", "-in", ours + "," + peers, "-out", out}, io.Discard, io.Discard))

	page, err := os.ReadFile(filepath.Join(out, "report.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"Abacus, linux/amd64", "PostgreSQL 15", "`go run ./bench`",
		"| raw | 100 | 50 | 1000 | 500 | 300 |", "| chanq / raw | 0.90 | 1.20 | 1.10 |", "| chanq, with peers / <peer> | 1.73 | 1.00 | – |",
		"| chanq | another process | 10 % | 77.0 | 1234 | 2345 | 3456 | 456 | 778 |",
		"| chanq, with peers | 100 | 0 | 777 | 60.0 | – |", "| chanq, with peers | – | 500/s | 500 | 4321 |",
		"| raw | 5000000 | 2.50 | – | – | – | 1.25 |",
	} {
		require.Contains(t, string(page), want)
	}
	plots, err := filepath.Glob(filepath.Join(out, "*.svg"))
	require.NoError(t, err)
	require.Len(t, plots, 4, "throughput, time, latency, backlog")
	for _, plot := range plots {
		require.Contains(t, string(page), "("+filepath.Base(plot)+")", "every plot is shown")
		content, err := os.ReadFile(plot)
		require.NoError(t, err)
		requireXML(t, content)
	}
}

func requireXML(t *testing.T, content []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(content)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(t, err)
		}
	}
}

func TestAReportRunsWhatItReports(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	stale := filepath.Join(out, "growth-of-nothing.svg")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	require.NoError(t, run(t.Context(), []string{
		"report", "-out", out, "-n", "60", "-strategies", "raw,chanq", "-rounds", "1", "-rate", "500", "-for", "50ms",
		"-axes", "batches", "-batches", "10,50", "-samples", "60",
	}, io.Discard, io.Discard))
	require.NoFileExists(t, stale)
	for _, made := range []string{"report.md", "sqlite.jsonl", "throughput-sqlite-200.svg", "latency.svg", "growth-batches.svg"} {
		require.FileExists(t, filepath.Join(out, made))
	}
	// The recorded results produce the same page.
	first, err := os.ReadFile(filepath.Join(out, "report.md"))
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), []string{"report", "-out", out, "-in", filepath.Join(out, "sqlite.jsonl")}, io.Discard, io.Discard))
	second, err := os.ReadFile(filepath.Join(out, "report.md"))
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
}

func TestAReportOfNothingIsAnError(t *testing.T) {
	out := t.TempDir()
	require.ErrorContains(t, run(t.Context(), []string{"report", "-in", record(t), "-out", out}, io.Discard, io.Discard), "nothing to report")
	path := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.ErrorContains(t, run(t.Context(), []string{"report", "-in", path, "-out", out}, io.Discard, io.Discard), "broken")
}

// Other programs write these fields.
func TestFieldsOfALineKeepTheirNames(t *testing.T) {
	text, err := json.Marshal(measure.Result{
		Engine: "e", Strategy: "s", N: 1, BodyBytes: 2, Round: 3, EnqueuePerS: 4, DrainPerS: 5, PipelinePerS: 6,
		StatementsPerMessage: 7, RatePerS: 8, P50: 9, P99: 10, P999: 11,
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"engine":"e","strategy":"s","n":1,"body_bytes":2,"round":3,"enqueue_per_s":4,"drain_per_s":5,"pipeline_per_s":6,
"statements_per_message":7,"rate_per_s":8,"enqueue_to_deliver_p50_us":9,"enqueue_to_deliver_p99_us":10,"enqueue_to_deliver_p999_us":11}`, string(text))
}

func TestACommandLineInAReportHidesTheAddress(t *testing.T) {
	for _, args := range [][]string{{"-dsn", "secret", "-n", "1"}, {"--dsn=secret", "-n", "1"}} {
		line := commandLine("throughput", args)
		require.NotContains(t, line, "secret")
		require.True(t, strings.HasPrefix(line, "go run ./bench throughput -"))
		require.Contains(t, line, `"$DSN" -n 1`)
	}
}

func TestScales(t *testing.T) {
	near := newScale([]float64{5, 10}, 100)
	require.False(t, near.log)
	require.Zero(t, near.at(0), "lengths compare only from zero on")
	require.InDelta(t, 2, near.at(10)/near.at(5), 1e-9)
	far := newScale([]float64{5, 10_000}, 100)
	require.True(t, far.log)
	require.InDelta(t, far.at(100)-far.at(10), far.at(1000)-far.at(100), 1e-9)
	require.Equal(t, []float64{1, 10, 100, 1000, 10_000}, far.ticks())
	require.NotEmpty(t, newScale(nil, 100).ticks())
}

func TestProfilesAreWritten(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-n", "300", "-strategies", "chanq", "-rounds", "1"}
	for _, kind := range []string{"cpu", "mem", "mutex", "block"} {
		args = append(args, "-"+kind+"profile", filepath.Join(dir, kind))
	}
	require.NoError(t, run(t.Context(), args, io.Discard, io.Discard))
	for _, kind := range []string{"cpu", "mem", "mutex", "block"} {
		content, err := os.ReadFile(filepath.Join(dir, kind))
		require.NoError(t, err)
		require.NotEmpty(t, content, kind)
	}
}
