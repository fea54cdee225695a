package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// options are the flags of the command.
type options struct {
	engine, dsn, db        string
	strategies             []string
	n, single, body, batch int
	rounds                 int
	send, format           string
	cpuProfile, memProfile string
}

// The values of -send and -format.
const (
	sendChannel, sendBatch  = "channel", "batch"
	formatTable, formatJSON = "table", "json"
)

const (
	maxBatch = 512     // the largest that ProducerConfig.BatchRows allows
	maxBody  = 1 << 20 // Config.MaxBody's default
)

// parse reads the flags and checks all of them, so that nothing is written for
// a run that cannot end well.
func parse(args []string, usage io.Writer) (options, error) {
	var o options
	var chosen string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.engine, "engine", "sqlite", "database: "+strings.Join(engineNames(), ", "))
	f.StringVar(&o.dsn, "dsn", "", "SQL Server to use; a queue is made in it and dropped")
	f.StringVar(&o.db, "db", "", "SQLite file to make and remove for each measurement (default a temporary one)")
	f.StringVar(&chosen, "strategies", strings.Join(strategyNames(), ","), "comma-separated: "+strings.Join(strategyNames(), ", "))
	f.IntVar(&o.n, "n", 50_000, "messages")
	f.IntVar(&o.single, "single-n", 5_000, "at most this many messages for the strategy single, which is slow")
	f.IntVar(&o.body, "body", 200, "bytes of a body")
	f.IntVar(&o.batch, "batch", 500, fmt.Sprintf("rows of a statement, 1 to %d", maxBatch))
	f.IntVar(&o.rounds, "rounds", 3, "measured rounds; one more comes before and is discarded")
	f.StringVar(&o.send, "send", sendChannel, "how chanq is given messages: channel (Producer.C) or batch (SendBatch)")
	f.StringVar(&o.format, "format", formatTable, "table, or json: one object a line for each measurement")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile here; samples have the label phase, such as \"chanq drain\"")
	f.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations here")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.strategies = strings.Split(chosen, ",")
	return o, o.check(f.Args())
}

func (o options) check(rest []string) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(rest) > 0 {
		fail("unexpected argument %q: everything is a flag", rest[0])
	}
	among := func(name, value string, known []string) bool {
		if slices.Contains(known, value) {
			return true
		}
		fail("%s %q is unknown; known: %s", name, value, strings.Join(known, ", "))
		return false
	}
	within := func(name string, value, low, high int) {
		if value < low || value > high {
			fail("%s is %d: must be from %d to %d", name, value, low, high)
		}
	}
	if among("-engine", o.engine, engineNames()) {
		if err := findEngine(o.engine).check(o); err != nil {
			fail("%w", err)
		}
	}
	for i, s := range o.strategies {
		if among("-strategies", s, strategyNames()) && slices.Contains(o.strategies[:i], s) {
			fail("-strategies names %s twice", s)
		}
	}
	among("-send", o.send, []string{sendChannel, sendBatch})
	among("-format", o.format, []string{formatTable, formatJSON})
	within("-n", o.n, 1, 10_000_000)
	within("-single-n", o.single, 1, 10_000_000)
	within("-body", o.body, 0, maxBody)
	within("-batch", o.batch, 1, maxBatch)
	within("-rounds", o.rounds, 1, 1000)
	return errors.Join(errs...)
}

// messages is how many a strategy is measured with.
func (o options) messages(strategy string) int {
	if strategy == "single" {
		return min(o.n, o.single)
	}
	return o.n
}

func engineNames() []string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = e.name
	}
	return names
}

func strategyNames() []string {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		names[i] = s.name
	}
	return names
}

func findEngine(name string) engine {
	return engines[slices.Index(engineNames(), name)]
}
