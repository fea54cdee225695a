package main

import (
	"fmt"
	"slices"

	"github.com/chanq/chanq/bench/internal/measure"
)

// The plots of a report.

func throughputPlot(g measure.Grouped[runKey]) bars {
	c := bars{
		title: fmt.Sprintf("%s, %d-byte bodies: messages a second", g.Key.engine, g.Key.body),
		unit:  "messages a second", names: []string{"enqueue", "drain", "pipeline"},
	}
	for _, s := range byStrategy(g.Results) {
		c.rows = append(c.rows, barRow{s.Key, []float64{
			measure.Median(s.Results, enqueueRate), measure.Median(s.Results, drainRate), measure.Median(s.Results, pipelineRate),
		}})
	}
	return c
}

// timePlot shows how a message's time is spent, from enqueue to ack: the statements, and the
// overhead of the strategy. It omits strategies with one row per statement, because the others
// would be invisible next to them, and strategies whose statements were not timed.
func timePlot(g measure.Grouped[runKey]) bars {
	c := bars{
		title: fmt.Sprintf("%s, %d-byte bodies: where a message's time goes", g.Key.engine, g.Key.body),
		unit:  "µs a message, by the clock on the wall", stacked: true,
		names: []string{"enqueue statement", "claim statement", "ack statement", "outside of statements"},
	}
	for _, s := range byStrategy(g.Results) {
		if s.Results[0].Batch <= 1 || s.Results[0].AckStatement == 0 {
			continue
		}
		of := func(f func(measure.Result) float64) float64 { return measure.Median(s.Results, f) }
		enqueue, claim, ack := of(func(r measure.Result) float64 { return r.EnqueueStatement }),
			of(func(r measure.Result) float64 { return r.ClaimStatement }), of(func(r measure.Result) float64 { return r.AckStatement })
		wall := of(func(r measure.Result) float64 { return 1e6/r.EnqueuePerS + 1e6/r.DrainPerS })
		c.rows = append(c.rows, barRow{s.Key, []float64{enqueue, claim, ack, max(0, wall-enqueue-claim-ack)}})
	}
	return c
}

func latencyPlot(results []measure.Result) bars {
	c := bars{
		title: "enqueue to delivery", unit: "µs",
		names: []string{"p50", "p99", "p99.9", "one commit"},
	}
	type line struct {
		engine, strategy, load string
		processes              int
	}
	for _, g := range measure.Group(results, func(r measure.Result) line { return line{r.Engine, r.Strategy, loadOf(r), r.Processes} }) {
		rs := g.Results
		name := fmt.Sprintf("%s %s", g.Key.engine, g.Key.load)
		if g.Key.strategy != "chanq" {
			name = g.Key.strategy + " " + g.Key.load
		}
		if g.Key.processes == 2 {
			name += ", across"
		}
		c.rows = append(c.rows, barRow{name, []float64{
			measure.Median(rs, p50), measure.Median(rs, p99), measure.Median(rs, p999), measure.Median(rs, commitP50),
		}})
	}
	return c
}

// sleptPlot shows the ways in which idle consumers were measured, with the same gaps next to each
// other.
func sleptPlot(all []measure.Slept) bars {
	c := bars{title: "send to delivery in another process that is idle between messages", unit: "ms", names: []string{"p50", "p99", "slowest", "one commit"}}
	var gaps []string
	for _, s := range all {
		if !slices.Contains(gaps, s.Gap) {
			gaps = append(gaps, s.Gap)
		}
	}
	for _, gap := range gaps {
		for _, s := range all {
			if s.Gap != gap {
				continue
			}
			label := s.Name + ", " + gap
			if s.Sleepers > 1 {
				label += fmt.Sprintf(", %d idle consumers", s.Sleepers)
			}
			c.rows = append(c.rows, barRow{label, []float64{s.P50, s.P99, s.Slowest, s.Commit}})
		}
	}
	return c
}

// growthPlot shows all engines and strategies of an axis.
func growthPlot(axis string, results []measure.Result) lines {
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
	for _, g := range measure.Group(results, func(r measure.Result) string { return r.Engine + " " + r.Strategy }) {
		for _, f := range figures {
			name := g.Key
			if len(figures) > 1 {
				name += ", " + f.name
			}
			series := make([]float64, len(c.sizes))
			for _, at := range bySize(g.Results) {
				series[slices.Index(c.sizes, at.Key)] = measure.Median(at.Results, f.of)
			}
			c.names, c.series = append(c.names, name), append(c.series, series)
		}
	}
	return c
}
