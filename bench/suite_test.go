package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb"
)

func TestTheSuiteShowsEachLoopWithWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, engine string, args ...string) {
		var out bytes.Buffer
		args = append([]string{"suite", "-engine", engine, "-n", "300", "-batch", "100", "-single-n", "10", "-rounds", "1"}, args...)
		require.NoError(t, run(t.Context(), args, &out, io.Discard))
		progress, table, _ := strings.Cut(out.String(), "\n\n")
		require.Equal(t, len(suiteStrategies(engine)), strings.Count(progress, "\n"), "a line for each: %s", progress)
		_, table, found := strings.Cut(table, "\n\n")
		require.True(t, found)
		lines := strings.Split(strings.TrimSpace(table), "\n")[1:]
		require.Len(t, lines, len(suiteRowsOf(engine)))
		for i, row := range suiteRowsOf(engine) {
			require.Regexp(t, "^"+row.phase+" +"+row.strategy+" ", lines[i])
			require.True(t, strings.HasSuffix(lines[i], row.without), lines[i])
			require.NotContains(t, lines[i], "  – ", "each row has a rate and a ratio")
			require.NotContains(t, lines[i], " 0.0 ", "and CPU time")
		}
	}
	t.Run("sqlite", func(t *testing.T) { check(t, "sqlite") })
	t.Run("servers", func(t *testing.T) {
		testdb.Long(t)
		eachServer(t, func(t *testing.T, s server) {
			check(t, s.engine, "-dsn", s.dsn)
			s.requireEmpty(t)
		})
	})
}

// Ctrl-C ends the context.
func TestAnInterruptedSuiteHasTheResultsSoFar(t *testing.T) {
	t.Parallel()
	o, err := parse("suite", []string{"-n", "100", "-rounds", "1000"}, io.Discard)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var results []measure.Result
	require.NoError(t, measureSuite(ctx, o, func(r measure.Result) {
		if results = append(results, r); len(results) == 7 {
			interrupt()
		}
	}))
	require.Len(t, results, 7)
	var out bytes.Buffer
	require.NoError(t, writeSuite(&out, o, results))
	require.Contains(t, out.String(), "rounds 2 of 1000")

	require.ErrorIs(t, measureSuite(ctx, o, nil), context.Canceled, "nothing is done")
}

func TestATallyFindsLostChangedAndDoubledMessages(t *testing.T) {
	sent := [][]byte{[]byte("tea"), []byte("cake"), {}}
	for name, c := range map[string]struct {
		received []string
		err      string
	}{
		"all, in another order":   {[]string{"", "tea", "cake"}, ""},
		"one lost":                {[]string{"tea", ""}, "received 2 of 3"},
		"one doubled":             {[]string{"tea", "cake", "", "tea"}, "received 4 of 3"},
		"one in place of another": {[]string{"tea", "tea", ""}, "not those that were sent"},
		"one changed":             {[]string{"tea", "cake", "\x00"}, "not those that were sent"},
	} {
		t.Run(name, func(t *testing.T) {
			var got tally
			for _, body := range c.received {
				got.add([]byte(body))
			}
			if c.err == "" {
				require.NoError(t, got.check(sent))
				return
			}
			require.ErrorContains(t, got.check(sent), c.err)
		})
	}
}

// Each loop empties the table that another one would find.
func TestTheBestLoopsTakeEveryMessage(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, o options, names ...string) {
		for _, name := range names {
			require.NoError(t, onStore(t.Context(), o, name, func(s *store, way strategy) error {
				bodies := makeBodies(150, 50)
				require.NoError(t, way.enqueue(t.Context(), bodies[:120]))
				require.NoError(t, way.drain(t.Context(), 120))
				require.NoError(t, way.pipeline(t.Context(), bodies[120:]))
				require.NoError(t, s.received.check(bodies))
				require.EqualValues(t, 0, readyIn(t, s), name)
				require.ErrorContains(t, way.drain(t.Context(), 1), "nothing is left")
				return nil
			}))
		}
	}
	t.Run("sqlite", func(t *testing.T) { check(t, options{engine: "sqlite", batch: 40}, "best") })
	t.Run("servers", func(t *testing.T) {
		testdb.Long(t)
		eachServer(t, func(t *testing.T, s server) {
			if s.engine == "postgres" {
				check(t, options{engine: s.engine, dsn: s.dsn, batch: 40}, "best", "limit")
				s.requireEmpty(t)
			}
		})
	})
}
