// Command peers compares chanq with other queues on the same machine, with
// the same messages and the same durability, in one interleaved run:
//
//	cd bench/peers && GOWORK=off go run . -dsn 'host=… user=…' -n 20000 -body 200 -rounds 5 -format table
//	cd bench/peers && GOWORK=off go run . sustained -dsn 'host=… user=…' -for 2m -hold
//	cd bench/peers && GOWORK=off go run . idle -dsn 'host=… user=…' -for 1m
//	cd bench/peers && GOWORK=off go run . order -dsn 'host=… user=…'
//
// README.md describes the scope of the comparison.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

// measureArgument makes this program measure one phase of one of the systems
// that are linked into it.
const measureArgument = "measure"

func main() {
	if len(os.Args) == 2 && os.Args[1] == measureArgument {
		peer.Main(linked)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, messages io.Writer) (err error) {
	if len(args) > 0 && args[0] == orderArgument {
		return runOrder(ctx, args[1:], out, messages)
	}
	o, err := parse(args, messages)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, messages)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	lines := io.Discard
	if o.format == formatJSON {
		lines = out
	} else if o.record != "" {
		file, failed := os.Create(o.record)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		lines = file
	}
	var results []measure.Result
	var writing error
	report := func(r measure.Result) {
		results = append(results, r)
		writing = errors.Join(writing, measure.Write(lines, r))
	}
	if o.sustained != nil {
		return errors.Join(b.sustainAll(ctx, out, report), writing)
	}
	if o.idle != nil {
		err = b.measureIdle(ctx, report)
		if o.format == formatTable && len(results) > 0 { // also results before an error
			writing = errors.Join(writing, measure.WriteTables(out, idleTable(b.about, results)))
		}
		return errors.Join(err, writing)
	}
	err = b.measureAll(ctx, report)
	if o.format == formatTable && len(results) > 0 { // also results before an error
		writing = errors.Join(writing, writeTable(out, o, b.about, results))
	}
	return errors.Join(err, writing)
}
