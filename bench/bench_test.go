package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/mssqltest"
	mssqlengine "github.com/chanq/chanq/internal/mssqltest/engine"
)

func TestAnUnknownValueIsAnsweredWithTheKnownOnes(t *testing.T) {
	for _, c := range []struct{ flag, value, known string }{
		{"-engine", "oracle", "sqlite, sqlserver"},
		{"-strategies", "raw,fast", "raw, chanq, single"},
		{"-send", "post", "channel, batch"},
		{"-format", "xml", "table, json"},
	} {
		t.Run(c.flag, func(t *testing.T) {
			_, err := parse([]string{c.flag, c.value}, io.Discard)
			require.ErrorContains(t, err, c.known)
		})
	}
}

func TestEveryWrongFlagIsNamedAtOnce(t *testing.T) {
	_, err := parse([]string{"-n", "0", "-body", "-1", "-batch", "513", "-rounds", "0", "-strategies", "raw,raw", "more"}, io.Discard)
	for _, wrong := range []string{"-n is 0", "-body is -1", "-batch is 513", "-rounds is 0", "raw twice", `"more"`} {
		require.ErrorContains(t, err, wrong)
	}
}

func TestFlagsOfAnotherEngineAreRefused(t *testing.T) {
	_, err := parse([]string{"-dsn", "sqlserver://h"}, io.Discard)
	require.ErrorContains(t, err, "-dsn is for -engine sqlserver")
	_, err = parse([]string{"-engine", "sqlserver", "-db", "x", "-dsn", "sqlserver://h"}, io.Discard)
	require.ErrorContains(t, err, "-db is for -engine sqlite")
	_, err = parse([]string{"-engine", "sqlserver"}, io.Discard)
	require.ErrorContains(t, err, "needs -dsn")
}

func TestABadFlagLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	err := run(t.Context(), []string{
		"-db", filepath.Join(dir, "x.db"), "-cpuprofile", filepath.Join(dir, "cpu"), "-strategies", "fast",
	}, io.Discard, io.Discard)
	require.Error(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestAnExistingFileIsNeverTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.db")
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	err := run(t.Context(), []string{"-db", path, "-n", "10"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "must not exist")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))
}

// runJSON runs the command and returns its lines.
func runJSON(t *testing.T, args ...string) (results []result) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), append(args, "-format", "json"), &out, io.Discard))
	for lines := json.NewDecoder(&out); lines.More(); {
		var r result
		require.NoError(t, lines.Decode(&r))
		results = append(results, r)
	}
	return results
}

func TestEachRoundOfEachStrategyIsOneLineOfJSON(t *testing.T) {
	dir := t.TempDir()
	for _, send := range []string{sendChannel, sendBatch} {
		results := runJSON(t, "-db", filepath.Join(dir, "x.db"), "-n", "700", "-single-n", "20", "-rounds", "2", "-send", send)
		require.Len(t, results, 6)
		seen := map[string]int{}
		for _, r := range results {
			seen[r.Strategy]++
			require.Equal(t, seen[r.Strategy], r.Round)
			require.Equal(t, map[string]int{"raw": 700, "chanq": 700, "single": 20}[r.Strategy], r.N)
			for _, v := range []float64{r.EnqueuePerS, r.DrainPerS, r.PipelinePerS, r.StatementsPerMessage, r.AllocsPerMessage} {
				require.Positive(t, v)
			}
		}
		require.Equal(t, map[string]int{"raw": 2, "chanq": 2, "single": 2}, seen)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "the databases are removed")
}

func TestSQLServerIsMeasuredAndLeftAsItWas(t *testing.T) {
	server := mssqltest.Start(t, mssqltest.Options{Clock: mssqlengine.RealClock{}})
	results := runJSON(t, "-engine", "sqlserver", "-dsn", server.DSN(), "-n", "700", "-single-n", "20", "-rounds", "1")
	require.Len(t, results, 3)
	for _, r := range results {
		require.Equal(t, "sqlserver", r.Engine)
		require.Positive(t, r.DrainPerS)
	}
	var queues int
	require.NoError(t, server.DB().QueryRow("SELECT COUNT(*) FROM dbo.chanq_queues").Scan(&queues))
	require.Zero(t, queues)
	var tables int
	require.NoError(t, server.DB().QueryRow("SELECT COUNT(*) FROM sys.tables WHERE name <> 'chanq_queues'").Scan(&tables))
	require.Zero(t, tables)
}

func TestStatementsOfAKnownLoopAreCounted(t *testing.T) {
	for _, r := range runJSON(t, "-strategies", "raw,single", "-n", "1000", "-single-n", "50", "-batch", "100", "-rounds", "1") {
		switch r.Strategy {
		case "raw": // 10 each of enqueue, claim and ack
			require.InDelta(t, 0.03, r.StatementsPerMessage, 1e-9)
		case "single":
			require.InDelta(t, 3, r.StatementsPerMessage, 1e-9)
		}
	}
}

func TestATransactionCountsItsBeginAndItsEnd(t *testing.T) {
	s, err := openSQLite(t.Context(), options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.remove()) }()
	for _, end := range []string{"commit", "rollback"} {
		before := s.counter.statements.Load()
		tx, err := s.db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("DELETE FROM chanq_bench")
		require.NoError(t, err)
		if end == "commit" {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
		require.EqualValues(t, 3, s.counter.statements.Load()-before, end)
	}
}

func TestAWholeLifeInBatchesOf500TakesAtMostOneStatementForFiftyMessages(t *testing.T) {
	results := runJSON(t, "-strategies", "chanq", "-n", "5000", "-rounds", "1")
	require.LessOrEqual(t, results[0].StatementsPerMessage, 0.02)
}

func TestTheTableShowsMediansRangesAndRatios(t *testing.T) {
	results := []result{
		{Strategy: "raw", N: 9, EnqueuePerS: 100, DrainPerS: 10, PipelinePerS: 1, DrainAllocs: 8},
		{Strategy: "chanq", N: 9, EnqueuePerS: 50, DrainPerS: 10, PipelinePerS: 2, DrainAllocs: 9},
		{Strategy: "raw", N: 9, EnqueuePerS: 200, DrainPerS: 10, PipelinePerS: 1, DrainAllocs: 8},
		{Strategy: "chanq", N: 9, EnqueuePerS: 180, DrainPerS: 10, PipelinePerS: 2, DrainAllocs: 9},
	}
	var out bytes.Buffer
	require.NoError(t, writeTable(&out, options{engine: "sqlite", strategies: []string{"raw", "chanq"}, rounds: 2}, results))
	text := strings.Join(strings.Fields(out.String()), " ")
	require.Contains(t, text, "raw 9 150 (100-200) 10 (10-10)")
	require.Contains(t, text, "chanq 9 115 (50-180) 10 (10-10)")
	require.Contains(t, text, "chanq / raw 0.70 1.00 2.00 0.0 enqueue, 1.0 drain")
}
