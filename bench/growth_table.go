package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/chanq/chanq/bench/internal/measure"
)

func writeGrowth(w io.Writer, _ options, results []measure.Result) error {
	return measure.WriteTables(w, growthTables(results)...)
}

type growthKey struct {
	engine, axis string
}

// figure is one figure of a growth in a table or plot.
type figure struct {
	name string
	of   func(measure.Result) float64
}

// figuresOf returns the figures of an axis, the main figure first.
func figuresOf(axis string) []figure {
	wall := figure{"µs/msg", func(r measure.Result) float64 { return r.WallPerMsg }}
	cpu := figure{"CPU µs/msg", func(r measure.Result) float64 { return r.CPUPerMsg }}
	statements := figure{"statements/msg", func(r measure.Result) float64 { return r.StatementsPerMessage }}
	enqueue := figure{"enqueue/s", enqueueRate}
	drain := figure{"drain/s", drainRate}
	switch axis {
	case "backlog", "leased", "scheduled":
		return []figure{
			{"claim µs/msg", claimTime},
			{"ack µs/msg", func(r measure.Result) float64 { return r.AckStatement }},
			{"enqueue µs/msg", func(r measure.Result) float64 { return r.EnqueueStatement }},
			cpu,
		}
	case blockedStep, slotsStep:
		return []figure{{"claim µs/msg", claimTime}, wall, cpu, statements}
	case heldStep:
		return []figure{{"first ms", firstOther}, wall, cpu, statements}
	case "consumers", "processes":
		return []figure{wall, drain, cpu, statements}
	case "purge", "redrive", "trim":
		return []figure{wall, cpu, statements}
	case "lingers":
		return []figure{{"Send µs, median", commitP50}, enqueue, cpu, statements}
	case "prefetch", "buffer":
		return []figure{
			{"heap bytes", func(r measure.Result) float64 { return r.HeapBytes }},
			{"formula bytes", func(r measure.Result) float64 { return r.FormulaBytes }},
			{"heap bytes/msg", func(r measure.Result) float64 { return r.HeapPerMsg }},
		}
	}
	return []figure{wall, enqueue, drain, cpu, statements}
}

// growthTables returns one table for each axis of each engine. The last column is the ratio of the main
// figure to that of the first size: 1 means no growth.
func growthTables(results []measure.Result) (tables []measure.Table) {
	for _, g := range measure.Group(results, func(r measure.Result) growthKey { return growthKey{r.Engine, r.Axis} }) {
		figures := figuresOf(g.Key.axis)
		first := g.Results[0]
		t := measure.Table{
			Title: fmt.Sprintf("%s, growth of %s, rounds %d, %d B bodies unless said otherwise", g.Key.engine, g.Key.axis, rounds(g.Results), first.BodyBytes),
			Head:  []string{"strategy", g.Key.axis},
		}
		for _, f := range figures {
			t.Head = append(t.Head, f.name)
		}
		t.Head = append(t.Head, figures[0].name+" / first")
		for _, s := range byStrategy(g.Results) {
			base := 0.0
			for _, at := range bySize(s.Results) {
				row := []string{s.Key, strconv.Itoa(at.Key)}
				for _, f := range figures {
					row = append(row, measure.Ranged(at.Results, f.of))
				}
				main := measure.Median(at.Results, figures[0].of)
				if base == 0 {
					base = main
				}
				t.Rows = append(t.Rows, append(row, fmt.Sprintf("%.2f", main/base)))
			}
		}
		tables = append(tables, t)
	}
	return tables
}

func bySize(results []measure.Result) []measure.Grouped[int] {
	sizes := measure.Group(results, func(r measure.Result) int { return r.Size })
	slices.SortFunc(sizes, func(a, b measure.Grouped[int]) int { return a.Key - b.Key })
	return sizes
}
