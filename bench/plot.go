package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/chanq/chanq/bench/internal/measure"
)

// runPlot draws recorded sustained runs, those of bench/peers too, into one plot, and
// writes their summaries as a table in Markdown.
func runPlot(args []string, out, usage io.Writer) error {
	f := flag.NewFlagSet("bench plot", flag.ContinueOnError)
	f.SetOutput(usage)
	in := f.String("in", "", "comma-separated files of JSON lines that sustained has written")
	to := f.String("out", "", "SVG to write; without it only the table is written")
	title := f.String("title", "", "of the plot")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: everything is a flag", f.Arg(0))
	}
	var runs []sustainedRun
	for _, path := range split(*in) {
		results, err := measure.ReadFile(path)
		if err != nil {
			return err
		}
		runs = append(runs, runsOf(results)...)
	}
	if len(runs) == 0 {
		return errors.New("nothing to plot: -in has no interval of a sustained run")
	}
	if *to != "" {
		plot := sustainedPlot(runs)
		if *title != "" {
			plot.title = *title
		}
		if err := os.WriteFile(*to, plot.draw(), 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(out, summaries("", runs).Markdown())
	return err
}

func summaries(title string, runs []sustainedRun) measure.Table {
	names, of := make([]string, len(runs)), make([]measure.Summary, len(runs))
	for i, run := range runs {
		names[i], of[i] = run.name, measure.Summarise(run.intervals)
	}
	return measure.SummaryTable(title, names, of)
}
