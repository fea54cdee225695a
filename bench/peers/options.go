package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// options are the flags of the command.
type options struct {
	dsn, dir               string
	systems                []system
	n, body, rounds        int
	rate, latencyN, warmUp int
	patience               time.Duration
	format                 string
}

// The values of -format.
const formatTable, formatJSON = "table", "json"

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	var chosen string
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.dsn, "dsn", "", "PostgreSQL server whose user may create databases; one is made and dropped for each phase. Without it systems on PostgreSQL are left out")
	f.StringVar(&o.dir, "dir", "", "directory for the files of the other engines, on the same disk as the server's (default the temporary one)")
	f.StringVar(&chosen, "systems", "", "comma-separated engine/strategy (default all):\n"+strings.Join(systemNames(systems), "\n"))
	f.IntVar(&o.n, "n", 20_000, "messages of the phases enqueue, drain and pipeline")
	f.IntVar(&o.body, "body", 200, "bytes of a body, which is JSON")
	f.IntVar(&o.rounds, "rounds", 5, "measured rounds; one more comes before and is discarded")
	f.IntVar(&o.rate, "rate", 200, "messages a second of the phase latency; must be below what the slowest system can")
	f.IntVar(&o.latencyN, "latency-n", 0, "measured messages of the phase latency (default n/10, at most 10 seconds' worth)")
	f.DurationVar(&o.patience, "patience", 5*time.Minute, "the most that one phase may take")
	f.StringVar(&o.format, "format", formatTable, "table, or json: one object a line for each measurement")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.latencyN == 0 {
		o.latencyN = max(1, min(o.n/10, 10*o.rate))
	}
	o.warmUp = min(o.rate, o.latencyN/10) // a second at most
	return o, o.check(chosen, f.Args(), usage)
}

func (o *options) check(chosen string, rest []string, messages io.Writer) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(name string, value, low, high int) {
		if value < low || value > high {
			fail("%s is %d: must be from %d to %d", name, value, low, high)
		}
	}
	if len(rest) > 0 {
		fail("unexpected argument %q: everything is a flag", rest[0])
	}
	within("-n", o.n, 1, 10_000_000)
	within("-body", o.body, 32, 1<<20)
	within("-rounds", o.rounds, 1, 1000)
	within("-rate", o.rate, 1, 1_000_000)
	within("-latency-n", o.latencyN, 1, 10_000_000)
	if o.patience <= 0 {
		fail("-patience is %v: must be positive", o.patience)
	}
	if o.format != formatTable && o.format != formatJSON {
		fail("-format %q is unknown; known: %s, %s", o.format, formatTable, formatJSON)
	}
	if chosen != "" {
		for name := range strings.SplitSeq(chosen, ",") {
			i := slices.Index(systemNames(systems), name)
			switch {
			case i < 0:
				fail("-systems %q is unknown; known: %s", name, strings.Join(systemNames(systems), ", "))
			case systems[i].engine == postgres && o.dsn == "":
				fail("-systems %s needs -dsn", name)
			case slices.Contains(systemNames(o.systems), name):
				fail("-systems names %s twice", name)
			default:
				o.systems = append(o.systems, systems[i])
			}
		}
		return errors.Join(errs...)
	}
	for _, s := range systems {
		if s.engine == postgres && o.dsn == "" {
			fmt.Fprintf(messages, "peers: no -dsn, so %s is left out\n", s.name())
			continue
		}
		o.systems = append(o.systems, s)
	}
	return errors.Join(errs...)
}
