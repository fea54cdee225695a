package main

import (
	"fmt"
	"slices"

	"github.com/chanq/chanq/bench/internal/measure"
)

// idleTables returns the tables of idle consumers, of loads with the notifier off and on, and
// of the figures with a target.
func idleTables(o options, results []measure.Result) (tables []measure.Table) {
	engine := o.engine
	if o.dsn == emulator {
		engine += " (the emulator: for counts, not for times)"
	}
	slept := measure.SleptOf(results)
	if len(slept) > 0 {
		tables = append(tables, measure.SleptTable(fmt.Sprintf(
			"%s, body %d B, rounds %d: send to delivery in other, idle processes", engine, o.latencyBody(), o.rounds), slept))
	}
	if t := loadTable(engine, results); len(t.Rows) > 0 {
		tables = append(tables, t)
	}
	return append(tables, targetTable(engine, o, results))
}

// besides returns the results of a load with a number of idle consumers, with the notifier off and
// on.
func besides(results []measure.Result, step string, sleepers int) (off, on []measure.Result) {
	for _, r := range results {
		switch {
		case r.Step != step || r.Processes != sleepers+1:
		case r.Notifier:
			on = append(on, r)
		default:
			off = append(off, r)
		}
	}
	return off, on
}

// loads are the steps that are measured in pairs, with the compared figures.
var loads = []struct {
	step, what string
	of         measure.Figure
}{
	{"enqueue", "enqueued a second by one producer", enqueueRate},
	{"singles", "single messages a second of eight producers", enqueueRate},
	{"half", "statements a message at half of full speed", func(r measure.Result) float64 { return r.StatementsPerMessage }},
}

func loadTable(engine string, results []measure.Result) measure.Table {
	t := measure.Table{
		Title: engine + ": the notifier off and on, in turn",
		Head:  []string{"", "idle consumers", "pairs", "off", "on", "on / off"},
	}
	for _, load := range loads {
		for _, n := range crowdsOf(results, load.step) {
			off, on := besides(results, load.step, n)
			t.Rows = append(t.Rows, []string{
				load.what, fmt.Sprint(n), fmt.Sprint(len(on)), measure.Ranged(off, load.of), measure.Ranged(on, load.of), ratioRange(on, off, load.of),
			})
		}
	}
	return t
}

func crowdsOf(results []measure.Result, step string) (sleepers []int) {
	for _, r := range results {
		if r.Step == step && !slices.Contains(sleepers, r.Processes-1) {
			sleepers = append(sleepers, r.Processes-1)
		}
	}
	return sleepers
}

func ratioRange(a, b []measure.Result, f measure.Figure) string {
	ratios := measure.Ratios(a, b, f)
	if len(ratios) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f (%.3f-%.3f)", measure.Middle(ratios), ratios[0], ratios[len(ratios)-1])
}

// target is a bound for a measured figure.
type target struct {
	what     string
	measured float64
	least    bool // the bound is a minimum, otherwise a maximum
	bound    float64
	unit     string
}

func (t target) row() []string {
	sign, met := "≤", t.measured <= t.bound
	if t.least {
		sign, met = "≥", t.measured >= t.bound
	}
	return []string{t.what, measure.Short(t.measured) + t.unit, fmt.Sprintf("%s %v%s", sign, t.bound, t.unit), map[bool]string{true: "met", false: "MISSED"}[met]}
}

// targetTable returns the table of all bounds and measured figures.
func targetTable(engine string, o options, results []measure.Result) measure.Table {
	t := measure.Table{Title: engine + ": targets", Head: []string{"", "measured", "target", ""}}
	for _, one := range slices.Concat(sleepTargets(o, results), loadTargets(results)) {
		t.Rows = append(t.Rows, one.row())
	}
	return t
}

func sleeping(n int) string {
	switch n {
	case 0:
		return "no idle consumer"
	case 1:
		return "one idle consumer"
	}
	return fmt.Sprintf("%d idle consumers", n)
}

func sleepTargets(o options, results []measure.Result) (targets []target) {
	for _, step := range []string{"gaps", "cold", "crowd", "owners"} {
		of := slices.DeleteFunc(slices.Clone(results), func(r measure.Result) bool { return r.Step != step })
		for _, s := range measure.SleptOf(of) {
			subject := fmt.Sprintf("%s, gaps of %s: ", sleeping(s.Sleepers), s.Gap)
			if step == "owners" {
				subject = "ordered queue, " + subject
				if o.dsn != emulator {
					targets = append(targets, target{subject + "p50", s.P50, false, 10, " ms"}, target{subject + "p99", s.P99, false, 50, " ms"})
				}
				targets = append(targets, target{subject + "statements a second of one that idles", s.IdleStatementsPerS, false, 1.5, ""})
				continue
			}
			if o.dsn != emulator {
				targets = append(targets, target{subject + "p50", s.P50, false, 5, " ms"})
				if step != "crowd" {
					targets = append(targets, target{subject + "p99", s.P99, false, 20, " ms"})
				}
			}
			if step == "crowd" {
				targets = append(targets, target{subject + "statements a message", s.StatementsPerMessage, false, 4, ""})
			}
			targets = append(targets, target{subject + "statements a second of one that idles", s.IdleStatementsPerS, false, 1, ""})
		}
	}
	return targets
}

func loadTargets(results []measure.Result) (targets []target) {
	bounds := map[string]target{
		"enqueue": {least: true, bound: 0.97}, "singles": {least: true, bound: 0.9}, "half": {bound: 1.05},
	}
	for _, load := range loads {
		for _, n := range crowdsOf(results, load.step) {
			off, on := besides(results, load.step, n)
			one := bounds[load.step]
			one.what = fmt.Sprintf("%s, %s: notifier on / off", load.what, sleeping(n))
			one.measured = measure.Middle(measure.Ratios(on, off, load.of))
			targets = append(targets, one)
		}
	}
	waits, looked := 0, false
	for _, r := range results {
		if r.LockWaits != nil {
			waits, looked = waits+*r.LockWaits, true
		}
	}
	if looked {
		targets = append(targets, target{what: "waits for the lock of notifications of more than 10 ms", measured: float64(waits)})
	}
	return targets
}
