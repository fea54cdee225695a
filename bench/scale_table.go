package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/chanq/chanq/bench/internal/measure"
)

func writeScale(w io.Writer, o options, results []measure.Result) error {
	title := fmt.Sprintf("%s: %d queues in %d schemas, %d consumers in %d processes, nothing to do", o.engine, o.scale.queues, o.scale.schemas, o.consumers, o.processes)
	if o.slots > 0 {
		title += fmt.Sprintf(", ordered, %d slots", o.slots)
	}
	t := measure.Table{Title: title, Head: []string{
		"", "connections: median, most, new/s", "statements/s", "CPU: server, clients", "server MB", "a consumer: heap kB, RSS kB, goroutines",
		"messages", "p50 ms", "p99 ms", "slowest ms",
	}}
	asked := measure.Table{Title: "statements a second, of all consumers together"}
	var kinds []string
	for _, r := range results {
		for kind := range maps.Keys(r.Scale.AskedPerS) {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	asked.Head = append([]string{""}, kinds...)
	for _, g := range measure.Group(results, func(r measure.Result) string { return r.Scale.About }) {
		median := func(f func(measure.Scale) float64) float64 {
			return measure.Median(g.Results, func(r measure.Result) float64 { return f(*r.Scale) })
		}
		short := func(f func(measure.Scale) float64) string { return measure.Short(median(f)) }
		ages, slowest, n, connections := measure.Histogram{}, 0.0, 0, []int(nil)
		for _, r := range g.Results {
			ages.Merge(r.Ages)
			slowest, n = max(slowest, r.Max/1e3), n+r.N
			connections = append(connections, r.Scale.Connections...)
		}
		slices.Sort(connections)
		t.Rows = append(t.Rows, []string{
			g.Key, fmt.Sprintf("%d, %d, %s", connections[len(connections)/2], connections[len(connections)-1], short(func(s measure.Scale) float64 { return s.ConnectsPerS })),
			short(measure.Scale.Statements),
			short(func(s measure.Scale) float64 { return s.ServerCPU }) + ", " + short(func(s measure.Scale) float64 { return s.ClientCPU }),
			short(func(s measure.Scale) float64 { return float64(s.ServerBytes) / (1 << 20) }),
			strings.Join([]string{
				short(func(s measure.Scale) float64 { return s.HeapPerConsumer / 1024 }),
				short(func(s measure.Scale) float64 { return s.RSSPerConsumer / 1024 }),
				short(func(s measure.Scale) float64 { return s.Goroutines }),
			}, ", "),
			fmt.Sprint(n), measure.Short(min(ages.Quantile(0.5)/1e3, slowest)), measure.Short(min(ages.Quantile(0.99)/1e3, slowest)), measure.Short(slowest),
		})
		row := []string{g.Key}
		for _, kind := range kinds {
			row = append(row, short(func(s measure.Scale) float64 { return s.AskedPerS[kind] }))
		}
		asked.Rows = append(asked.Rows, row)
	}
	return measure.WriteTables(w, t, asked)
}
