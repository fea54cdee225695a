package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chanq/chanq/bench/internal/measure"
)

// writeTable writes the median of each figure over the rounds, with its range, and the ratios of
// chanq to the others on its engine: the median of the ratios of single rounds, in which all ran
// close together.
func writeTable(w io.Writer, o options, about string, results []measure.Result) error {
	by := map[string][]measure.Result{}
	for _, r := range results {
		name := r.Engine + "/" + r.Strategy
		by[name] = append(by[name], r)
	}
	measured := slices.DeleteFunc(slices.Clone(o.systems), func(s system) bool { return len(by[s.name()]) == 0 })
	tables := []measure.Table{costs(o, about, measured, by), latencies(o, measured, by), ratios(measured, by)}
	if o.drainOnly {
		tables = slices.Delete(tables, 1, 2)
	}
	if err := measure.WriteTables(w, tables...); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, s := range measured {
		fmt.Fprintf(w, "%s: %s\n", s.name(), s.note)
		if failed := o.rounds - len(by[s.name()]); failed > 0 {
			fmt.Fprintf(w, "%s: FAILED in %d of %d rounds\n", s.name(), failed, o.rounds)
		}
	}
	return nil
}

func costs(o options, about string, measured []system, by map[string][]measure.Result) measure.Table {
	t := measure.Table{
		Title: fmt.Sprintf("%d messages, body %d B, rounds %d; %s", o.n, o.body, o.rounds, about),
		Head: []string{"system", "version", "enqueue/s", "drain/s", "pipeline/s", "statements/msg, enqueue + drain", "WAL B/msg",
			"client CPU µs/msg, enqueue + drain", "left: rows, bytes/msg"},
	}
	for _, s := range measured {
		rs := by[s.name()]
		pair := func(format string, enqueue, drain measure.Figure) string {
			if measure.Median(rs, enqueue) == 0 {
				return "-" // unknown
			}
			return fmt.Sprintf(format+" + "+format, measure.Median(rs, enqueue), measure.Median(rs, drain))
		}
		t.Rows = append(t.Rows, []string{
			s.name(), rs[0].Version, measure.Ranged(rs, enqueueRate), measure.Ranged(rs, drainRate), measure.Ranged(rs, pipelineRate),
			pair("%.4f", func(r measure.Result) float64 { return r.EnqueueStatements }, func(r measure.Result) float64 { return r.DrainStatements }),
			pair("%.0f", func(r measure.Result) float64 { return r.EnqueueWAL }, func(r measure.Result) float64 { return r.DrainWAL }),
			pair("%.1f", func(r measure.Result) float64 { return r.EnqueueCPU }, func(r measure.Result) float64 { return r.DrainCPU }),
			fmt.Sprintf("%.0f, %.0f", measure.Median(rs, func(r measure.Result) float64 { return float64(r.LeftRows) }),
				measure.Median(rs, func(r measure.Result) float64 { return float64(r.LeftBytes) / float64(r.N) })),
		})
	}
	return t
}

func latencies(o options, measured []system, by map[string][]measure.Result) measure.Table {
	t := measure.Table{
		Title: fmt.Sprintf("send to delivery at %d/s, %d messages a round, ms", o.rate, o.latencyN),
		Head:  []string{"system", "p50", "p99", "p99.9", "max", ""},
	}
	for _, s := range measured {
		rs := by[s.name()]
		row := []string{s.name()}
		for _, f := range []measure.Figure{
			p50, func(r measure.Result) float64 { return r.P99 }, func(r measure.Result) float64 { return r.P999 },
			func(r measure.Result) float64 { return r.Max },
		} {
			row = append(row, fmt.Sprintf("%.2f", measure.Median(rs, f)/1e3))
		}
		remark := ""
		if slices.ContainsFunc(rs, func(r measure.Result) bool { return r.Saturated }) {
			remark = "SATURATED: the rate was not reached"
		}
		t.Rows = append(t.Rows, append(row, remark))
	}
	return t
}

func ratios(measured []system, by map[string][]measure.Result) measure.Table {
	t := measure.Table{Title: "ratios", Head: []string{"ratio", "enqueue", "drain", "pipeline", "p50"}}
	for _, ours := range measured {
		for _, theirs := range measured {
			if !isChanq(ours) || isChanq(theirs) || theirs.engine != ours.engine {
				continue
			}
			a, b := by[ours.name()], by[theirs.name()]
			t.Rows = append(t.Rows, []string{
				ours.name() + " / " + theirs.strategy, measure.Times(a, b, enqueueRate), measure.Times(a, b, drainRate),
				measure.Times(a, b, pipelineRate), measure.Times(a, b, p50),
			})
		}
	}
	return t
}

func isChanq(s system) bool { return strings.HasPrefix(s.strategy, "chanq") }

func enqueueRate(r measure.Result) float64  { return r.EnqueuePerS }
func drainRate(r measure.Result) float64    { return r.DrainPerS }
func pipelineRate(r measure.Result) float64 { return r.PipelinePerS }
func p50(r measure.Result) float64          { return r.P50 }
