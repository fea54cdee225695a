package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chanq/chanq/bench/internal/measure"
)

// runReport writes report.md and its plots into a folder, from recorded results or from the results
// of a run, which it also records there.
func runReport(ctx context.Context, args []string, usage io.Writer) error {
	o := options{command: commandLine("report", args)}
	f := flag.NewFlagSet("bench report", flag.ContinueOnError)
	f.SetOutput(usage)
	finish := o.declare(f, "report")
	out := f.String("out", filepath.Join("docs", "internals", "bench"), "folder to write report.md and its plots into")
	in := f.String("in", "", "comma-separated files of JSON lines to report instead of a run")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := finish(); err != nil {
		return err
	}
	var results []measure.Result
	if *in != "" {
		for _, path := range split(*in) {
			some, err := measure.ReadFile(path)
			if err != nil {
				return err
			}
			results = append(results, some...)
		}
	} else {
		if err := o.check(f.Args()); err != nil {
			return err
		}
		if err := os.MkdirAll(*out, 0o755); err != nil {
			return err
		}
		record, err := os.Create(filepath.Join(*out, o.engine+".jsonl"))
		if err != nil {
			return err
		}
		for _, c := range commands {
			if c.apart || c.line != nil { // a command with lines takes long, and has its own plot
				continue
			}
			err = errors.Join(err, c.measure(ctx, o, func(r measure.Result) {
				results = append(results, r)
				err = errors.Join(err, measure.Write(record, r))
			}))
		}
		if err = errors.Join(err, record.Close()); err != nil {
			return err
		}
	}
	if len(results) == 0 {
		return errors.New("nothing to report: no results")
	}
	return writeReport(*out, results)
}

// report is a page and the plots that it shows.
type report struct {
	page  bytes.Buffer
	plots map[string][]byte
}

func (r *report) title(level int, text string) {
	fmt.Fprintf(&r.page, "\n%s %s\n\n", strings.Repeat("#", level), text)
}

func (r *report) plot(name string, content []byte) {
	r.plots[name+".svg"] = content
	fmt.Fprintf(&r.page, "![%s](%s.svg)\n\n", strings.ReplaceAll(name, "-", " "), name)
}

func (r *report) table(t measure.Table) { fmt.Fprintf(&r.page, "%s.\n\n%s\n", t.Title, t.Markdown()) }

func writeReport(folder string, results []measure.Result) error {
	r := &report{plots: map[string][]byte{}}
	r.write(results)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	for _, path := range old { // plots of an earlier report
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for name, content := range r.plots {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "report.md"), r.page.Bytes(), 0o644)
}

func (r *report) write(results []measure.Result) {
	r.page.WriteString("# Benchmarks\n\nMedians of the rounds, ranges in parentheses; [performance](../performance.md) says what was measured and how.\n")
	r.machine(results)
	r.long(results)
	latencies, senders, growth, throughput := partition(results)
	runs := measure.Group(throughput, runOf)
	if len(runs) > 0 {
		r.title(2, "Throughput")
	}
	for _, g := range runs {
		name := fmt.Sprintf("%s-%d", g.Key.engine, g.Key.body)
		r.title(3, fmt.Sprintf("%s, %d-byte bodies", g.Key.engine, g.Key.body))
		r.plot("throughput-"+name, throughputPlot(g).draw())
		r.table(throughputTable(g))
		if t := ratioTable(g); len(t.Rows) > 0 {
			r.table(t)
		}
		if plot := timePlot(g); len(plot.rows) > 0 {
			r.plot("time-"+name, plot.draw())
		}
	}
	if len(latencies) > 0 {
		r.title(2, "Latency")
		r.plot("latency", latencyPlot(latencies).draw())
		for _, t := range latencyTables(latencies) {
			r.table(t)
		}
	}
	if len(senders) > 0 {
		r.title(2, "Senders that wait")
		for _, t := range sendersTables(senders) {
			r.table(t)
		}
	}
	if len(growth) > 0 {
		r.title(2, "Growth")
		r.page.WriteString("The last column is the ratio of the first figure to that of the first size: 1 does not grow.\n")
	}
	for _, g := range measure.Group(growth, func(r measure.Result) string { return r.Axis }) {
		r.title(3, g.Key)
		r.plot("growth-"+g.Key, growthPlot(g.Key, g.Results).draw())
		for _, t := range growthTables(g.Results) {
			r.table(t)
		}
	}
}

// long writes the sustained runs.
func (r *report) long(results []measure.Result) {
	runs := runsOf(results)
	if len(runs) == 0 {
		return
	}
	r.title(2, "The long run")
	r.plot("sustained", sustainedPlot(runs).draw())
	r.table(summaries("Each a run of its own", runs))
}

// machine writes where the results were measured, without repetitions.
func (r *report) machine(results []measure.Result) {
	lines := func(title string, of func(measure.Result) string) {
		var seen []string
		for _, one := range results {
			if text := of(one); text != "" && !slices.Contains(seen, text) {
				seen = append(seen, text)
			}
		}
		for i, text := range seen {
			if i == 0 {
				fmt.Fprintf(&r.page, "\n%s:\n\n", title)
			}
			fmt.Fprintf(&r.page, "- %s\n", text)
		}
	}
	lines("Machine", func(r measure.Result) string {
		if r.GOOS == "" {
			return ""
		}
		return strings.TrimPrefix(fmt.Sprintf("%s, %s/%s, GOMAXPROCS %d, %s", r.CPU, r.GOOS, r.GOARCH, r.GOMAXPROCS, r.GoVersion), ", ")
	})
	lines("Databases", func(r measure.Result) string { return strings.TrimSpace(strings.Split(r.Server, "\n")[0]) })
	lines("Commands", func(r measure.Result) string {
		if r.Command == "" {
			return ""
		}
		return "`" + r.Command + "`"
	})
}

func partition(results []measure.Result) (latencies, senders, growth, throughput []measure.Result) {
	for _, r := range results {
		if r.AtS > 0 || r.Step != "" {
			continue // of a sustained run, or of idle consumers
		}
		if r.Axis != "" {
			growth = append(growth, r)
			continue
		}
		if r.Senders > 0 {
			senders = append(senders, r)
			continue
		}
		// Another program measures our strategies differently, and may have rates and latencies in
		// one line.
		if r.Batch == 0 && slices.Contains(strategyNames(), r.Strategy) {
			r.Strategy += ", with peers"
		}
		if r.P50 > 0 {
			latencies = append(latencies, r)
		}
		if r.EnqueuePerS+r.DrainPerS+r.PipelinePerS > 0 {
			throughput = append(throughput, r)
		}
	}
	return latencies, senders, growth, throughput
}
