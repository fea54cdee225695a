package main

import (
	"fmt"
	"slices"
)

// The plots of a report.

func throughputPlot(g grouped[runKey]) bars {
	c := bars{
		title: fmt.Sprintf("%s, %d-byte bodies: messages a second", g.key.engine, g.key.body),
		unit:  "messages a second", names: []string{"enqueue", "drain", "pipeline"},
	}
	for _, s := range byStrategy(g.results) {
		c.rows = append(c.rows, barRow{s.key, []float64{
			median(s.results, enqueueRate), median(s.results, drainRate), median(s.results, pipelineRate),
		}})
	}
	return c
}

// timePlot shows what a message's time is spent on, from enqueue to ack: the
// statements, and what the way adds to them. Ways of one row a statement are left
// out, beside which the others would not be seen, and so are those whose
// statements were not timed.
func timePlot(g grouped[runKey]) bars {
	c := bars{
		title: fmt.Sprintf("%s, %d-byte bodies: where a message's time goes", g.key.engine, g.key.body),
		unit:  "µs a message, by the clock on the wall", stacked: true,
		names: []string{"enqueue statement", "claim statement", "ack statement", "outside of statements"},
	}
	for _, s := range byStrategy(g.results) {
		if s.results[0].Batch <= 1 || s.results[0].AckStatement == 0 {
			continue
		}
		of := func(f func(result) float64) float64 { return median(s.results, f) }
		enqueue, claim, ack := of(func(r result) float64 { return r.EnqueueStatement }),
			of(func(r result) float64 { return r.ClaimStatement }), of(func(r result) float64 { return r.AckStatement })
		wall := of(func(r result) float64 { return 1e6/r.EnqueuePerS + 1e6/r.DrainPerS })
		c.rows = append(c.rows, barRow{s.key, []float64{enqueue, claim, ack, max(0, wall-enqueue-claim-ack)}})
	}
	return c
}

func latencyPlot(results []result) bars {
	c := bars{
		title: "enqueue to delivery", unit: "µs",
		names: []string{"p50", "p99", "p99.9", "one commit"},
	}
	type line struct {
		engine, strategy, load string
		processes              int
	}
	for _, g := range group(results, func(r result) line { return line{r.Engine, r.Strategy, loadOf(r), r.Processes} }) {
		rs := g.results
		name := fmt.Sprintf("%s %s", g.key.engine, g.key.load)
		if g.key.strategy != "chanq" {
			name = g.key.strategy + " " + g.key.load
		}
		if g.key.processes == 2 {
			name += ", across"
		}
		c.rows = append(c.rows, barRow{name, []float64{
			median(rs, p50), median(rs, p99), median(rs, p999), median(rs, func(r result) float64 { return r.CommitP50 }),
		}})
	}
	return c
}

// growthPlot has all engines and strategies of an axis.
func growthPlot(axis string, results []result) lines {
	figures := figuresOf(axis)[:1]
	if axis == "prefetch" || axis == "buffer" {
		figures = figuresOf(axis)[:2] // heap and formula
	}
	c := lines{title: "growth of " + axis, x: axis, y: figures[0].name}
	for _, r := range results {
		if !slices.Contains(c.sizes, r.Size) {
			c.sizes = append(c.sizes, r.Size)
		}
	}
	slices.Sort(c.sizes)
	for _, g := range group(results, func(r result) string { return r.Engine + " " + r.Strategy }) {
		for _, f := range figures {
			name := g.key
			if len(figures) > 1 {
				name += ", " + f.name
			}
			series := make([]float64, len(c.sizes))
			for _, at := range bySize(g.results) {
				series[slices.Index(c.sizes, at.key)] = median(at.results, f.of)
			}
			c.names, c.series = append(c.names, name), append(c.series, series)
		}
	}
	return c
}
