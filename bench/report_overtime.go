package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chanq/chanq/bench/internal/measure"
)

// overTime has panels above one another that share their axis of seconds. Each panel shows one
// figure of all runs.
type overTime struct {
	title  string
	names  []string // of the runs
	at     [][]float64
	panels []panel
}

type panel struct {
	y      string
	series [][]float64 // by run; as long as the run's at
}

func (c overTime) draw() []byte {
	const left, right, tall, gap = 70, 30, 180, 34
	s := &svg{width: 760}
	s.text(10, 20, "start", c.title)
	top := s.legend(10, 40, c.names) + 12
	end := 0.0
	for _, at := range c.at {
		end = max(end, at[len(at)-1])
	}
	x := scale{high: end, length: s.width - left - right}
	for _, p := range c.panels {
		y := newScale(slices.Concat(p.series...), tall)
		s.text(left, top, "start", p.y)
		top += 8
		bottom := top + tall
		for _, v := range y.ticks() {
			s.line(left, bottom-y.at(v), s.width-right, bottom-y.at(v), svgGrid)
			s.text(left-6, bottom-y.at(v)+4, "end", label(v))
		}
		for _, v := range x.ticks() {
			s.text(left+x.at(v), bottom+16, "middle", label(v))
		}
		for i, one := range p.series {
			var points [][2]float64
			for j, v := range one {
				points = append(points, [2]float64{left + x.at(c.at[i][j]), bottom - y.at(v)})
			}
			s.path(points, colour(i))
		}
		top = bottom + gap
	}
	s.text(left, top, "start", "seconds")
	s.height = top + 10
	return s.document(c.title)
}

// sustainedRun is the intervals of one run.
type sustainedRun struct {
	name      string
	intervals []measure.Result
}

// runsOf groups intervals by run: time restarts with each run.
func runsOf(results []measure.Result) (runs []sustainedRun) {
	for i, r := range results {
		if r.AtS == 0 {
			continue
		}
		if i == 0 || results[i-1].AtS >= r.AtS || results[i-1].Engine != r.Engine || results[i-1].Strategy != r.Strategy {
			runs = append(runs, sustainedRun{})
		}
		last := &runs[len(runs)-1]
		last.intervals = append(last.intervals, r)
	}
	for i := range runs {
		runs[i].name = nameOf(runs[i].intervals)
	}
	return runs
}

// nameOf returns how a run differs from a run of one process without a rate.
func nameOf(intervals []measure.Result) string {
	last := intervals[len(intervals)-1]
	parts := []string{last.Engine + " " + last.Strategy}
	if last.Keys > 0 {
		parts = append(parts, "ordered")
	}
	if last.Processes > 1 {
		parts = append(parts, fmt.Sprintf("%d processes", last.Processes))
	}
	if last.Consumers > 1 {
		parts = append(parts, fmt.Sprintf("%d consumers", last.Consumers))
	}
	if last.RatePerS > 0 {
		parts = append(parts, fmt.Sprintf("at %.0f/s", last.RatePerS))
	}
	if last.Held {
		parts = append(parts, "snapshot held")
	}
	return strings.Join(parts, ", ")
}

// sustainedPlot shows throughput and size of all runs over time.
func sustainedPlot(runs []sustainedRun) overTime {
	c := overTime{title: "sustained: sent and received at once, over time", panels: []panel{
		{y: "messages received a second"}, {y: "MiB of tables, indexes and SQLite's log"},
	}}
	for _, run := range runs {
		c.names = append(c.names, run.name)
		var at, rate, size []float64
		for _, r := range run.intervals {
			at = append(at, r.AtS)
			rate = append(rate, r.DrainPerS)
			size = append(size, math.Round(float64(r.TableBytes+r.IndexBytes+r.LogBytes)/(1<<20)*10)/10)
		}
		c.at = append(c.at, at)
		c.panels[0].series, c.panels[1].series = append(c.panels[0].series, rate), append(c.panels[1].series, size)
	}
	return c
}
