package measure

import (
	"math"
	"time"
)

// Quantile returns the smallest value that the part p of all values does not exceed, in µs, or 0
// without values.
func Quantile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return float64(sorted[max(i, 0)].Nanoseconds()) / 1e3
}

// Histogram counts durations in steps of 5 %. It is cheap to fill for hours, and to add up over
// processes.
type Histogram map[int]int64

const histogramStep = 1.05

// Add counts d.
func (h Histogram) Add(d time.Duration) {
	h[int(math.Log(float64(max(d.Nanoseconds(), 1)))/math.Log(histogramStep))]++
}

// Merge adds the counts of another histogram.
func (h Histogram) Merge(other Histogram) {
	for step, n := range other {
		h[step] += n
	}
}

// Quantile returns the upper end of the step that holds the part p of all, in µs.
func (h Histogram) Quantile(p float64) float64 {
	total, low, high := int64(0), math.MaxInt, math.MinInt
	for step, n := range h {
		total += n
		low, high = min(low, step), max(high, step)
	}
	want := int64(math.Ceil(p * float64(total)))
	for step, seen := low, int64(0); step <= high; step++ {
		if seen += h[step]; seen >= want && want > 0 {
			return math.Pow(histogramStep, float64(step+1)) / 1e3
		}
	}
	return 0
}
