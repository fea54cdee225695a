package measure

import (
	"fmt"
	"slices"
	"strconv"
)

// A figure of a report is a median over rounds, with its range where the clock
// on the wall made it; a ratio is the median of the rounds' ratios, in which both
// ran close together.

// Figure is one number of a result.
type Figure func(Result) float64

// Median is that of the figure over the results; 0 of none.
func Median(rs []Result, f Figure) float64 { return Middle(sorted(rs, f)) }

// Ranged is a median with its range, "–" where nothing was measured.
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

// Short has three figures, as far as a reader needs them.
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

// Times is the median of the rounds' ratios for a table, "–" where the two have no
// round in common.
func Times(a, b []Result, f Figure) string {
	if v := Middle(Ratios(a, b, f)); v > 0 {
		return fmt.Sprintf("%.2f", v)
	}
	return "–"
}

// Ratios are those of the rounds that both have, sorted.
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

// Middle is the median of sorted values; 0 of none.
func Middle(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Grouped are results that have the same key, in the order in which keys first
// came.
type Grouped[K comparable] struct {
	Key     K
	Results []Result
}

// Group puts results of the same key together.
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
