package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/chanq/chanq/bench/internal/measure"
)

// comparison is one figure of two versions of chanq, which were measured alternately in each round.
type comparison struct {
	figure
	lessIsWorse bool
	limit       float64 // how much worse the median may be, as a fraction
}

// certain bounds the probability that rounds of two equal versions differ in one direction as often
// as these do. There are some thirty figures, and none should be reported as worse by chance. It
// takes at least ten rounds.
const certain = 0.001

// comparisons returns rates and CPU time with the given limit, and machine-independent figures with
// an almost exact limit.
func comparisons(limit float64) []comparison {
	const exact = 0.01
	return []comparison{
		{figure{"enqueue/s", enqueueRate}, true, limit},
		{figure{"drain/s", drainRate}, true, limit},
		{figure{"pipeline/s", pipelineRate}, true, limit},
		{figure{"CPU µs/msg, enqueue", enqueueCPU}, false, limit},
		{figure{"CPU µs/msg, drain", drainCPU}, false, limit},
		{figure{"allocs/msg, enqueue", enqueueAllocs}, false, exact},
		{figure{"allocs/msg, drain", drainAllocs}, false, exact},
		{figure{"statements/msg", func(r measure.Result) float64 { return r.StatementsPerMessage }}, false, limit},
	}
}

// runCompare compares two files of results of throughput, senders and order, in which each line belongs to
// the same round. It returns an error if the second file is worse.
func runCompare(args []string, out, usage io.Writer) error {
	f := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	f.SetOutput(usage)
	limit := f.Float64("limit", 3, "percent by which the median of a rate or of CPU time may be worse")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 || *limit < 0 {
		return errors.New("compare takes two files of JSON lines, before and after, and a -limit of 0 or more")
	}
	var sides [2][]measure.Result
	for i, path := range f.Args() {
		var err error
		if sides[i], err = measure.ReadFile(path); err != nil {
			return err
		}
		inOrder(sides[i])
	}
	t := measure.Table{
		Title: "after / before, medians of the rounds' ratios with their range",
		Head:  []string{"engine", "strategy", "figure", "before", "after", "after / before", ""},
	}
	worse, rounds := 0, math.MaxInt
	for _, before := range measure.Group(sides[0], systemOf) {
		after := slices.DeleteFunc(slices.Clone(sides[1]), func(r measure.Result) bool { return systemOf(r) != before.Key })
		for _, c := range comparisons(*limit / 100) {
			ratios := measure.Ratios(after, before.Results, c.of)
			if len(ratios) == 0 {
				continue
			}
			rounds = min(rounds, len(ratios))
			verdict := ""
			if c.isWorse(ratios) {
				verdict = "WORSE"
				worse++
			}
			t.Rows = append(t.Rows, []string{
				before.Key.engine, before.Key.strategy, c.name, measure.Short(measure.Median(before.Results, c.of)), measure.Short(measure.Median(after, c.of)),
				fmt.Sprintf("%.3f (%.2f-%.2f)", measure.Middle(ratios), ratios[0], ratios[len(ratios)-1]), verdict,
			})
		}
	}
	switch err := measure.WriteTables(out, t); {
	case err != nil:
		return err
	case len(t.Rows) == 0:
		return errors.New("nothing to compare: the files have no measurement in common")
	case byChance(rounds, rounds) >= certain:
		return fmt.Errorf("%d rounds are too few to tell a difference from chance", rounds)
	case worse > 0:
		return fmt.Errorf("worse figures: %d", worse)
	}
	return nil
}

type systemKey struct{ engine, strategy string }

func systemOf(r measure.Result) systemKey {
	if r.Senders > 0 {
		return systemKey{r.Engine, r.Strategy + " " + crew{r.Senders, r.Batch}.String()}
	}
	if r.Keys > 0 {
		return systemKey{r.Engine, fmt.Sprintf("%s, keys: %d", r.Strategy, r.Keys)}
	}
	return systemKey{r.Engine, r.Strategy}
}

// inOrder numbers the results of each system, because files may be of many runs of one round each.
func inOrder(results []measure.Result) {
	seen := map[systemKey]int{}
	for i := range results {
		seen[systemOf(results[i])]++
		results[i].Round = seen[systemOf(results[i])]
	}
}

// isWorse reports whether the median is beyond the limit, and so many rounds agree that chance is
// unlikely. This is a sign test, which does not depend on how far a disturbed round differs from
// the others.
func (c comparison) isWorse(ratios []float64) bool {
	worse := func(ratio, limit float64) bool {
		if c.lessIsWorse {
			return ratio < 1-limit
		}
		return ratio > 1+limit
	}
	rounds := 0
	for _, v := range ratios {
		if worse(v, 0) {
			rounds++
		}
	}
	return worse(measure.Middle(ratios), c.limit) && byChance(rounds, len(ratios)) < certain
}

// byChance returns the probability that n tosses of a coin show heads at least k times.
func byChance(k, n int) (p float64) {
	ways := math.Pow(0.5, float64(n)) // n over 0, as a share of all
	for i := range n + 1 {
		if i >= k {
			p += ways
		}
		ways *= float64(n-i) / float64(i+1)
	}
	return p
}
