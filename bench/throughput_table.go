package main

import (
	"fmt"
	"io"
	"slices"
)

// run is what results have in common that may be compared.
type runKey struct {
	engine string
	body   int
}

func runOf(r result) runKey { return runKey{r.Engine, r.BodyBytes} }

func writeThroughput(w io.Writer, _ options, results []result) error {
	var tables []table
	for _, g := range group(results, runOf) {
		tables = append(tables, throughputTable(g), ratioTable(g))
	}
	return writeTables(w, tables)
}

func throughputTable(g grouped[runKey]) table {
	first := g.results[0]
	t := table{
		title: fmt.Sprintf("%s, body %d B, rounds %d; %s/%s, GOMAXPROCS %d, %s",
			g.key.engine, g.key.body, rounds(g.results), first.GOOS, first.GOARCH, first.GOMAXPROCS, first.GoVersion),
		head: []string{"strategy", "messages", "batch", "enqueue/s", "drain/s", "pipeline/s", "statements/msg",
			"allocs/msg, enqueue + drain", "CPU µs/msg, enqueue + drain"},
	}
	for _, s := range byStrategy(g.results) {
		rs := s.results
		pair := func(a, b func(result) float64) string {
			x, y := median(rs, a), median(rs, b)
			if x == 0 && y == 0 {
				return "–" // other programs do not measure it
			}
			return fmt.Sprintf("%.1f + %.1f", x, y)
		}
		t.rows = append(t.rows, []string{
			s.key, fmt.Sprint(rs[0].N), fmt.Sprint(rs[0].Batch),
			ranged(rs, enqueueRate), ranged(rs, drainRate), ranged(rs, pipelineRate),
			short(median(rs, func(r result) float64 { return r.StatementsPerMessage })),
			pair(func(r result) float64 { return r.EnqueueAllocs }, func(r result) float64 { return r.DrainAllocs }),
			pair(enqueueCPU, drainCPU),
		})
	}
	return t
}

// ratioTable compares chanq with every other strategy, and the strategies that
// hand over from queue to queue with each other. CPU time and allocations are
// differences: what chanq adds to the same statements. Strategies of other programs
// are compared with chanq in the same run of that program.
func ratioTable(g grouped[runKey]) table {
	by := map[string][]result{}
	t := table{title: "ratios", head: []string{"ratio", "enqueue", "drain", "pipeline", "allocs/msg more", "CPU µs/msg more"}}
	var others []string
	for _, s := range byStrategy(g.results) {
		by[s.key] = s.results
		if s.key != "chanq" && s.key != "chanq-pipe" && s.key != besidePeers {
			others = append(others, s.key)
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
		times := func(f func(result) float64) string {
			if v := ratio(ours, theirs, f); v > 0 {
				return fmt.Sprintf("%.2f", v)
			}
			return "–"
		}
		more := func(f func(result) float64) float64 { return median(ours, f) - median(theirs, f) }
		row := []string{name + " / " + other, times(enqueueRate), times(drainRate), times(pipelineRate), "", ""}
		if other == "raw" || other == "raw-pipe" {
			row[4] = fmt.Sprintf("%.1f + %.1f", more(func(r result) float64 { return r.EnqueueAllocs }), more(func(r result) float64 { return r.DrainAllocs }))
			row[5] = fmt.Sprintf("%.1f + %.1f", more(enqueueCPU), more(drainCPU))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// besidePeers is chanq as bench/peers measured it.
const besidePeers = "chanq, beside peers"

// byStrategy is in the order of strategies; those of other programs come last.
func byStrategy(results []result) []grouped[string] {
	groups := group(results, func(r result) string { return r.Strategy })
	place := func(name string) int {
		if i := slices.Index(strategyNames(), name); i >= 0 {
			return i
		}
		return len(strategies)
	}
	slices.SortStableFunc(groups, func(a, b grouped[string]) int { return place(a.key) - place(b.key) })
	return groups
}

func rounds(results []result) (n int) {
	for _, r := range results {
		n = max(n, r.Round)
	}
	return n
}

func enqueueRate(r result) float64  { return r.EnqueuePerS }
func drainRate(r result) float64    { return r.DrainPerS }
func pipelineRate(r result) float64 { return r.PipelinePerS }
func enqueueCPU(r result) float64   { return r.EnqueueCPU }
func drainCPU(r result) float64     { return r.DrainCPU }
