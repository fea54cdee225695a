package main

import (
	"fmt"
	"io"

	"github.com/chanq/chanq/bench/internal/measure"
)

func writeLatency(w io.Writer, o options, results []measure.Result) error {
	if o.idle {
		return measure.WriteTables(w, idleTables(o, results)...)
	}
	return measure.WriteTables(w, latencyTables(results)...)
}

func latencyTables(results []measure.Result) (tables []measure.Table) {
	for _, g := range measure.Group(results, runOf) {
		t := measure.Table{
			Title: fmt.Sprintf("%s, body %d B: enqueue to delivery in µs, rounds %d", g.Key.engine, g.Key.body, rounds(g.Results)),
			Head:  []string{"strategy", "sender", "load", "messages/s", "p50", "p99", "p99.9", "one commit", "p50 beyond it"},
		}
		type line struct {
			strategy  string
			processes int
			load      string // as a part of saturation, or the rate itself
		}
		for _, l := range measure.Group(g.Results, func(r measure.Result) line { return line{r.Strategy, r.Processes, loadOf(r)} }) {
			rs := l.Results
			t.Rows = append(t.Rows, []string{
				l.Key.strategy, senderOf(l.Key.processes), l.Key.load, measure.Short(measure.Median(rs, func(r measure.Result) float64 { return r.RatePerS })),
				measure.Ranged(rs, p50), measure.Ranged(rs, p99), measure.Ranged(rs, p999), measure.Ranged(rs, commitP50), beyondCommit(rs),
			})
		}
		tables = append(tables, t)
	}
	return tables
}

// beyondCommit returns the time that chanq adds to the commit, which every delivery needs.
func beyondCommit(rs []measure.Result) string {
	if measure.Median(rs, commitP50) == 0 {
		return "–"
	}
	return measure.Short(measure.Median(rs, func(r measure.Result) float64 { return r.P50 - r.CommitP50 }))
}

func loadOf(r measure.Result) string {
	if r.Load > 0 {
		return fmt.Sprintf("%.0f %%", 100*r.Load)
	}
	return fmt.Sprintf("%.0f/s", r.RatePerS)
}

func senderOf(processes int) string {
	return [...]string{"–", "same process", "another process"}[processes]
}

func p50(r measure.Result) float64  { return r.P50 }
func p99(r measure.Result) float64  { return r.P99 }
func p999(r measure.Result) float64 { return r.P999 }
