package main

import (
	"fmt"
	"io"

	"github.com/chanq/chanq/bench/internal/measure"
)

// A sustained run is told line by line while it goes on.

var sustainedHead = fmt.Sprintf("%6s %4s %9s %9s %9s %9s %8s %9s %9s %9s %9s %8s\n",
	"time", "held", "sent/s", "read/s", "p50 ms", "p99 ms", "backlog", "table MiB", "index MiB", "log MiB", "dead rows", "heap MiB")

func writeSustainedHead(w io.Writer, o options) error {
	_, err := fmt.Fprintf(w, "%s, body %d B, %d to a statement, backlog %d, rate %s, %d process(es) of %d consumer(s)\n%s",
		o.engine, o.body, o.batch, o.backlog, rateOf(o), max(o.processes, 1), o.consumers, sustainedHead)
	return err
}

func rateOf(o options) string {
	if o.rate == 0 {
		return "as fast as it goes"
	}
	return fmt.Sprintf("%.0f/s", o.rate)
}

func writeSustainedLine(w io.Writer, r measure.Result) error {
	held := ""
	if r.Held {
		held = "held"
	}
	const mib = 1 << 20
	_, err := fmt.Fprintf(w, "%6.0f %4s %9.0f %9.0f %9.2f %9.2f %8d %9.1f %9.1f %9.1f %9d %8.1f\n",
		r.AtS, held, r.EnqueuePerS, r.DrainPerS, r.P50/1e3, r.P99/1e3, r.Backlog,
		float64(r.TableBytes)/mib, float64(r.IndexBytes)/mib, float64(r.LogBytes)/mib, r.DeadRows, r.HeapBytes/mib)
	return err
}

// writeSustainedEnd compares the last fifth of a run with its first.
func writeSustainedEnd(w io.Writer, o options, results []measure.Result) error {
	if len(results) < 5 {
		return nil
	}
	first, last := results[:len(results)/5], results[len(results)-len(results)/5:]
	rate := func(rs []measure.Result) (sum float64) {
		for _, r := range rs {
			sum += r.DrainPerS
		}
		return sum / float64(len(rs))
	}
	_, err := fmt.Fprintf(w, "last fifth / first fifth: %.2f (%.0f / %.0f a second)\n", rate(last)/rate(first), rate(last), rate(first))
	if err != nil {
		return err
	}
	return plotSustained(o, results)
}
