// Command bench measures chanq beside a bare loop over the same statements
// (raw) and beside one row a statement (single), on one engine:
//
//	go run ./bench -engine sqlite -strategies raw,chanq,single -n 50000 -body 200 -rounds 3
//
// And it watches a queue under mixed load while processes are killed and
// connections break:
//
//	go run ./bench soak -engine sqlite -for 10m
//
// What the figures mean, and how they were on one machine, is in
// docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"

	"github.com/chanq/chanq/bench/internal/soak"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == soak.WorkerCommand {
		soak.WorkerMain()
	}
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, usage io.Writer) error {
	if len(args) > 0 && args[0] == "soak" {
		return soak.Run(ctx, args[1:], out, usage)
	}
	o, err := parse(args, usage)
	if err != nil {
		return err
	}
	finish, err := startProfiles(o)
	if err != nil {
		return err
	}
	var results []result
	var writing error
	err = measureAll(ctx, o, func(r result) {
		results = append(results, r)
		if o.format == formatJSON {
			writing = errors.Join(writing, writeJSON(out, r))
		}
	})
	if err == nil && o.format == formatTable {
		writing = writeTable(out, o, results)
	}
	return errors.Join(err, writing, finish())
}

// startProfiles starts what was asked for; finish writes it.
func startProfiles(o options) (finish func() error, err error) {
	var cpu *os.File
	if o.cpuProfile != "" {
		if cpu, err = os.Create(o.cpuProfile); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	return func() error {
		var errs []error
		if cpu != nil {
			pprof.StopCPUProfile()
			errs = append(errs, cpu.Close())
		}
		if o.memProfile != "" {
			mem, err := os.Create(o.memProfile)
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			runtime.GC()
			errs = append(errs, pprof.Lookup("allocs").WriteTo(mem, 0), mem.Close())
		}
		return errors.Join(errs...)
	}, nil
}
