package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
	"github.com/chanq/chanq/prove/testdb"
)

func readTally(t *testing.T, lines ...string) *tally {
	tally := &tally{counts: []string{"SQLServer/"}, output: map[string]string{}, reasons: map[string]int{}}
	require.NoError(t, tally.read(strings.NewReader(strings.Join(lines, "\n")), func(event) {}))
	return tally
}

func TestATallyHasTheTestsThatAskedTheServer(t *testing.T) {
	got := readTally(t,
		`{"Action":"run","Package":"p","Test":"TestSQLServer"}`,
		`{"Action":"run","Package":"p","Test":"TestSQLServer/A"}`,
		`{"Action":"pass","Package":"p","Test":"TestSQLServer/A"}`,
		`{"Action":"output","Package":"p","Test":"TestSQLServer/B","Output":"=== RUN   TestSQLServer/B\n"}`,
		`{"Action":"output","Package":"p","Test":"TestSQLServer/B","Output":"    world.go:12: in bubbles only\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestSQLServer/B"}`,
		`{"Action":"pass","Package":"p","Test":"TestOther"}`,
		`{"Action":"run","Package":"p","Test":"TestSQLServer/C"}`,
		`{"Action":"run","Package":"p","Test":"TestSQLServer/C/d"}`,
		`{"Action":"output","Package":"p","Test":"TestSQLServer/C/d","Output":"why\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestSQLServer/C/d"}`,
		`{"Action":"fail","Package":"p","Test":"TestSQLServer/C"}`,
		`{"Action":"fail","Package":"p","Test":"TestSQLServer"}`,
		`{"Action":"fail","Package":"p"}`)
	require.Equal(t, 1, got.passed)
	require.Equal(t, 1, got.skipped)
	require.Equal(t, map[string]int{"in bubbles only": 1}, got.reasons)
	require.Equal(t, []failure{{"p", "TestSQLServer/C/d"}}, got.failed, "the innermost test")
	require.Equal(t, "why\n", got.output["p TestSQLServer/C/d"])
}

// suiteOf runs tests in a child process and returns the report.
func suiteOf(t *testing.T, i *instance.Instance, ts tests) string {
	t.Helper()
	s, err := connect(t.Context(), i.DSN(), "chanq_firsthour")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	root, err := checkout()
	require.NoError(t, err)
	h := &hour{server: s, report: newReport(t.Context(), &bytes.Buffer{}), root: root}
	h.report.begin("suite")
	if err := h.test(t.Context(), "some tests", ts, nil); err != nil {
		return "error: " + err.Error()
	}
	return squeeze(h.report.markdown(s))
}

// While it runs, a colleague tests on the same server.
func TestDatabasesOfOtherTestsStay(t *testing.T) {
	i := emulated(t)
	s, err := connect(t.Context(), i.DSN(), "chanq_firsthour")
	require.NoError(t, err)
	for _, name := range []string{"chanq_test_0a1b", s.tests + "_0a1b"} {
		require.NoError(t, s.alone(t.Context(), "CREATE DATABASE ["+name+"]"))
	}
	require.NoError(t, s.close(t.Context()))
	require.ElementsMatch(t, []string{"master", "chanq_test_0a1b"}, i.Databases())
}

