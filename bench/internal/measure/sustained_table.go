package measure

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A sustained run is printed line by line, with a summary at its end.

const mib = 1 << 20

// SustainedHead are the headings of SustainedLine's columns. WAL bytes are per message, HOT is the
// fraction of updated rows that changed no index. Both are of the interval.
var SustainedHead = fmt.Sprintf("%6s %4s %8s %8s %9s %9s %8s %9s %9s %9s %9s %7s %5s %8s",
	"time", "held", "sent/s", "read/s", "p50 ms", "p99 ms", "backlog", "table MiB", "index MiB", "log MiB", "dead rows", "WAL B", "HOT", "heap MiB")

// SustainedLine formats one interval.
func SustainedLine(r Result) string {
	held := ""
	if r.Held {
		held = "held"
	}
	wal, hot := "-", "-" // unknown
	if r.WAL > 0 {
		wal = fmt.Sprintf("%.0f", r.WALPerMsg)
	}
	if r.Updates > 0 {
		hot = fmt.Sprintf("%.2f", r.HotShare)
	}
	return fmt.Sprintf("%6.0f %4s %8.0f %8.0f %9.2f %9.2f %8d %9.1f %9.1f %9.1f %9d %7s %5s %8.1f",
		r.AtS, held, r.EnqueuePerS, r.DrainPerS, r.P50/1e3, r.P99/1e3, r.Backlog,
		float64(r.TableBytes)/mib, float64(r.IndexBytes)/mib, float64(r.LogBytes)/mib, r.DeadRows,
		wal, hot, r.HeapBytes/mib)
}

// Summary is a sustained run in one line. Rates are messages received per second.
type Summary struct {
	Seconds     float64
	First, Last float64 // the means of the first and of the last 20 % of the intervals
	// BeforeHeld is the mean of all intervals before the snapshot was opened, or 0 without a
	// snapshot. In a run longer than 50 s the first 20 % are partly after it.
	BeforeHeld        float64
	Window            time.Duration // of the two fields below
	FirstP99, LastP99 float64       // ms, of all messages received in the first Window and in the last
	P50               float64       // ms, of all
	Largest           int64         // bytes of tables and indexes, including SQLite's log
	WALPerMsg         float64
	HotShare          float64
}

// Summarise summarizes the intervals of one run, in order.
func Summarise(intervals []Result) (s Summary) {
	if len(intervals) == 0 {
		return s
	}
	rate := func(rs []Result) (sum float64) {
		for _, r := range rs {
			sum += r.DrainPerS
		}
		return sum / float64(len(rs))
	}
	fifth := max(len(intervals)/5, 1)
	s.First, s.Last = rate(intervals[:fifth]), rate(intervals[len(intervals)-fifth:])
	s.Seconds = intervals[len(intervals)-1].AtS
	window := min(60, s.Seconds/2)
	s.Window = time.Duration(window * float64(time.Second)).Round(time.Second)
	first, last, all := Histogram{}, Histogram{}, Histogram{}
	var wal, received float64
	for i, r := range intervals {
		if r.Held && s.BeforeHeld == 0 && i > 0 {
			s.BeforeHeld = rate(intervals[:i])
		}
		middle := r.AtS - s.Seconds/float64(len(intervals))/2
		if middle < window {
			first.Merge(r.Ages)
		}
		if middle > s.Seconds-window {
			last.Merge(r.Ages)
		}
		all.Merge(r.Ages)
		s.Largest = max(s.Largest, r.TableBytes+r.IndexBytes+r.LogBytes)
		n := float64(r.N)
		received, wal = received+n, wal+n*r.WALPerMsg
	}
	s.FirstP99, s.LastP99, s.P50 = first.Quantile(0.99)/1e3, last.Quantile(0.99)/1e3, all.Quantile(0.5)/1e3
	s.WALPerMsg = ratio(wal, received)
	end := intervals[len(intervals)-1] // its counters are those of the run, because the run has its own tables
	s.HotShare = ratio(float64(end.HotUpdates), float64(end.Updates))
	return s
}

// WriteSummary writes a summary for a terminal.
func WriteSummary(w io.Writer, s Summary) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f s: last fifth / first fifth %.2f (%.0f / %.0f received a second)", s.Seconds, ratio(s.Last, s.First), s.Last, s.First)
	if s.BeforeHeld > 0 {
		fmt.Fprintf(&b, "; last fifth / what came before the snapshot %.2f (%.0f)", ratio(s.Last, s.BeforeHeld), s.BeforeHeld)
	}
	fmt.Fprintf(&b, "\np99 in the last %v %.1f ms, in the first %.1f ms; largest size %.1f MiB", s.Window, s.LastP99, s.FirstP99, float64(s.Largest)/mib)
	if s.WALPerMsg > 0 {
		fmt.Fprintf(&b, "; WAL %.0f B a message; HOT %.3f of updates", s.WALPerMsg, s.HotShare)
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// SummaryTable returns a table with a row for each run.
func SummaryTable(title string, names []string, of []Summary) Table {
	t := Table{Title: title, Head: []string{
		"run", "seconds", "first fifth /s", "last fifth /s", "last / first", "p50 ms", "p99 ms, first and last minute", "largest MiB", "WAL B/message", "HOT",
	}}
	for i, s := range of {
		row := []string{
			names[i], fmt.Sprintf("%.0f", s.Seconds), thousands(s.First), thousands(s.Last), fmt.Sprintf("%.2f", ratio(s.Last, s.First)),
			Short(s.P50), Short(s.FirstP99) + ", " + Short(s.LastP99), fmt.Sprintf("%.0f", float64(s.Largest)/mib), "–", "–",
		}
		if s.WALPerMsg > 0 {
			row[8], row[9] = fmt.Sprintf("%.0f", s.WALPerMsg), fmt.Sprintf("%.2f", s.HotShare)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// thousands formats a rate with three significant figures and a comma.
func thousands(v float64) string {
	if v < 1000 {
		return Short(v)
	}
	n := int(v + 0.5)
	if n >= 10_000 {
		n = (n + 50) / 100 * 100
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
