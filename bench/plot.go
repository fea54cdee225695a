package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/chanq/chanq/bench/internal/measure"
)

// runPlot draws recorded runs, including those of bench/peers, into one plot, and writes a table of
// them in Markdown: sustained runs, otherwise idle consumers.
func runPlot(args []string, out, usage io.Writer) error {
	f := flag.NewFlagSet("bench plot", flag.ContinueOnError)
	f.SetOutput(usage)
	in := f.String("in", "", "comma-separated files of JSON lines that sustained has written, or latency -idle")
	to := f.String("out", "", "SVG to write; without it only the table is written")
	title := f.String("title", "", "of the plot")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: everything is a flag", f.Arg(0))
	}
	var results []measure.Result
	var runs []sustainedRun
	for _, path := range split(*in) {
		read, err := measure.ReadFile(path)
		if err != nil {
			return err
		}
		results, runs = append(results, read...), append(runs, runsOf(read)...)
	}
	plot, table, err := plotOf(results, runs, *title)
	if err == nil && *to != "" {
		err = os.WriteFile(*to, plot.draw(), 0o644)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, table.Markdown())
	return err
}

type drawing interface{ draw() []byte }

func plotOf(results []measure.Result, runs []sustainedRun, title string) (drawing, measure.Table, error) {
	if len(runs) > 0 {
		plot := sustainedPlot(runs)
		if title != "" {
			plot.title = title
		}
		return plot, summaries("", runs), nil
	}
	slept := measure.SleptOf(results)
	if len(slept) == 0 {
		return nil, measure.Table{}, errors.New("nothing to plot: -in has no interval of a sustained run, and no idle consumer")
	}
	plot := sleptPlot(slept)
	if title != "" {
		plot.title = title
	}
	return plot, measure.SleptTable("", slept), nil
}

func summaries(title string, runs []sustainedRun) measure.Table {
	names, of := make([]string, len(runs)), make([]measure.Summary, len(runs))
	for i, run := range runs {
		names[i], of[i] = run.name, measure.Summarise(run.intervals)
	}
	return measure.SummaryTable(title, names, of)
}
