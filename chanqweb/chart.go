package chanqweb

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/chanq/chanq/chanqadmin"
)

// Charts are lines in SVG without text. The text around them is HTML, so that it has the same size on a phone.

// The size of the coordinate system. The browser stretches it.
const (
	chartWidth  = 600
	chartHeight = 100
)

// chart is the data of a chart.
type chart struct {
	Title  string
	Lines  []line
	Top    string // the value at the upper edge
	Places []string
	Rows   [][]string // the samples as a table, latest first
}

// line is one of up to three lines of a chart.
type line struct {
	Name string
	Path string // in SVG; gaps are moves
	Area string // the path of the area below the line
	Last string // the latest value
}

// series is a value of the samples; NaN is a gap.
type series struct {
	name string
	of   func(chanqadmin.Sample) float64
}

// draw makes a chart of the samples of the last s.Last.
// round returns the value at the upper edge.
func draw(title string, samples []chanqadmin.Sample, now time.Time, s span, format func(float64) string, round func(float64) float64, all ...series) chart {
	begin := now.Add(-s.Last)
	c := chart{Title: title, Places: s.Places}
	top := 0.0
	for _, one := range all {
		for _, sample := range samples {
			if v := one.of(sample); !math.IsNaN(v) {
				top = max(top, v)
			}
		}
	}
	top = round(top)
	c.Top = strings.TrimSuffix(format(top), "+")
	for _, one := range all {
		path, latest := trace(samples, begin, s.Last, s.step, top, one.of)
		l := line{Name: one.name, Path: path, Area: below(path), Last: format(math.NaN())}
		if latest != nil && now.Sub(latest.At.Add(s.step)) <= 2*s.step { // otherwise it is not a current value
			l.Last = format(one.of(*latest))
		}
		c.Lines = append(c.Lines, l)
	}
	c.Rows = table(samples, s, format, all)
	return c
}

// mostRows is the most rows of the table of a chart.
const mostRows = 60

func table(samples []chanqadmin.Sample, s span, format func(float64) string, all []series) (rows [][]string) {
	every := max(1, int(s.Last/s.step)/mostRows)
	for i := len(samples) - 1; i >= 0 && len(rows) < mostRows; i -= every {
		row := []string{samples[i].At.UTC().Format("2 Jan 15:04:05")}
		for _, one := range all {
			row = append(row, format(one.of(samples[i])))
		}
		rows = append(rows, row)
	}
	return rows
}

// trace returns the path of a value, and the last sample on it. If samples are missing, or have no such value, the path has a gap. A sample
// between two gaps is a dot.
func trace(samples []chanqadmin.Sample, begin time.Time, last, step time.Duration, top float64, of func(chanqadmin.Sample) float64) (path string, latest *chanqadmin.Sample) {
	var b strings.Builder
	alone := false // the last point has no line yet
	for i := range samples {
		s := &samples[i]
		v := of(*s)
		x := float64(s.At.Sub(begin)) / float64(last) * chartWidth
		if math.IsNaN(v) || x < 0 || x > chartWidth {
			continue
		}
		y := float64(chartHeight)
		if top > 0 {
			y -= v / top * (chartHeight - 4)
		}
		if latest != nil && s.At.Sub(latest.At) <= 5*step/2 {
			fmt.Fprintf(&b, "L%.1f %.1f", x, y-1)
			alone = false
		} else {
			if alone {
				b.WriteString(dot)
			}
			fmt.Fprintf(&b, "M%.1f %.1f", x, y-1)
			alone = true
		}
		latest = s
	}
	if alone {
		b.WriteString(dot)
	}
	return b.String(), latest
}

// dot is a line of length 0, whose round ends are visible.
const dot = "h0"

// below returns the area between a path and the lower edge.
func below(path string) string {
	var b strings.Builder
	for piece := range strings.SplitSeq(path, "M") {
		points := strings.Split(piece, "L")
		if len(points) < 2 {
			continue
		}
		first, _, _ := strings.Cut(points[0], " ")
		last, _, _ := strings.Cut(points[len(points)-1], " ")
		fmt.Fprintf(&b, "M%s %dL%sL%s %dZ", first, chartHeight, strings.Join(points, "L"), last, chartHeight)
	}
	return b.String()
}

