package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/chanq/chanq/bench/internal/measure"
)

func claimTime(r measure.Result) float64      { return r.ClaimStatement }
func firstOther(r measure.Result) float64     { return r.FirstDeliveryMS }
func idleStatements(r measure.Result) float64 { return r.IdleStatements }

func writeOrder(w io.Writer, o options, results []measure.Result) error {
	engine := o.engine
	if o.dsn == emulator {
		engine += " (the emulator: for counts, not for times)"
	}
	var tables []measure.Table
	if of := ofStep(results, keysStep); len(of) > 0 {
		tables = append(tables, keysTable(engine, of), keysRatios(engine, of))
	}
	tables = append(tables, growthTables(slices.DeleteFunc(slices.Clone(results), func(r measure.Result) bool { return r.Axis == "" }))...)
	if of := ofStep(results, idleOrder); len(of) > 0 {
		t := measure.Table{Title: engine + ": statements a second of a consumer with nothing to do, its heartbeat included", Head: []string{"", "rounds", "statements/s"}}
		for _, g := range byKeys(of) {
			t.Rows = append(t.Rows, []string{kindOf(g.Key), fmt.Sprint(len(g.Results)), measure.Ranged(g.Results, idleStatements)})
		}
		tables = append(tables, t)
	}
	return measure.WriteTables(w, append(tables, orderTargets(engine, o, results))...)
}

func ofStep(results []measure.Result, step string) (of []measure.Result) {
	for _, r := range results {
		if r.Step == step {
			of = append(of, r)
		}
	}
	return of
}

func ofAxis(results []measure.Result, axis string, size int) (of []measure.Result) {
	for _, r := range results {
		if r.Axis == axis && r.Size == size {
			of = append(of, r)
		}
	}
	return of
}

func byKeys(results []measure.Result) []measure.Grouped[int] {
	kinds := measure.Group(results, func(r measure.Result) int { return r.Keys })
	slices.SortFunc(kinds, func(a, b measure.Grouped[int]) int { return cmp.Compare(weight(a.Key), weight(b.Key)) })
	return kinds
}

// weight orders the plain queue first, and then the queue with the most keys.
func weight(keys int) int {
	if keys == 0 {
		return math.MinInt
	}
	return -keys
}

func kindOf(keys int) string {
	switch keys {
	case 0:
		return "plain"
	case 1:
		return "ordered, 1 key"
	}
	return fmt.Sprintf("ordered, %d keys", keys)
}

func keysTable(engine string, results []measure.Result) measure.Table {
	t := measure.Table{
		Title: fmt.Sprintf("%s, body %d B, rounds %d", engine, results[0].BodyBytes, rounds(results)),
		Head: []string{"queue", "messages", "enqueue/s", "drain/s", "pipeline/s", "statements/msg",
			"statement µs/msg: enqueue, claim, ack", "CPU µs/msg, enqueue + drain"},
	}
	for _, g := range byKeys(results) {
		median := func(f measure.Figure) string { return measure.Short(measure.Median(g.Results, f)) }
		t.Rows = append(t.Rows, []string{
			kindOf(g.Key), fmt.Sprint(g.Results[0].N), measure.Ranged(g.Results, enqueueRate), measure.Ranged(g.Results, drainRate), measure.Ranged(g.Results, pipelineRate),
			median(func(r measure.Result) float64 { return r.StatementsPerMessage }),
			median(func(r measure.Result) float64 { return r.EnqueueStatement }) + ", " + median(claimTime) + ", " + median(func(r measure.Result) float64 { return r.AckStatement }),
			median(enqueueCPU) + " + " + median(drainCPU),
		})
	}
	return t
}

// keysRatios compares ordered queues with the plain one, round by round.
func keysRatios(engine string, results []measure.Result) measure.Table {
	t := measure.Table{
		Title: engine + ": ordered / plain, medians of the rounds' ratios and their ranges",
		Head:  []string{"queue", "enqueue/s", "drain/s", "pipeline/s", "claim µs/msg", "CPU µs/msg of drain"},
	}
	kinds := byKeys(results)
	for _, g := range kinds {
		if g.Key == 0 {
			continue
		}
		row := []string{kindOf(g.Key)}
		for _, f := range []measure.Figure{enqueueRate, drainRate, pipelineRate, claimTime, drainCPU} {
			row = append(row, ratioRange(g.Results, kinds[0].Results, f))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// orderTargets returns the table of all bounds and measured figures.
func orderTargets(engine string, o options, results []measure.Result) measure.Table {
	t := measure.Table{Title: engine + ": targets", Head: []string{"", "measured", "target", ""}}
	add := func(one target) {
		if one.measured > 0 {
			t.Rows = append(t.Rows, one.row())
		}
	}
	kinds := func(keys int) (of []measure.Result) {
		return slices.DeleteFunc(ofStep(results, keysStep), func(r measure.Result) bool { return r.Keys != keys })
	}
	if o.dsn != emulator {
		for _, bound := range []struct {
			what  string
			of    measure.Figure
			bound float64
		}{{"enqueue", enqueueRate, 0.95}, {"drain", drainRate, 0.9}, {"pipeline", pipelineRate, 0.9}} {
			add(target{
				fmt.Sprintf("%s, %d keys: ordered / plain", bound.what, o.keys),
				measure.Middle(measure.Ratios(kinds(o.keys), kinds(0), bound.of)), true, bound.bound, "",
			})
		}
		for _, axis := range orderAxes {
			sizes := o.growth[axis.name]
			if len(sizes) < 2 {
				continue
			}
			first, last := slices.Min(sizes), slices.Max(sizes)
			if axis.name == heldStep {
				add(target{fmt.Sprintf("ms until another key comes, %d %s", last, axis.name), measure.Median(ofAxis(results, axis.name, last), firstOther), false, 300, ""})
				continue
			}
			add(target{
				fmt.Sprintf("claim of a message, %d / %d %s", last, first, axis.name),
				measure.Middle(measure.Ratios(ofAxis(results, axis.name, last), ofAxis(results, axis.name, first), claimTime)), false, 1.3, "",
			})
		}
	}
	idle := slices.DeleteFunc(ofStep(results, idleOrder), func(r measure.Result) bool { return r.Keys == 0 })
	add(target{"statements a second of one that idles, heartbeat included", measure.Median(idle, idleStatements), false, 1 + heartbeat(o.engine), ""})
	return t
}

// heartbeat returns the statements per second for a consumer's row in chanq__consumers. On an
// engine with one writer it has a separate transaction, with a statement that deletes other rows.
func heartbeat(engine string) float64 {
	each := 1.0
	if findEngine(engine).dialect.Traits().OneWriter {
		each = 4
	}
	return 3 * each / leaseFor.Seconds()
}