func TestTheSuiteRunsOnTheServerAndLeavesNothing(t *testing.T) {
	testdb.Long(t) // it compiles other packages
	i := emulated(t)
	report := suiteOf(t, i, quickSuites[0])
	require.Contains(t, report, "as expected |")
	require.NotContains(t, report, "DIFFERS")
	require.Equal(t, []string{"master"}, i.Databases())

	require.Contains(t, suiteOf(t, i, tests{"no test", "^TestNone$", []string{"./sqlbatch"}, "/sqlserver"}), "| 0 pass, 0 fail, 0 are skipped on purpose | **DIFFERS** |")
	require.Contains(t, suiteOf(t, i, tests{"no package", "^TestNone$", []string{"./none"}, "/sqlserver"}), "error: go test: ")

	// One claim fails, and its test passes when it runs alone.
	once := sync.Once{}
	busy := emulated(t, func(r instance.Request) (instance.Answer, bool) {
		fail := false
		if strings.Contains(r.Text, "UPDATE a\n") {
			once.Do(func() { fail = true })
		}
		return instance.Answer{Number: 8622, Message: "no plan"}, fail
	})
	report = suiteOf(t, busy, quickSuites[0])
	require.Contains(t, report, "| failed, then passed alone: probably a busy machine | |")
	require.Contains(t, report, "no plan", "the output of the test")
	require.NotContains(t, report, "DIFFERS")
	require.Contains(t, report, " 0 fail, ")

	failing := emulated(t, func(r instance.Request) (instance.Answer, bool) {
		return instance.Answer{Number: 8622, Message: "no plan"}, strings.Contains(r.Text, "UPDATE a\n")
	})
	report = suiteOf(t, failing, quickSuites[0])
	require.Contains(t, report, "| pass | fail | **DIFFERS** |")
	require.Contains(t, report, "no plan", "the output of the test")
	require.Equal(t, []string{"master"}, failing.Databases())
}

func TestATestIsRunAloneByItsNameOnly(t *testing.T) {
	require.Equal(t, `^TestSQLServer$/^A\.b\+c$`, failure{"p", "TestSQLServer/A.b+c"}.pattern())
	require.True(t, crashed("=== RUN T\npanic: runtime error\n"))
	require.False(t, crashed("the panic: of a handler\n"))
}

func TestTheSuiteSaysHowFarItIsEvery30s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		ctx, cancel := context.WithTimeout(t.Context(), 2*sayEvery+time.Second)
		defer cancel()
		every(ctx, sayEvery, func() { said++ })
		require.Equal(t, 2, said)
	})
}

func TestADeadlockIsSummarised(t *testing.T) {
	text := testdata(t, "deadlock.xml")
	found, err := readGraphs(text)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.True(t, found[0].own())
	summary := found[0].summary()
	require.Contains(t, summary, "process 1, the victim, read committed (2), waits for U of KEY: 7:72057594043236352 (8194443284a0): (@a varbinary(8000))SET NOCOUNT")
	require.Contains(t, summary, "keylock chanq.dbo.chanq_orders IX_chanq_orders__due: process 1 has S; process 2 wants X;")

	other := strings.Replace(text, "SET NOCOUNT, XACT_ABORT ON", "UPDATE dbo.stock SET n = n - 1", 1)
	found, err = readGraphs(other)
	require.NoError(t, err)
	require.False(t, found[0].own(), "a caller's transaction is part of it")

	found, err = readGraphs(`<RingBufferTarget eventCount="0"/>`)
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = readGraphs(text[:len(text)-100])
	require.ErrorContains(t, err, "cut when it is large")
}

// recorder answers like a server that has recorded a text.
func recorder(text string) func(instance.Request) (instance.Answer, bool) {
	return func(r instance.Request) (instance.Answer, bool) {
		switch {
		case strings.Contains(r.Text, "EVENT SESSION"):
			return instance.Answer{}, true
		case strings.Contains(r.Text, "dm_xe_session_targets"):
			return instance.Answer{Rows: [][]any{{text}}}, true
		}
		return instance.Answer{}, false
	}
}

// performance answers like a server whose counters do not change.
func performance(r instance.Request) (instance.Answer, bool) {
	switch {
	case strings.Contains(r.Text, "dm_db_index_physical_stats"):
		return instance.Answer{Rows: [][]any{{"0"}}}, true // ghosts
	case strings.Contains(r.Text, "dm_os_performance_counters"):
		a := instance.Answer{Rows: [][]any{{versionStore, "", int64(64)}}}
		for _, c := range counters {
			a.Rows = append(a.Rows, []any{c.name, c.instance, int64(1)})
		}
		return a, true
	}
	return instance.Answer{}, false
}
