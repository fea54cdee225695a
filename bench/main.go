// Command bench compares chanq with bare loops over the same statements and
// with other ways to dequeue, on one database:
//
//	go run ./bench            throughput of each strategy: enqueue, drain, pipeline
//	go run ./bench suite      the same next to the fastest loops, with what these leave out, in 15 minutes
//	go run ./bench latency    enqueue to delivery at fixed rates, in one process and across two
//	go run ./bench latency -idle  send to delivery in other processes whose consumers are idle
//	go run ./bench senders    goroutines that wait for their sends, compared with the bare statement
//	go run ./bench growth     what a message costs as backlog, consumers, bodies … grow
//	go run ./bench sustained  throughput, latency and size of the tables over minutes
//	go run ./bench order      the cost of an ordered queue compared with a plain one
//	go run ./bench shards     one queue over several files compared with one in a single file
//	go run ./bench scale      many queues with idle consumers and processes
//	go run ./bench plot       recorded sustained runs as one plot and one table
//	go run ./bench report     all of it, as docs/internals/bench/report.md with plots
//	go run ./bench compare    what two files of results differ in, for .ci/bench-compare
//
// Each takes flags (-h lists them), such as -engine postgres -dsn …. With -format json it writes
// one line per measurement, for report -in.
//
// docs/internals/performance.md explains the figures, and has those of one machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/prove/testdb/child"
)

func main() {
	child.Main(parts)
	if len(os.Args) == 2 && os.Args[1] == peerArgument {
		peer.Main(peerSystems)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// command is selected by the first argument. It passes its results to report as they arrive.
type command struct {
	name    string
	measure func(ctx context.Context, o options, report func(measure.Result)) error
	table   func(w io.Writer, o options, results []measure.Result) error
	apart   bool // has its own flags, and is not in the report
	// A long command prints its results as they arrive, not as a table
	// at its end.
	head func(w io.Writer, o options) error
	line func(w io.Writer, r measure.Result) error
}

var commands = []command{
	{name: "throughput", measure: measureThroughput, table: writeThroughput},
	{name: "suite", measure: measureSuite, table: writeSuite, apart: true, head: writeSuiteHead, line: writeSuiteLine},
	{name: "latency", measure: measureLatency, table: writeLatency},
	{name: "senders", measure: measureSenders, table: writeSenders},
	{name: "growth", measure: measureGrowth, table: writeGrowth},
	{name: "order", measure: measureOrder, table: writeOrder, apart: true},
	{name: "shards", measure: measureShards, table: writeShards, apart: true},
	{name: "scale", measure: measureScale, table: writeScale, apart: true},
	{name: "sustained", measure: measureSustained, table: writeSustainedEnd, head: writeSustainedHead, line: writeSustainedLine},
}

func run(ctx context.Context, args []string, out, usage io.Writer) error {
	name := "throughput"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	switch name {
	case "report":
		return runReport(ctx, args, usage)
	case "compare":
		return runCompare(args, out, usage)
	case "plot":
		return runPlot(args, out, usage)
	}
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("unknown command %q; known: throughput (the default), suite, latency, senders, growth, order, shards, scale, sustained, plot, report, compare", name)
	}
	o, err := parse(name, args, usage)
	if err != nil {
		return err
	}
	finish, err := startProfiles(o)
	if err != nil {
		return err
	}
	lines, err := jsonLines(o, out)
	if err != nil {
		return errors.Join(err, finish())
	}
	var results []measure.Result
	var writing error
	if commands[i].head != nil && o.format == formatTable {
		writing = commands[i].head(out, o)
	}
	err = commands[i].measure(ctx, o, func(r measure.Result) {
		results = append(results, r)
		writing = errors.Join(writing, measure.Write(lines, r))
		if commands[i].line != nil && o.format == formatTable {
			writing = errors.Join(writing, commands[i].line(out, r))
		}
	})
	if err == nil && o.format == formatTable {
		writing = errors.Join(writing, commands[i].table(out, o, results))
	}
	writing = errors.Join(writing, lines.Close())
	return errors.Join(err, writing, finish())
}

// jsonLines returns the destination of results as lines of JSON.
func jsonLines(o options, out io.Writer) (io.WriteCloser, error) {
	switch {
	case o.format == formatJSON:
		return unclosed{out}, nil
	case o.record != "":
		return os.Create(o.record)
	}
	return unclosed{io.Discard}, nil
}

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
