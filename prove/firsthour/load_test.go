package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
	"github.com/chanq/chanq/prove/testdb"
)

// The rest of the parts. With sockets and child processes they take long, and little is measured: what counts is that they run to their end.
func TestProgramsAndLoadRunToTheirEnd(t *testing.T) {
	testdb.Long(t)
	report, err := ask(t, emulated(t, recorder(`<RingBufferTarget/>`), performance), "-parts", "programs,load", "-load", "2s")
	require.NoError(t, err, report)
	require.Contains(t, report, "| every page of the web UI | no error | no error | as expected |")
	require.Contains(t, report, "| unversioned: each message is received, consumers: 4 | at least 200 deliveries |")
	require.Contains(t, report, "| deadlocks of chanq's own statements, during load | 0 | 0 | as expected |")
	require.Contains(t, report, "## Statements compared in unversioned\n")
}

// onServer returns a run on a server, without its databases.
func onServer(t *testing.T, i *instance.Instance) *hour {
	t.Helper()
	s, err := connect(t.Context(), i.DSN(), "chanq_firsthour")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.close(context.WithoutCancel(t.Context())))
		require.Equal(t, []string{"master"}, i.Databases())
	})
	return &hour{server: s, report: newReport(t.Context(), &bytes.Buffer{}), options: options{quick: true, load: 100 * time.Millisecond, messages: 100}}
}

func TestALoadIsSampledToItsEnd(t *testing.T) {
	h := onServer(t, emulated(t, performance))
	d := &database{suffix: "versions", versions: true}
	require.NoError(t, h.create(t.Context(), d))
	h.report.begin("load")
	require.NoError(t, h.sustain(t.Context(), d))
	report := squeeze(h.report.markdown(h.server))
	require.Zero(t, h.report.count(wrong), report)
	require.Contains(t, report, "page reads per message over 100ms")
	require.Contains(t, report, "| versions: ghosts in the table when it is empty |")
}

// Each sample is of 1,000 messages.
func TestReadsOrCompilationsThatGrowAreADifference(t *testing.T) {
	for name, c := range map[string]struct {
		reads, compiled func(sample int) int64
		differs         string
	}{
		"as many":    {func(int) int64 { return 12_000 }, func(int) int64 { return 1 }, ""},
		"first more": {func(i int) int64 { return 12_000 / int64(1+i) }, func(i int) int64 { return 40 / int64(1+i*i) }, ""},
		"a slow start": {func(i int) int64 {
			if i == 0 {
				return 100_000
			}
			return 12_000 + 2_000*int64(i)
		}, func(int) int64 { return 1 }, "page reads per message"},
		"more and more": {func(i int) int64 { return 12_000 + 2_000*int64(i) }, func(int) int64 { return 1 }, "page reads per message"},
		"a plan each":   {func(int) int64 { return 12_000 }, func(int) int64 { return 100 }, "compiled batches per message"},
	} {
		h := &hour{report: newReport(t.Context(), &bytes.Buffer{}), server: &server{}}
		var all []counted
		for i := range samples {
			all = append(all, counted{messages: 1000, values: map[string]int64{pageReads: c.reads(i), compilations: c.compiled(i)}})
		}
		h.judgeSamples(&database{suffix: "versions"}, all)
		var different []string
		for _, row := range h.report.rows {
			if row.verdict == wrong {
				different = append(different, row.what)
			}
		}
		if c.differs == "" {
			require.Empty(t, different, name)
		} else {
			require.Len(t, different, 1, name)
			require.Contains(t, different[0], c.differs, name)
		}
	}
}

// One counter that is missing is not asked; the load is measured all the same.
func TestAMissingCounterIsNotAsked(t *testing.T) {
	h := onServer(t, emulated(t, func(r instance.Request) (instance.Answer, bool) {
		a, ok := performance(r)
		if len(a.Rows) > 1 {
			a.Rows = a.Rows[:len(a.Rows)-1]
		}
		return a, ok
	}))
	d := &database{suffix: "versions", versions: true}
	require.NoError(t, h.create(t.Context(), d))
	h.report.begin("load")
	require.NoError(t, h.sustain(t.Context(), d))
	report := squeeze(h.report.markdown(h.server))
	require.Contains(t, report, "| versions: compiled batches per message over 100ms | | the server does not show the counter SQL Compilations/sec | not asked |")
	require.Contains(t, report, "| versions: page reads per message over 100ms | at most 0.00 | 0.0, then 0.0 | as expected |")
	require.Contains(t, report, "| 7 | Reads do not grow | load | 1 as expected; not asked: the server does not show")
	require.Contains(t, report, "**0 differences, 1 not asked.")
}

