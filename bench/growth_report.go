package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
)

func writeGrowth(w io.Writer, _ options, results []result) error {
	return writeTables(w, growthTables(results))
}

type growthKey struct {
	engine, axis string
}

// figure is what a table or a plot shows of a growth.
type figure struct {
	name string
	of   func(result) float64
}

// figuresOf are the figures that an axis is about, the main one first.
func figuresOf(axis string) []figure {
	wall := figure{"µs/msg", func(r result) float64 { return r.WallPerMsg }}
	cpu := figure{"CPU µs/msg", func(r result) float64 { return r.CPUPerMsg }}
	statements := figure{"statements/msg", func(r result) float64 { return r.StatementsPerMessage }}
	enqueue := figure{"enqueue/s", enqueueRate}
	drain := figure{"drain/s", drainRate}
	switch axis {
	case "backlog", "leased", "scheduled":
		return []figure{
			{"claim µs/msg", func(r result) float64 { return r.ClaimStatement }},
			{"ack µs/msg", func(r result) float64 { return r.AckStatement }},
			{"enqueue µs/msg", func(r result) float64 { return r.EnqueueStatement }},
			cpu,
		}
	case "consumers", "processes":
		return []figure{wall, drain, cpu, statements}
	case "lingers":
		return []figure{{"Send µs, median", func(r result) float64 { return r.CommitP50 }}, enqueue, cpu, statements}
	case "prefetch", "buffer":
		return []figure{
			{"heap bytes", func(r result) float64 { return r.HeapBytes }},
			{"formula bytes", func(r result) float64 { return r.FormulaBytes }},
			{"heap bytes/msg", func(r result) float64 { return r.HeapPerMsg }},
		}
	}
	return []figure{wall, enqueue, drain, cpu, statements}
}

// growthTables are one for each axis of each engine. The last column is the main
// figure beside that of the first size: 1 does not grow.
func growthTables(results []result) (tables []table) {
	for _, g := range group(results, func(r result) growthKey { return growthKey{r.Engine, r.Axis} }) {
		figures := figuresOf(g.key.axis)
		first := g.results[0]
		t := table{
			title: fmt.Sprintf("%s, growth of %s, rounds %d, %d B bodies unless said otherwise", g.key.engine, g.key.axis, rounds(g.results), first.BodyBytes),
			head:  []string{"strategy", g.key.axis},
		}
		for _, f := range figures {
			t.head = append(t.head, f.name)
		}
		t.head = append(t.head, figures[0].name+" / first")
		for _, s := range byStrategy(g.results) {
			base := 0.0
			for _, at := range bySize(s.results) {
				row := []string{s.key, strconv.Itoa(at.key)}
				for _, f := range figures {
					row = append(row, ranged(at.results, f.of))
				}
				main := median(at.results, figures[0].of)
				if base == 0 {
					base = main
				}
				t.rows = append(t.rows, append(row, fmt.Sprintf("%.2f", main/base)))
			}
		}
		tables = append(tables, t)
	}
	return tables
}

func bySize(results []result) []grouped[int] {
	sizes := group(results, func(r result) int { return r.Size })
	slices.SortFunc(sizes, func(a, b grouped[int]) int { return a.key - b.key })
	return sizes
}
