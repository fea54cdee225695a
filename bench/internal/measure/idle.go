package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Gap is the time between two messages, long enough for consumers to become idle.
type Gap struct{ Low, High time.Duration }

// The measured gaps.
var (
	Warm = Gap{100 * time.Millisecond, 500 * time.Millisecond}
	Cold = Gap{2 * time.Second, 4 * time.Second}
)

func (g Gap) String() string { return fmt.Sprintf("%v-%v", g.Low, g.High) }

// next returns a random gap, so that no poll is in step with the sender.
func (g Gap) next() time.Duration { return g.Low + rand.N(g.High-g.Low+1) }

// AtGaps calls send after each gap for about the given time, at least once, and returns the number
// of calls.
func AtGaps(ctx context.Context, g Gap, length time.Duration, send func(now time.Time) error) (n int, err error) {
	for began := time.Now(); n == 0 || time.Since(began) < length; n++ {
		if err := Sleep(ctx, g.next()); err != nil {
			return n, err
		}
		if err := send(time.Now()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Sleep returns after a time, or with the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Slept summarizes the rounds of messages to idle consumers: latencies of all rounds together, in
// ms, and medians of the counts.
type Slept struct {
	Name, Gap                                string
	Sleepers, N, Connections                 int
	P50, P99, Slowest, Commit                float64
	StatementsPerMessage, IdleStatementsPerS float64
}

// SleptOf returns the ways in which idle consumers were measured, in order.
func SleptOf(results []Result) (all []Slept) {
	type way struct {
		name, gap string
		processes int
	}
	for _, g := range Group(results, func(r Result) way { return way{r.sleeper(), r.Gap, r.Processes} }) {
		if g.Key.gap == "" {
			continue
		}
		s := Slept{Name: g.Key.name, Gap: g.Key.gap, Sleepers: g.Key.processes - 1}
		ages := Histogram{}
		for _, r := range g.Results {
			ages.Merge(r.Ages)
			s.N += r.N
			s.Slowest = max(s.Slowest, r.Max/1e3)
			s.Connections = max(s.Connections, r.Connections)
		}
		s.P50, s.P99 = min(ages.Quantile(0.5)/1e3, s.Slowest), min(ages.Quantile(0.99)/1e3, s.Slowest)
		s.Commit = Median(g.Results, func(r Result) float64 { return r.CommitP50 }) / 1e3
		s.StatementsPerMessage = Median(g.Results, func(r Result) float64 { return r.StatementsPerMessage })
		s.IdleStatementsPerS = Median(g.Results, func(r Result) float64 { return r.IdleStatements })
		all = append(all, s)
	}
	return all
}

// sleeper returns the name of the idle system: chanq polls without a notifier.
func (r Result) sleeper() string {
	name := r.Engine + " " + r.Strategy
	if r.Notifier {
		name += ", notifier"
	}
	if r.Keys > 0 {
		name += ", ordered"
	}
	return name
}

// SleptTable returns a table with a row for each.
func SleptTable(title string, all []Slept) Table {
	t := Table{Title: title, Head: []string{
		"", "idle consumers", "gaps", "messages", "p50 ms", "p99 ms", "slowest ms", "one commit ms", "statements/message", "idle statements/s", "connections",
	}}
	known := func(v float64) string {
		if v <= 0 {
			return "–"
		}
		return Short(v)
	}
	for _, s := range all {
		t.Rows = append(t.Rows, []string{
			s.Name, fmt.Sprint(s.Sleepers), s.Gap, fmt.Sprint(s.N), Short(s.P50), Short(s.P99), Short(s.Slowest), known(s.Commit),
			known(s.StatementsPerMessage), known(s.IdleStatementsPerS), known(float64(s.Connections)),
		})
	}
	return t
}
