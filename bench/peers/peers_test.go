package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

// isOurs reports whether a strategy uses chanq's statements.
func isOurs(strategy string) bool { return strings.HasPrefix(strategy, "chanq") || strategy == "raw" }

// TestMain lets the test binary be the program that it starts for each phase.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == measureArgument {
		peer.Main(linked)
		return
	}
	goleak.VerifyTestMain(m)
}

// Every system runs every phase, and chanq leaves nothing behind. Systems on PostgreSQL are included if
// CHANQ_TEST_POSTGRES is set.
func TestEverySystemIsMeasured(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-n", "60", "-rounds", "1", "-rate", "500", "-dir", dir, "-format", "json"}
	want := systems
	if dsn := os.Getenv("CHANQ_TEST_POSTGRES"); dsn != "" {
		args = append(args, "-dsn", dsn)
	} else {
		t.Log("SKIPPED on PostgreSQL: CHANQ_TEST_POSTGRES is not set")
		want = want[8:]
	}
	var out, said bytes.Buffer
	require.NoError(t, run(t.Context(), args, &out, &said), said.String())
	var names []string
	for line := range strings.Lines(out.String()) {
		var r measure.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		names = append(names, r.Engine+"/"+r.Strategy)
		for figure, value := range map[string]float64{
			"enqueue": r.EnqueuePerS, "drain": r.DrainPerS, "pipeline": r.PipelinePerS, "p50": float64(r.P50), "p99.9": float64(r.P999),
			"first delivery": r.FirstDeliveryMS,
		} {
			assert.Positive(t, value, "%s of %s", figure, line)
		}
		assert.Equal(t, 1, r.Round)
		if r.Engine == sqlite {
			assert.Positive(t, r.EnqueueStatements)
			assert.Positive(t, r.DrainStatements)
		}
		if counted := r.StatementsPerMessage > 0; r.Engine == postgres && counted {
			assert.Greater(t, r.EnqueueWAL, 200.0, "the body at least is logged: %s", line)
			assert.Positive(t, r.DrainWAL)
		}
		switch {
		case isOurs(r.Strategy), r.Strategy == "backlite", r.Engine == files:
			assert.Zero(t, r.LeftRows, line)
		default:
			assert.EqualValues(t, 60, r.LeftRows, line)
		}
	}
	assert.ElementsMatch(t, systemNames(want), names)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "stores and programs are removed")
}

// A sustained run has the same columns for every observable system.
func TestASustainedRunIsMeasuredOfEachSystem(t *testing.T) {
	dir := t.TempDir()
	chosen := []string{"sqlite/chanq"}
	args := []string{sustainedArgument, "-backlog", "1000", "-hold", "-dir", dir}
	if dsn := os.Getenv("CHANQ_TEST_POSTGRES"); dsn != "" {
		args = append(args, "-dsn", dsn)
		chosen = append(chosen, append(longSystems, "postgres/raw")...)
	}
	args = append(args, "-systems", strings.Join(chosen, ","))
	var out, said bytes.Buffer
	var of map[string][]measure.Result
	idle := func(name string) bool {
		return !slices.ContainsFunc(of[name], func(r measure.Result) bool { return r.N > 0 })
	}
	// Again, four times as long, while a system has received nothing: a machine may pause for all of a short run.
	for length := time.Second; length < time.Minute && (of == nil || slices.ContainsFunc(chosen, idle)); length *= 4 {
		out.Reset()
		recorded := filepath.Join(t.TempDir(), "x.jsonl")
		require.NoError(t, run(t.Context(), append(args, "-for", length.String(), "-every", (length/5).String(), "-record", recorded), &out, &said), said.String())
		results, err := measure.ReadFile(recorded)
		require.NoError(t, err)
		of = map[string][]measure.Result{}
		for _, r := range results {
			of[r.Engine+"/"+r.Strategy] = append(of[r.Engine+"/"+r.Strategy], r)
		}
	}
	require.Len(t, of, len(chosen))
	for _, name := range chosen {
		intervals := of[name]
		require.NotEmpty(t, intervals, name)
		require.LessOrEqual(t, len(intervals), 5, name) // a slow machine merges two intervals
		received := 0
		for _, r := range intervals {
			assert.LessOrEqual(t, r.Backlog, 1000, name)
			assert.Positive(t, r.TableBytes, name)
			assert.NotContains(t, r.Command, "host=", "an address may contain a password")
			received += r.N
		}
		assert.Positive(t, received, name)
		s := measure.Summarise(intervals)
		assert.Positive(t, s.P50, name)
		if intervals[0].Engine == postgres {
			assert.Greater(t, s.WALPerMsg, 200.0, "the body at least is logged: %s", name)
		}
		assert.Contains(t, out.String(), name+": ")
	}
	assert.Equal(t, len(chosen), strings.Count(out.String(), "last fifth / first fifth"))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "stores and programs are removed")
}

