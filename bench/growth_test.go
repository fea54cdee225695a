package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
)

// quickGrowth has every axis, at sizes that only test that it works.
var quickGrowth = []string{
	"growth", "-rounds", "1", "-samples", "100", "-batch", "50",
	"-backlog", "100,500", "-leased", "0,500", "-scheduled", "0,500", "-consumers", "1,3", "-processes", "1,2",
	"-purge", "10,1100", "-redrive", "10,1100", "-trim", "10,1100",
	"-bodies", "10,5000", "-batches", "20,50", "-lingers", "5", "-prefetch", "20,100", "-buffer", "65536,131072",
}

func TestEveryAxisIsMeasuredAtEverySize(t *testing.T) {
	testdb.Soak(t)
	t.Parallel()
	check := func(t *testing.T, engine ...string) {
		t.Parallel()
		sizes := map[string][]int{}
		for _, r := range runJSON(t, append(quickGrowth, engine...)...) {
			if r.Strategy == "chanq" || len(figuresOf(r.Axis)) == 4 && r.ClaimStatement > 0 {
				sizes[r.Axis] = append(sizes[r.Axis], r.Size)
			}
			if r.FormulaBytes == 0 { // the heap is shared with other tests; TestMemoryStaysWithinTheFormula runs alone
				require.Positive(t, figuresOf(r.Axis)[0].of(r), "%+v", r)
			}
		}
		require.Len(t, sizes, len(growthAxes))
		require.ElementsMatch(t, []int{100, 500}, sizes["backlog"])
		require.ElementsMatch(t, []int{0, 500}, sizes["leased"])
		require.ElementsMatch(t, []int{1, 3}, sizes["consumers"])
		require.ElementsMatch(t, []int{1, 2}, sizes["processes"])
		require.ElementsMatch(t, []int{10, 1100}, sizes["purge"])
		require.ElementsMatch(t, []int{10, 1100}, sizes["trim"])
		require.ElementsMatch(t, []int{10, 5000}, sizes["bodies"])
		require.ElementsMatch(t, []int{65536, 131072}, sizes["buffer"])
	}
	t.Run("sqlite", func(t *testing.T) { check(t) })
	t.Run("postgres", func(t *testing.T) { check(t, "-engine", "postgres", "-dsn", pgtest.DSN(t)) })
}

// The rows that fill writes by plain SQL equal those that chanq would have written.
func TestFilledMessagesAreInTheirStateAndInOrder(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, o options) {
		t.Parallel()
		for _, state := range []sqlbatch.State{sqlbatch.Ready, sqlbatch.Leased, sqlbatch.Scheduled} {
			s, err := openQueue(t.Context(), o)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.remove()) }()
			require.NoError(t, s.fill(t.Context(), state, 300, 30))
			queue, err := s.open(t.Context())
			require.NoError(t, err)
			stats, err := testdb.Admin(queue).Stats(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, map[sqlbatch.State]int{state: 300}, nonZero(map[sqlbatch.State]int{
				sqlbatch.Ready: int(stats.Ready), sqlbatch.Leased: int(stats.Leased), sqlbatch.Scheduled: int(stats.Scheduled),
			}))
			messages, err := testdb.Peek(t.Context(), queue, chanqadmin.State(state), 300)
			require.NoError(t, err)
			require.Len(t, messages, 300)
			for i, m := range messages {
				require.Len(t, m.Body, 30)
				if i > 0 && state != sqlbatch.Leased {
					require.Less(t, messages[i-1].ID.String(), m.ID.String())
				}
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) { check(t, options{engine: "sqlite"}) })
	t.Run("postgres", func(t *testing.T) { check(t, options{engine: "postgres", dsn: pgtest.DSN(t)}) })
	t.Run("sqlserver", func(t *testing.T) {
		emulator := mssqltest.Start(t, mssqltest.Options{})
		check(t, options{engine: "sqlserver", dsn: emulator.DSN()})
	})
}

func nonZero(counts map[sqlbatch.State]int) map[sqlbatch.State]int {
	for state, n := range counts {
		if n == 0 {
			delete(counts, state)
		}
	}
	return counts
}

// The formula of docs/internals/performance.md bounds the live heap.
func TestMemoryStaysWithinTheFormula(t *testing.T) {
	for _, r := range runJSON(t, "growth", "-axes", "prefetch,buffer", "-prefetch", "1500", "-buffer", "2097152", "-rounds", "1") {
		require.Positive(t, r.HeapBytes)
		require.LessOrEqual(t, r.HeapBytes, r.FormulaBytes, "%s %d", r.Axis, r.Size)
	}
}

func TestInvalidSizesAreReported(t *testing.T) {
	_, err := parse("growth", []string{"-backlog", "1,many", "-axes", "backlog,weather"}, io.Discard)
	require.ErrorContains(t, err, `-backlog: "many"`)
	require.ErrorContains(t, err, `"weather" is unknown`)
	_, err = parse("growth", []string{"-db", t.TempDir() + "/x.db"}, io.Discard)
	require.ErrorContains(t, err, "-db")
	for _, wrong := range []string{"-consumers", "-processes", "-batches", "-prefetch", "-lingers"} {
		_, err := parse("growth", []string{wrong, "0"}, io.Discard)
		require.ErrorContains(t, err, wrong+" is 0", fmt.Sprint(wrong))
	}
	_, err = parse("growth", []string{"-samples", "0"}, io.Discard)
	require.ErrorContains(t, err, "-samples is 0")
}