func TestWithoutCountersTheLoadIsMeasured(t *testing.T) {
	h := onServer(t, emulated(t))
	d := &database{suffix: "versions", versions: true}
	require.NoError(t, h.create(t.Context(), d))
	h.report.begin("load")
	require.NoError(t, h.sustain(t.Context(), d))
	require.NoError(t, h.pipelines(t.Context(), d))
	report := squeeze(h.report.markdown(h.server))
	require.Contains(t, report, "| versions: page reads per message over 100ms; versions: compiled batches per message over 100ms | | mssql: ", "one row")
	require.Contains(t, report, "| 7 | Reads do not grow | load | not asked: mssql: not supported by mssqltest")
	require.Contains(t, report, "| versions: each message is received, consumers: 4 | at least 100 deliveries |")
	require.Contains(t, report, "## Load over 100ms in versions\n")
	require.Zero(t, h.report.count(wrong), report)
}

func TestALoadThatStallsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flow{more: make(chan struct{})}
		start := time.Now()
		require.EqualError(t, f.wait(t.Context(), 5), "0 of 5 messages were received, and none for 1m0s")
		require.Equal(t, stalled, time.Since(start))
	})
}

// A server without events is one fault, whatever the parts are.
func TestDeadlocksThatCannotBeRecordedAreOneRow(t *testing.T) {
	h := onServer(t, emulated(t))
	for _, name := range underRecord {
		h.report.begin(name)
		h.watchDeadlocks(t.Context())
		h.readDeadlocks(t.Context())
	}
	report := squeeze(h.report.markdown(h.server))
	require.Contains(t, report, "| deadlocks during suite; deadlocks during programs; deadlocks during load | | no session of events: ")
	require.Contains(t, report, "| 6 | Deadlocks | deadlocks | not asked: no session of events: ")
	require.Equal(t, 1, h.report.count(notAsked), report)
	require.Zero(t, h.report.count(wrong))
}

func TestADeadlockIsADifference(t *testing.T) {
	h := onServer(t, emulated(t, recorder(testdata(t, "deadlock.xml"))))
	h.report.begin("load")
	h.watchDeadlocks(t.Context())
	h.readDeadlocks(t.Context())
	report := squeeze(h.report.markdown(h.server))
	require.Contains(t, report, "| deadlocks of chanq's own statements, during load | 0 | 1 | **DIFFERS** |")
	require.Contains(t, report, "process 2 wants X")
	require.Contains(t, report, "<victim-list>", "the graph")
	require.Equal(t, 1, h.report.count(wrong))
}

// The server does not answer once when the session of events is dropped: the end of the run repeats it.
func TestASessionOfEventsIsDroppedAtLast(t *testing.T) {
	refuse := true
	ctx, cancel := context.WithCancel(t.Context())
	i := emulated(t, func(r instance.Request) (instance.Answer, bool) {
		if !strings.Contains(r.Text, "DROP EVENT SESSION") {
			return instance.Answer{}, strings.Contains(r.Text, "EVENT SESSION")
		}
		if ctx.Err() != nil && refuse {
			refuse = false
			return instance.Answer{}, false // the emulator refuses it
		}
		return instance.Answer{}, true
	})
	s, err := connect(t.Context(), i.DSN(), "chanq_firsthour")
	require.NoError(t, err)
	h := &hour{server: s, report: newReport(t.Context(), &bytes.Buffer{})}
	h.report.begin("load")
	h.watchDeadlocks(ctx)
	require.True(t, s.recording)
	cancel()
	require.Error(t, s.stopDeadlocks(ctx), "it was asked, although ctx has ended")
	require.True(t, s.recording)
	require.NoError(t, s.close(ctx))
	require.False(t, s.recording)
}
