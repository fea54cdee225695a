package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
	"github.com/chanq/chanq/prove/testdb"
)

// The rest of the parts. With sockets and child processes they take long, and little is measured: what counts is that they run to their end.
func TestProgramsAndLoadRunToTheirEnd(t *testing.T) {
	testdb.Long(t)
	report, err := ask(t, emulated(t, recorder(`<RingBufferTarget/>`), performance(func(n int64) int64 { return n })), "-parts", "programs,load", "-load", "2s")
	require.NoError(t, err, report)
	require.Contains(t, report, "| every page of the web UI | no error | no error | as expected |")
	require.Contains(t, report, "| locks: 4 consumers receive each message | at least 200 deliveries |")
	require.Contains(t, report, "| deadlocks of chanq's own statements, during load | 0 | 0 | as expected |")
	require.Contains(t, report, "## Statements compared in locks\n")
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
	return &hour{server: s, report: newReport(&bytes.Buffer{}), options: options{quick: true, load: time.Second, messages: 100}}
}

func TestReadsThatGrowAreADifference(t *testing.T) {
	for name, c := range map[string]struct {
		reads     func(messages int64) int64
		different int
	}{"as many": {func(n int64) int64 { return 10 * n }, 0}, "more and more": {func(n int64) int64 { return n * n * n }, 1}} {
		t.Run(name, func(t *testing.T) {
			h := onServer(t, emulated(t, performance(c.reads)))
			d := &database{suffix: "versions", versions: true}
			require.NoError(t, h.create(t.Context(), d))
			require.NoError(t, h.sustain(t.Context(), d))
			require.Equal(t, c.different, h.report.differences(), h.report.markdown(h.server))
			require.Contains(t, h.report.markdown(h.server), "page reads per message over 1s")
		})
	}
}

func TestADeadlockIsADifference(t *testing.T) {
	h := onServer(t, emulated(t, recorder(testdata(t, "deadlock.xml"))))
	h.report.begin("load")
	h.watchDeadlocks(t.Context())
	h.readDeadlocks(t.Context())
	report := h.report.markdown(h.server)
	require.Contains(t, report, "| deadlocks of chanq's own statements, during load | 0 | 1 | **DIFFERS** |")
	require.Contains(t, report, "process 2 wants X")
	require.Contains(t, report, "<victim-list>", "the graph")
	require.Equal(t, 1, h.report.differences())
}
