package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
)

// options are the flags of the command.
type options struct {
	dsn, dir               string
	systems                []system
	n, body, rounds        int
	rate, latencyN, warmUp int
	drainOnly              bool
	patience               time.Duration
	format, record         string
	command                string            // as entered, without addresses
	sustained              *sustainedOptions // nil: the phases
	idle                   *idleOptions      // nil: the phases
}

// sustainedOptions are the flags of a sustained run.
type sustainedOptions struct {
	length, every time.Duration
	rate          float64
	backlog       int
	hold          bool
}

// idleOptions are the flags of a run with idle receivers.
type idleOptions struct {
	length, rest time.Duration
}

// These values of the first argument select a sustained run, or idle receivers.
const sustainedArgument, idleArgument = "sustained", "idle"

// The values of -format.
const formatTable, formatJSON = "table", "json"

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	var chosen string
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.dsn, "dsn", "", "PostgreSQL server whose user may create databases; one is made and dropped for each phase. Without it systems on PostgreSQL are left out")
	f.StringVar(&o.dir, "dir", "", "directory for the files of the other engines, on the same disk as the server's (default the temporary one)")
	f.StringVar(&chosen, "systems", "", "comma-separated engine/strategy (default all; of a sustained run "+strings.Join(longSystems, ", ")+"; of idle "+strings.Join(sleepingSystems, ", ")+"):\n"+strings.Join(systemNames(systems), "\n"))
	f.IntVar(&o.body, "body", 200, "bytes of a body, which is JSON")
	f.DurationVar(&o.patience, "patience", 5*time.Minute, "the most that one phase may take")
	f.StringVar(&o.format, "format", formatTable, "table, or json: one object a line for each measurement")
	f.StringVar(&o.record, "record", "", "with -format table: write the objects of -format json to this file, too")
	o.n, o.rounds, o.rate, o.latencyN = 1, 1, 1, 1
	o.command = "go run ."
	unnamed := ""
	switch {
	case len(args) > 0 && args[0] == sustainedArgument:
		o.declareSustained(f)
		unnamed = strings.Join(longSystems, ",")
	case len(args) > 0 && args[0] == idleArgument:
		o.declareIdle(f)
		unnamed = strings.Join(sleepingSystems, ",")
	default:
		o.declarePhases(f)
	}
	if unnamed != "" {
		o.command, args = o.command+" "+args[0], args[1:]
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	f.Visit(func(given *flag.Flag) {
		value := given.Value.String()
		if given.Name == "dsn" {
			value = `"$DSN"` // it may have a password
		}
		o.command += " -" + given.Name + " " + value
	})
	if o.latencyN == 0 {
		o.latencyN = max(1, min(o.n/10, 10*o.rate))
	}
	o.warmUp = min(o.rate, o.latencyN/10) // at most one second
	if chosen == "" && o.dsn != "" {
		chosen = unnamed
	}
	return o, o.check(chosen, f.Args(), usage)
}

func (o *options) declarePhases(f *flag.FlagSet) {
	f.IntVar(&o.n, "n", 20_000, "messages of the phases enqueue, drain and pipeline")
	f.IntVar(&o.rounds, "rounds", 5, "measured rounds; one more comes before and is discarded")
	f.IntVar(&o.rate, "rate", 200, "messages a second of the phase latency; must be below what the slowest system can")
	f.IntVar(&o.latencyN, "latency-n", 0, "measured messages of the phase latency (default n/10, at most 10 seconds' worth)")
	f.BoolVar(&o.drainOnly, "drain-only", false, "enqueue and drain, no pipeline and no latency: for many messages")
}

// The flags are those of bench sustained, for one process with one consumer.
func (o *options) declareSustained(f *flag.FlagSet) {
	o.sustained = &sustainedOptions{}
	f.DurationVar(&o.sustained.length, "for", 5*time.Minute, "how long")
	f.DurationVar(&o.sustained.every, "every", 5*time.Second, "time between two lines")
	f.Float64Var(&o.sustained.rate, "rate", 0, "messages a second (default as fast as it goes, with the backlog kept)")
	f.IntVar(&o.sustained.backlog, "backlog", 20_000, "messages that are sent and not yet received, without -rate")
	f.BoolVar(&o.sustained.hold, "hold", false, fmt.Sprintf("open a snapshot in another session after %v, and keep it", measure.HoldAfter))
}

func (o *options) declareIdle(f *flag.FlagSet) {
	o.idle = &idleOptions{}
	f.IntVar(&o.rounds, "rounds", 1, "rounds")
	f.DurationVar(&o.idle.length, "for", time.Minute, "how long messages are sent in gaps of 100 to 500 ms, and twice as long in gaps of 2 to 4 s")
	f.DurationVar(&o.idle.rest, "rest", 10*time.Second, "how long nothing is sent, to count what a receiver asks")
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
	if l := o.sustained; l != nil {
		within("-backlog", l.backlog, 1, 100_000_000)
		if l.every < 100*time.Millisecond || l.length < l.every || l.rate < 0 {
			fail("-every is %v, -for is %v, -rate is %v: at least 100ms, -for no less than -every, and no rate below 0", l.every, l.length, l.rate)
		}
	}
	if i := o.idle; i != nil && (i.length <= 0 || i.rest <= 0) {
		fail("-for is %v and -rest is %v: must be positive", i.length, i.rest)
	}
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
