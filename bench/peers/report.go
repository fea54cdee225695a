package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// writeTable writes the median of each figure over the rounds, with its range,
// and the ratios of chanq to the others on its engine: the median of those of
// the single rounds, in which all ran close together.
func writeTable(w io.Writer, o options, about string, results []result) error {
	by := map[string][]result{}
	for _, r := range results {
		name := r.Engine + "/" + r.Strategy
		by[name] = append(by[name], r)
	}
	measured := slices.DeleteFunc(slices.Clone(o.systems), func(s system) bool { return len(by[s.name()]) == 0 })

	fmt.Fprintf(w, "%d messages, body %d B, rounds %d; %s\n\n", o.n, o.body, o.rounds, about)
	t := newTable(w, "system\tversion\tenqueue/s\tdrain/s\tpipeline/s\tstatements/msg, enqueue + drain\tWAL B/msg\tclient CPU µs/msg, enqueue + drain\tleft: rows, bytes/msg")
	for _, s := range measured {
		rs := by[s.name()]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f + %.1f\t%.0f, %.0f\n", s.name(), rs[0].Version,
			spread(rs, enqueueRate), spread(rs, drainRate), spread(rs, pipelineRate), statements(rs), wal(rs),
			median(rs, func(r result) float64 { return r.EnqueueCPU }), median(rs, func(r result) float64 { return r.DrainCPU }),
			median(rs, func(r result) float64 { return float64(r.LeftRows) }),
			median(rs, func(r result) float64 { return float64(r.LeftBytes) / float64(r.N) }))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintf(w, "\nsend to delivery at %d/s, %d messages a round, ms\n\n", o.rate, o.latencyN)
	t = newTable(w, "system\tp50\tp99\tp99.9\tmax\t")
	for _, s := range measured {
		rs := by[s.name()]
		remark := ""
		if slices.ContainsFunc(rs, func(r result) bool { return r.Saturated }) {
			remark = "SATURATED: the rate was not reached"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%s\n", s.name(),
			median(rs, func(r result) float64 { return float64(r.P50) / 1e3 }), median(rs, func(r result) float64 { return float64(r.P99) / 1e3 }),
			median(rs, func(r result) float64 { return float64(r.P999) / 1e3 }), median(rs, func(r result) float64 { return float64(r.Max) / 1e3 }), remark)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	t = newTable(w, "ratio\tenqueue\tdrain\tpipeline\tp50")
	for _, ours := range measured {
		for _, theirs := range measured {
			if !isChanq(ours) || isChanq(theirs) || theirs.engine != ours.engine {
				continue
			}
			a, b := pairs(by[ours.name()], by[theirs.name()])
			if len(a) > 0 {
				fmt.Fprintf(t, "%s / %s\t%.2f\t%.2f\t%.2f\t%.2f\n", ours.name(), theirs.strategy, ratio(a, b, enqueueRate), ratio(a, b, drainRate),
					ratio(a, b, pipelineRate), ratio(a, b, func(r result) float64 { return float64(r.P50) }))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	for _, s := range measured {
		fmt.Fprintf(w, "%s: %s\n", s.name(), s.note)
		if failed := o.rounds - len(by[s.name()]); failed > 0 {
			fmt.Fprintf(w, "%s: FAILED in %d of %d rounds\n", s.name(), failed, o.rounds)
		}
	}
	return nil
}

func isChanq(s system) bool { return strings.HasPrefix(s.strategy, "chanq") }

func newTable(w io.Writer, head string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	return t
}

func enqueueRate(r result) float64  { return r.EnqueuePerS }
func drainRate(r result) float64    { return r.DrainPerS }
func pipelineRate(r result) float64 { return r.PipelinePerS }

func statements(rs []result) string {
	if rs[0].StatementsPerMessage == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4f + %.4f", median(rs, func(r result) float64 { return r.EnqueueStatements }),
		median(rs, func(r result) float64 { return r.DrainStatements }))
}

func wal(rs []result) string {
	if rs[0].EnqueueWAL == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f + %.0f", median(rs, func(r result) float64 { return r.EnqueueWAL }), median(rs, func(r result) float64 { return r.DrainWAL }))
}

// spread is a median with its range.
func spread(rs []result, f func(result) float64) string {
	values := sorted(rs, f)
	return fmt.Sprintf("%.0f (%.0f-%.0f)", middle(values), values[0], values[len(values)-1])
}

func median(rs []result, f func(result) float64) float64 { return middle(sorted(rs, f)) }

// pairs keeps the results of rounds that both have.
func pairs(a, b []result) (as, bs []result) {
	for _, x := range a {
		if i := slices.IndexFunc(b, func(y result) bool { return y.Round == x.Round }); i >= 0 {
			as, bs = append(as, x), append(bs, b[i])
		}
	}
	return as, bs
}

// ratio is the median of the rounds' ratios.
func ratio(a, b []result, f func(result) float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = f(a[i]) / f(b[i])
	}
	slices.Sort(ratios)
	return middle(ratios)
}

func sorted(rs []result, f func(result) float64) []float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = f(r)
	}
	slices.Sort(values)
	return values
}

func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