// Idle receivers are measured with both gaps, in every system.
func TestIdleConsumersAreMeasured(t *testing.T) {
	dir := t.TempDir()
	chosen := []string{"sqlite/chanq"}
	args := []string{idleArgument, "-for", "10ms", "-rest", "10ms", "-dir", dir}
	if dsn := os.Getenv("CHANQ_TEST_POSTGRES"); dsn != "" {
		args = append(args, "-dsn", dsn)
		chosen = append(chosen, sleepingSystems...)
	}
	recorded := filepath.Join(t.TempDir(), "x.jsonl")
	var out, said bytes.Buffer
	require.NoError(t, run(t.Context(), append(args, "-systems", strings.Join(chosen, ","), "-record", recorded), &out, &said), said.String())
	results, err := measure.ReadFile(recorded)
	require.NoError(t, err)
	require.Len(t, results, 2*len(chosen))
	for i, r := range results {
		assert.Equal(t, chosen[i/2], r.Engine+"/"+r.Strategy)
		assert.Equal(t, []measure.Gap{measure.Warm, measure.Cold}[i%2].String(), r.Gap)
		assert.Equal(t, 1, r.N)
		assert.Positive(t, r.CommitP50, chosen[i/2])
		assert.Positive(t, r.Max, chosen[i/2])
		assert.NotContains(t, r.Command, "host=", "an address may contain a password")
		assert.Contains(t, out.String(), r.Engine+" "+r.Strategy)
	}
}

func TestASustainedProcessThatEndsEarlyIsReported(t *testing.T) {
	b := &bench{messages: io.Discard, programs: map[string]string{"sqlite/none": os.Args[0]}}
	s := system{engine: sqlite, strategy: "none"}
	_, err := b.startSustained(t.Context(), s, peer.Job{Engine: sqlite, Strategy: "none", Phase: peer.Sustained})
	assert.ErrorContains(t, err, "did not begin")
	assert.ErrorContains(t, err, "unknown system sqlite/none")
}

func TestADrainAloneHasNoPipelineAndNoLatency(t *testing.T) {
	var out, said bytes.Buffer
	args := []string{"-n", "50", "-rounds", "1", "-drain-only", "-systems", "sqlite/chanq", "-dir", t.TempDir()}
	require.NoError(t, run(t.Context(), args, &out, &said), said.String())
	assert.Regexp(t, `sqlite/chanq +[0-9]+ +[0-9]+ +–`, out.String())
	assert.NotContains(t, out.String(), "send to delivery")
}

func TestAFailingSystemIsReportedAndTheOthersAreMeasured(t *testing.T) {
	var out, said bytes.Buffer
	o, err := parse([]string{"-n", "20", "-rounds", "1", "-systems", "sqlite/chanq,sqlite/backlite", "-dir", t.TempDir()}, &said)
	require.NoError(t, err)
	o.systems[1].strategy = "nonsense"
	b, err := newBench(t.Context(), o, &said)
	require.NoError(t, err)
	var results []measure.Result
	err = b.measureAll(t.Context(), func(r measure.Result) { results = append(results, r) })
	assert.ErrorContains(t, err, "sqlite/nonsense, round 1: setup: exit status 1: unknown system sqlite/nonsense")
	require.Len(t, results, 1)
	require.NoError(t, writeTable(&out, o, b.about, results))
	assert.Contains(t, out.String(), "sqlite/chanq")
	require.NoError(t, b.close())
}

func TestAPhaseEndsWithItsTimeout(t *testing.T) {
	b := &bench{options: options{patience: time.Nanosecond}, messages: io.Discard, programs: map[string]string{"sqlite/chanq": os.Args[0]}}
	_, err := b.child(context.Background(), system{engine: sqlite, strategy: "chanq"}, peer.Job{Phase: peer.Setup})
	assert.ErrorContains(t, err, "longer than -patience 1ns")
}

func TestTheTableHasMediansRangesAndTheRatiosOfRounds(t *testing.T) {
	o := options{n: 100, body: 200, rounds: 3, rate: 50, latencyN: 10, systems: []system{
		{engine: sqlite, strategy: "chanq", note: "ours"}, {engine: sqlite, strategy: "backlite", note: "theirs"}, {engine: files, strategy: "other", note: "elsewhere"},
	}}
	var results []measure.Result
	for round, rate := range []float64{100, 900, 200} { // a noisy machine: both systems are fast in round 2
		results = append(results,
			measure.Result{Engine: sqlite, Strategy: "chanq", N: 100, Round: round + 1, DrainPerS: rate * 3, P50: 1500},
			measure.Result{Engine: files, Strategy: "other", N: 100, Round: round + 1, DrainPerS: 5, Saturated: round == 1})
		if round != 0 {
			results = append(results, measure.Result{Engine: sqlite, Strategy: "backlite", N: 100, Round: round + 1, DrainPerS: rate, P50: 3000, LeftRows: 100})
		}
	}
	var out bytes.Buffer
	require.NoError(t, writeTable(&out, o, "a machine", results))
	text := out.String()
	assert.Regexp(t, `sqlite/chanq +– +600 \(300-2700\)`, text)
	assert.Regexp(t, `sqlite/chanq / backlite +– +3\.00 +– +0\.50`, text)
	assert.Regexp(t, `files/other +0\.00 .*SATURATED`, text)
	assert.Contains(t, text, "sqlite/backlite: FAILED in 1 of 3 rounds")
	assert.NotContains(t, text, "/ other", "no ratio between engines")
}

