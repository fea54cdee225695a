package measure

import (
	"fmt"
	"slices"
	"strconv"
)

// A figure of a report is a median over rounds, with its range if it depends on wall-clock time. A
// ratio is the median of the rounds' ratios, because both ran close together in a round.

// Figure is one number of a result.
type Figure func(Result) float64

// Median returns the median of the figure over the results, or 0 without results.
func Median(rs []Result, f Figure) float64 { return Middle(sorted(rs, f)) }

// Ranged formats a median with its range, or "–" without measurements.
func Ranged(rs []Result, f Figure) string {
	values := sorted(rs, f)
	if len(values) == 0 || values[len(values)-1] == 0 {
		return "–"
	}
	if len(values) == 1 {
		return Short(values[0])
	}
	return fmt.Sprintf("%s (%s-%s)", Short(Middle(values)), Short(values[0]), Short(values[len(values)-1]))
}

// Short formats a value with three significant figures, as far as a reader needs them.
func Short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

// Times formats the median of the rounds' ratios for a table, or "–" if the two have no round in
// common.
func Times(a, b []Result, f Figure) string {
	if v := Middle(Ratios(a, b, f)); v > 0 {
		return fmt.Sprintf("%.2f", v)
	}
	return "–"
}

// Ratios returns the ratios of the rounds that both have, sorted.
func Ratios(a, b []Result, f Figure) (ratios []float64) {
	for _, x := range a {
		for _, y := range b {
			if x.Round == y.Round && f(y) > 0 {
				ratios = append(ratios, f(x)/f(y))
			}
		}
	}
	slices.Sort(ratios)
	return ratios
}

func sorted(rs []Result, f Figure) []float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = f(r)
	}
	slices.Sort(values)
	return values
}

// Middle returns the median of sorted values, or 0 without values.
func Middle(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Grouped are results that have the same key, in the order of the first result of each key.
type Grouped[K comparable] struct {
	Key     K
	Results []Result
}

// Group groups results by key.
func Group[K comparable](results []Result, key func(Result) K) (groups []Grouped[K]) {
	places := map[K]int{}
	for _, r := range results {
		k := key(r)
		i, known := places[k]
		if !known {
			i = len(groups)
			places[k] = i
			groups = append(groups, Grouped[K]{Key: k})
		}
		groups[i].Results = append(groups[i].Results, r)
	}
	return groups
}