// roundUp returns the next of the numbers 1, 2, 5, 10, 20 …
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*unit*1.0000001 {
			return m * unit
		}
	}
	return 10 * unit
}

// roundUpTime is roundUp for seconds, in minutes and hours as clocks have them.
func roundUpTime(v float64) float64 {
	for _, step := range []float64{60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400} {
		if v > 30 && v <= step {
			return step
		}
	}
	if v > 30 {
		return 86400 * roundUp(v/86400)
	}
	if v > 20 {
		return 30
	}
	return roundUp(v)
}

// counted returns a count of the samples that have counts.
func counted(of func(chanqadmin.Sample) int) func(chanqadmin.Sample) float64 {
	return func(s chanqadmin.Sample) float64 {
		if !s.Counted {
			return math.NaN()
		}
		return float64(of(s))
	}
}

// rate returns a value per second.
func rate(step time.Duration, of func(chanqadmin.Sample) int64) func(chanqadmin.Sample) float64 {
	return func(s chanqadmin.Sample) float64 { return float64(of(s)) / step.Seconds() }
}

// charts returns the charts of a queue. Counts are capped at limit.
func charts(samples []chanqadmin.Sample, now time.Time, s span, limit int) []chart {
	over := ended(samples, s.step, now) // without the current period, whose sum would be too low
	return []chart{
		draw("Depth", samples, now, s, func(v float64) string { return atLeast(v, limit) }, roundUp,
			series{"ready", counted(func(s chanqadmin.Sample) int { return s.Ready })},
			series{"leased", counted(func(s chanqadmin.Sample) int { return s.Leased })},
			series{"dead", counted(func(s chanqadmin.Sample) int { return s.Dead })}),
		draw("Messages per second", over, now, s, perSecond, roundUp,
			series{"sent", rate(s.step, func(s chanqadmin.Sample) int64 { return s.Sent })},
			series{"acked", rate(s.step, func(s chanqadmin.Sample) int64 { return s.Acked })},
			series{"failed", rate(s.step, func(s chanqadmin.Sample) int64 { return s.Nacked + s.Died })}),
		draw("Waiting", samples, now, s, seconds, roundUpTime,
			quantile("p50", 0.5, waits), quantile("p95", 0.95, waits),
			series{"oldest ready", func(s chanqadmin.Sample) float64 {
				if !s.Counted {
					return math.NaN()
				}
				return s.OldestReady.Seconds()
			}}),
		draw("Handler time", samples, now, s, seconds, roundUpTime, quantile("p50", 0.5, calls), quantile("p95", 0.95, calls)),
	}
}

func waits(s chanqadmin.Sample) chanqadmin.Times { return s.Waits }
func calls(s chanqadmin.Sample) chanqadmin.Times { return s.Calls }

// quantile is the time that a share of the messages does not exceed. It has gaps where there were none.
func quantile(name string, share float64, of func(chanqadmin.Sample) chanqadmin.Times) series {
	return series{name, func(s chanqadmin.Sample) float64 {
		if t := of(s).Quantile(share); t > 0 {
			return t.Seconds()
		}
		return math.NaN()
	}}
}

// atLeast formats a count, with a + at the limit.
func atLeast(v float64, limit int) string {
	if limit > 0 && v >= float64(limit) {
		return amount(v) + "+"
	}
	return amount(v)
}

// sparkline returns the line of the depth of the last hour, scaled to top.
func sparkline(samples []chanqadmin.Sample, now time.Time, top int) line {
	path, _ := trace(samples, now.Add(-time.Hour), time.Hour, chanqadmin.StepMinute, float64(max(top, 1)), counted(depth))
	return line{Path: path, Area: below(path)}
}

// deepest returns the most messages in a sample.
func deepest(samples []chanqadmin.Sample) (most int) {
	for _, s := range samples {
		if s.Counted {
			most = max(most, depth(s))
		}
	}
	return most
}

func depth(s chanqadmin.Sample) int { return s.Ready + s.Leased }