// Each way to keep order continues with keys that are not being processed, and takes no message of those
// that are.
func TestWaysToKeepOrderAreMeasured(t *testing.T) {
	dsn := os.Getenv("CHANQ_TEST_POSTGRES")
	if dsn == "" {
		t.Skip("NOT TESTED: CHANQ_TEST_POSTGRES is not set")
	}
	var out bytes.Buffer
	args := []string{orderArgument, "-dsn", dsn, "-n", "300", "-keys", "200", "-free", "150", "-blocked", "60", "-most", "2m", "-format", "json"}
	require.NoError(t, run(t.Context(), args, &out, io.Discard))
	results, err := measure.Read(&out)
	require.NoError(t, err)
	require.Len(t, results, 2*len(orderSystems))
	for i, r := range results {
		assert.Equal(t, orderSystems[i/2].name, r.Strategy)
		assert.Equal(t, []int{300, 150}[i%2], r.N, r.Strategy)
		assert.Positive(t, r.ClaimStatement, r.Strategy)
	}
	out.Reset()
	o, err := parseOrder(args[1:], io.Discard)
	require.NoError(t, err)
	require.NoError(t, measure.WriteTables(&out, orderTable(o, "a server", results)))
	assert.Contains(t, out.String(), "ms to fetch 100, 60 blocked")
	out.Reset()
	results[1].N, results[1].ClaimStatement = 0, fetchTime(time.Minute, 0) // cancelled after that time
	require.NoError(t, measure.WriteTables(&out, orderTable(o, "a server", results)))
	assert.Contains(t, out.String(), "more than 60000")
	_, err = parseOrder([]string{"-blocked", "many", "-systems", "none"}, io.Discard)
	assert.ErrorContains(t, err, `"many"`)
	assert.ErrorContains(t, err, "-dsn is needed")
}

// None of them takes a message whose key is being processed.
func TestWaysToKeepOrderTakeNothingOfALeasedKey(t *testing.T) {
	dsn := os.Getenv("CHANQ_TEST_POSTGRES")
	if dsn == "" {
		t.Skip("NOT TESTED: CHANQ_TEST_POSTGRES is not set")
	}
	server, err := connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.close()) }()
	for _, s := range orderSystems[1:] {
		err := s.onQueue(t.Context(), server, func(q orderedQueue, tidy func() error) error {
			require.NoError(t, q.send(t.Context(), []string{"a", "b", "a", "b", "c", "a"}, "x"))
			require.NoError(t, q.hold(t.Context(), 2)) // messages of a and b
			ids, err := q.(shapedQueue).take(t.Context(), 10, time.Minute)
			require.Len(t, ids, 1, s.name)
			return err
		})
		require.NoError(t, err, s.name)
	}
}

func TestAllOptionsAreCheckedTogether(t *testing.T) {
	_, err := parse([]string{"-n", "0", "-body", "3", "-rounds", "0", "-format", "xml", "-systems", "postgres/chanq,x,sqlite/chanq,sqlite/chanq", "more"}, io.Discard)
	for _, problem := range []string{
		"-n is 0", "-body is 3", "-rounds is 0", `-format "xml"`, "-systems postgres/chanq needs -dsn", `-systems "x" is unknown`,
		"-systems names sqlite/chanq twice", `unexpected argument "more"`,
	} {
		assert.ErrorContains(t, err, problem)
	}
	_, err = parse([]string{sustainedArgument, "-for", "1s", "-every", "2s", "-backlog", "0"}, io.Discard)
	assert.ErrorContains(t, err, "-every is 2s")
	assert.ErrorContains(t, err, "-backlog is 0")
	var said bytes.Buffer
	o, err := parse(nil, &said)
	require.NoError(t, err)
	assert.Contains(t, said.String(), "no -dsn, so postgres/river-pgx-tuned is left out")
	assert.Equal(t, 2000, o.latencyN)
	for _, s := range o.systems {
		assert.NotEqual(t, postgres, s.engine)
	}
}

func TestAnotherDatabaseOfTheSameServer(t *testing.T) {
	for dsn, want := range map[string]string{
		"host=/tmp user=u dbname=a":            "host=/tmp user=u dbname=a dbname=b",
		"postgres://u:p@h:1/a?sslmode=disable": "postgres://u:p@h:1/b?sslmode=disable",
		"postgresql://u@h/a?pool_max_conns=3":  "postgresql://u@h/b?pool_max_conns=3",
	} {
		got, err := withDatabase(dsn, "b")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := withDatabase("postgres://u:secret@h:port/a", "b")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}
