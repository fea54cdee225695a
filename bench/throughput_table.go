package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/chanq/chanq/bench/internal/measure"
)

// runKey identifies results that may be compared.
type runKey struct {
	engine string
	body   int
}

func runOf(r measure.Result) runKey { return runKey{r.Engine, r.BodyBytes} }

func writeThroughput(w io.Writer, _ options, results []measure.Result) error {
	var tables []measure.Table
	for _, g := range measure.Group(results, runOf) {
		tables = append(tables, throughputTable(g), ratioTable(g))
	}
	return measure.WriteTables(w, tables...)
}

func throughputTable(g measure.Grouped[runKey]) measure.Table {
	first := g.Results[0]
	t := measure.Table{
		Title: fmt.Sprintf("%s, body %d B, rounds %d; %s/%s, GOMAXPROCS %d, %s",
			g.Key.engine, g.Key.body, rounds(g.Results), first.GOOS, first.GOARCH, first.GOMAXPROCS, first.GoVersion),
		Head: []string{"strategy", "messages", "batch", "enqueue/s", "drain/s", "pipeline/s", "statements/msg",
			"allocs/msg, enqueue + drain", "CPU µs/msg, enqueue + drain"},
	}
	for _, s := range byStrategy(g.Results) {
		rs := s.Results
		pair := func(a, b measure.Figure) string {
			x, y := measure.Median(rs, a), measure.Median(rs, b)
			if x == 0 && y == 0 {
				return "–" // other programs do not measure it
			}
			return fmt.Sprintf("%.1f + %.1f", x, y)
		}
		t.Rows = append(t.Rows, []string{
			s.Key, fmt.Sprint(rs[0].N), fmt.Sprint(rs[0].Batch),
			measure.Ranged(rs, enqueueRate), measure.Ranged(rs, drainRate), measure.Ranged(rs, pipelineRate),
			measure.Short(measure.Median(rs, func(r measure.Result) float64 { return r.StatementsPerMessage })),
			pair(enqueueAllocs, drainAllocs),
			pair(enqueueCPU, drainCPU),
		})
	}
	return t
}

// ratioTable compares chanq with every other strategy, and the strategies that move messages
// between queues with each other. CPU time and allocations are differences: the cost that chanq
// adds to the same statements. Strategies of other programs are compared with chanq in the same run
// of that program.
func ratioTable(g measure.Grouped[runKey]) measure.Table {
	by := map[string][]measure.Result{}
	t := measure.Table{Title: "ratios", Head: []string{"ratio", "enqueue", "drain", "pipeline", "allocs/msg more", "CPU µs/msg more"}}
	var others []string
	for _, s := range byStrategy(g.Results) {
		by[s.Key] = s.Results
		if s.Key != "chanq" && s.Key != "chanq-pipe" && s.Key != besidePeers {
			others = append(others, s.Key)
		}
	}
	for _, other := range others {
		name := "chanq"
		switch {
		case other == "raw-pipe":
			name = "chanq-pipe"
		case !slices.Contains(strategyNames(), other):
			name = besidePeers
		}
		ours, theirs := by[name], by[other]
		if len(ours) == 0 {
			continue
		}
		times := func(f measure.Figure) string { return measure.Times(ours, theirs, f) }
		more := func(f measure.Figure) float64 { return measure.Median(ours, f) - measure.Median(theirs, f) }
		row := []string{name + " / " + other, times(enqueueRate), times(drainRate), times(pipelineRate), "", ""}
		if other == "raw" || other == "raw-pipe" {
			row[4] = fmt.Sprintf("%.1f + %.1f", more(enqueueAllocs), more(drainAllocs))
			row[5] = fmt.Sprintf("%.1f + %.1f", more(enqueueCPU), more(drainCPU))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// besidePeers is the name of chanq as measured by bench/peers.
const besidePeers = "chanq, with peers"

// byStrategy groups results in the order of strategies. Those of other programs come last.
func byStrategy(results []measure.Result) []measure.Grouped[string] {
	groups := measure.Group(results, func(r measure.Result) string { return r.Strategy })
	place := func(name string) int {
		if i := slices.Index(strategyNames(), name); i >= 0 {
			return i
		}
		return len(strategies)
	}
	slices.SortStableFunc(groups, func(a, b measure.Grouped[string]) int { return place(a.Key) - place(b.Key) })
	return groups
}

func rounds(results []measure.Result) (n int) {
	for _, r := range results {
		n = max(n, r.Round)
	}
	return n
}

func enqueueRate(r measure.Result) float64   { return r.EnqueuePerS }
func drainRate(r measure.Result) float64     { return r.DrainPerS }
func pipelineRate(r measure.Result) float64  { return r.PipelinePerS }
func enqueueCPU(r measure.Result) float64    { return r.EnqueueCPU }
func drainCPU(r measure.Result) float64      { return r.DrainCPU }
func enqueueAllocs(r measure.Result) float64 { return r.EnqueueAllocs }
func drainAllocs(r measure.Result) float64   { return r.DrainAllocs }
