package main

import (
	"fmt"
	"slices"
	"strconv"
)

// A figure of a report is a median over rounds, with its range where the clock
// on the wall made it; a ratio is the median of the rounds' ratios, in which both
// ran close together.

func median(rs []result, f func(result) float64) float64 { return middle(sorted(rs, f)) }

// ranged is a median with its range.
func ranged(rs []result, f func(result) float64) string {
	values := sorted(rs, f)
	if len(values) == 0 || values[len(values)-1] == 0 {
		return "–"
	}
	if len(values) == 1 {
		return short(values[0])
	}
	return fmt.Sprintf("%s (%s-%s)", short(middle(values)), short(values[0]), short(values[len(values)-1]))
}

// short has three figures, as far as a reader needs them.
func short(v float64) string {
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

// ratio is 0 where the two have no round in common.
func ratio(a, b []result, f func(result) float64) float64 { return middle(ratios(a, b, f)) }

// ratios are those of the rounds that both have, sorted.
func ratios(a, b []result, f func(result) float64) (ratios []float64) {
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
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// grouped are results that have the same key, in the order in which keys first
// came.
type grouped[K comparable] struct {
	key     K
	results []result
}

func group[K comparable](results []result, key func(result) K) (groups []grouped[K]) {
	places := map[K]int{}
	for _, r := range results {
		k := key(r)
		i, known := places[k]
		if !known {
			i = len(groups)
			places[k] = i
			groups = append(groups, grouped[K]{key: k})
		}
		groups[i].results = append(groups[i].results, r)
	}
	return groups
}
