package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// writeJSON writes one result as a line.
func writeJSON(w io.Writer, r result) error { return json.NewEncoder(w).Encode(r) }

// writeTable writes the median of each figure over the rounds, its range in
// parentheses, and the ratios of chanq to its neighbours: the median of those of
// the single rounds, in which all ran close together.
func writeTable(w io.Writer, o options, results []result) error {
	first := results[0]
	fmt.Fprintf(w, "%s, body %d B, batch %d, rounds %d; %s/%s, GOMAXPROCS %d, %s\n\n",
		o.engine, o.body, o.batch, o.rounds, first.GOOS, first.GOARCH, first.GOMAXPROCS, first.GoVersion)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "strategy\tmessages\tenqueue/s\tdrain/s\tpipeline/s\tstatements/msg\tallocs/msg, enqueue + drain\tCPU µs/msg, enqueue + drain")
	by := map[string][]result{}
	for _, r := range results {
		by[r.Strategy] = append(by[r.Strategy], r)
	}
	for _, name := range o.strategies {
		rs := by[name]
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%.4f\t%.1f + %.1f\t%.1f + %.1f\n", name, rs[0].N,
			rate(rs, enqueueRate), rate(rs, drainRate), rate(rs, pipelineRate),
			median(rs, func(r result) float64 { return r.StatementsPerMessage }),
			median(rs, func(r result) float64 { return r.EnqueueAllocs }),
			median(rs, func(r result) float64 { return r.DrainAllocs }),
			median(rs, func(r result) float64 { return r.EnqueueCPU }),
			median(rs, func(r result) float64 { return r.DrainCPU }))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	ours := by["chanq"]
	if len(ours) == 0 || len(by) == 1 {
		return nil
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ratio\tenqueue\tdrain\tpipeline\tallocs/msg of chanq's own")
	for _, name := range o.strategies {
		if name == "chanq" {
			continue
		}
		fmt.Fprintf(t, "chanq / %s\t%.2f\t%.2f\t%.2f\t", name,
			ratio(ours, by[name], enqueueRate), ratio(ours, by[name], drainRate), ratio(ours, by[name], pipelineRate))
		if name == "raw" {
			own := func(f func(result) float64) float64 { return median(ours, f) - median(by[name], f) }
			fmt.Fprintf(t, "%.1f enqueue, %.1f drain", own(func(r result) float64 { return r.EnqueueAllocs }), own(func(r result) float64 { return r.DrainAllocs }))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func enqueueRate(r result) float64  { return r.EnqueuePerS }
func drainRate(r result) float64    { return r.DrainPerS }
func pipelineRate(r result) float64 { return r.PipelinePerS }

// rate is a median with its range.
func rate(rs []result, f func(result) float64) string {
	values := sorted(rs, f)
	return fmt.Sprintf("%.0f (%.0f-%.0f)", middle(values), values[0], values[len(values)-1])
}

func median(rs []result, f func(result) float64) float64 { return middle(sorted(rs, f)) }

// ratio is the median of the rounds' ratios.
func ratio(a, b []result, f func(result) float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = f(a[i]) / f(b[i])
	}
	slices.Sort(ratios)
	return middle(ratios)
}

func sorted(rs []result, f func(result) float64) []float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = f(r)
	}
	slices.Sort(values)
	return values
}

func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
