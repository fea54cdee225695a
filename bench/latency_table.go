package main

import (
	"fmt"
	"io"
)

func writeLatency(w io.Writer, _ options, results []result) error {
	return writeTables(w, latencyTables(results))
}

func latencyTables(results []result) (tables []table) {
	for _, g := range group(results, runOf) {
		t := table{
			title: fmt.Sprintf("%s, body %d B: enqueue to delivery in µs, rounds %d", g.key.engine, g.key.body, rounds(g.results)),
			head:  []string{"strategy", "sender", "load", "messages/s", "p50", "p99", "p99.9", "one commit"},
		}
		type line struct {
			strategy  string
			processes int
			load      string // of saturation, or the rate itself
		}
		for _, l := range group(g.results, func(r result) line { return line{r.Strategy, r.Processes, loadOf(r)} }) {
			rs := l.results
			t.rows = append(t.rows, []string{
				l.key.strategy, senderOf(l.key.processes), l.key.load, short(median(rs, func(r result) float64 { return r.RatePerS })),
				ranged(rs, p50), ranged(rs, p99), ranged(rs, p999), ranged(rs, func(r result) float64 { return r.CommitP50 }),
			})
		}
		tables = append(tables, t)
	}
	return tables
}

func loadOf(r result) string {
	if r.Load > 0 {
		return fmt.Sprintf("%.0f %%", 100*r.Load)
	}
	return fmt.Sprintf("%.0f/s", r.RatePerS)
}

func senderOf(processes int) string {
	return [...]string{"–", "same process", "another process"}[processes]
}

func p50(r result) float64  { return r.P50 }
func p99(r result) float64  { return r.P99 }
func p999(r result) float64 { return r.P999 }
