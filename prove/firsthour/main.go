// Command firsthour asks a SQL Server whether everything is as chanq expects it, and writes one report:
//
//	go run ./prove/firsthour -dsn 'sqlserver://sa:…@host?database=master'
//	go run ./prove/firsthour -docker 2022
//
// chanq was developed on an emulator (package mssqltest), because nothing there could run Microsoft's engine. This command is for everyone
// who has one. It takes 15 to 40 minutes, on a server that nothing else uses meanwhile. It creates databases of its own and drops them, even
// after Ctrl-C. -h explains its exit status and the rights that it needs.
//
// The parts, each in a file: facts, plans, locks, behaviours, suite, programs, deadlocks (they are recorded during suite, programs and load)
// and load. report.go has the report, questions.go the list of what must be verified, which the documentation quotes.
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
	"syscall"
	"time"
)

var (
	// errDiffers is a report with a difference.
	errDiffers = errors.New("the server differs from what chanq expects")
	// errInterrupted is the cause of a run that a signal ends.
	errInterrupted = errors.New("interrupted")
)

func main() {
	os.Exit(status(os.Args[1:], os.Stdout, os.Stderr))
}

// status runs the command and returns its exit status. The first signal ends the run; later ones must not end the process, which then drops
// its databases.
func status(args []string, out, progress io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write to a closed pipe is an error, instead of the end of the process
	go func() {
		<-signals
		fmt.Fprintf(progress, "interrupted: ending the tests and dropping the databases, up to %v\n", afterInterrupt+dropSoon)
		cancel(errInterrupted)
		for range signals {
			fmt.Fprintf(progress, "interrupted already: waiting until the tests have ended (%v at most) and the databases are dropped (%v)\n", afterInterrupt, dropSoon)
		}
	}()
	err := command(ctx, args, out, progress)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(progress, "firsthour:", err)
	switch {
	case ctx.Err() != nil:
		return 3
	case errors.Is(err, errDiffers):
		return 1
	}
	return 2
}

// options are the flags.
type options struct {
	dsn, docker, name, out, plans string
	parts                         []string
	load                          time.Duration
	messages                      int
	quick, list                   bool
	line                          string // the command, without the address
}

// What -quick allows at most.
const (
	quickLoad     = 5 * time.Second
	quickMessages = 1000
)

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("firsthour", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.dsn, "dsn", "", "`address` of a server, as sqlserver://user:password@host?database=master; the login must be able to create databases")
	f.StringVar(&o.docker, "docker", "", "start Microsoft's container of this `year` ("+strings.Join(years, ", ")+") instead, and remove it at the end; that accepts Microsoft's licence terms")
	f.StringVar(&o.name, "name", "chanq_firsthour", "the beginning of the names of all `databases` that are created; none with such a name may exist")
	f.StringVar(&o.out, "out", "firsthour.md", "`file` of the report; - is the standard output")
	f.StringVar(&o.plans, "plans", "", "`folder` in which every plan is kept, for SQL Server Management Studio (default: none)")
	only := f.String("parts", strings.Join(partNames(), ","), "comma-separated `parts` to run")
	f.DurationVar(&o.load, "load", 10*time.Minute, "how long the load runs during which reads per message must not grow")
	f.IntVar(&o.messages, "n", 20_000, "messages of each shorter measurement of the load, and of a filled table")
	f.BoolVar(&o.quick, "quick", false, "few messages, and of suite and load the smallest part, to see in about a minute that everything starts")
	f.BoolVar(&o.list, "list", false, "print the list of what must be verified, as the documentation has it, and nothing else")
	f.Usage = func() {
		fmt.Fprint(usage, "Asks a SQL Server whether everything is as chanq expects it, and writes one report (15 to 40 minutes).\n"+
			"Run it in a checkout of chanq, and not on a production server: it is under full load for minutes.\n"+
			"It creates databases of its own and drops them, even after Ctrl-C.\n\n"+
			"  go run ./prove/firsthour -docker 2022\n  go run ./prove/firsthour -dsn 'sqlserver://sa:password@127.0.0.1?database=master&encrypt=disable'\n\n"+
			"Exit status: 0 no difference, 1 differences, 2 the run failed, 3 interrupted. go run always returns 1, and prints the status.\n\n")
		f.PrintDefaults()
		fmt.Fprintln(usage, "\nParts, how long they take, and what they are:")
		for _, p := range parts {
			fmt.Fprintf(usage, "  %-10s  %-18s  %s\n", p.name, p.takes, p.does)
		}
		fmt.Fprintln(usage, "\nThe login must be able to create databases. Without the other rights, these parts are not asked, or not as a whole:")
		for _, r := range rights {
			fmt.Fprintf(usage, "  %-24s  %s\n", r.name, r.parts)
		}
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.parts = strings.Split(*only, ",")
	o.line = "firsthour"
	f.Visit(func(f *flag.Flag) {
		value := f.Value.String()
		if f.Name == "dsn" {
			value = "…"
		}
		o.line += " -" + f.Name + "=" + value
	})
	if o.quick {
		o.load, o.messages = min(o.load, quickLoad), min(o.messages, quickMessages)
	}
	return o, o.check(f.Args())
}

func (o options) check(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q: flags only", rest[0]))
	}
	switch {
	case o.dsn != "" && o.docker != "":
		errs = append(errs, errors.New("use either -dsn or -docker, not both"))
	case o.dsn == "" && o.docker == "" && !o.list:
		errs = append(errs, errors.New("use -dsn or -docker (-h explains them)"))
	}
	if o.docker != "" && !slices.Contains(years, o.docker) {
		errs = append(errs, fmt.Errorf("-docker is %q: want one of %s", o.docker, strings.Join(years, ", ")))
	}
	for _, name := range o.parts {
		if !slices.Contains(partNames(), name) {
			errs = append(errs, fmt.Errorf("-parts has %q: want some of %s", name, strings.Join(partNames(), ", ")))
		}
	}
	if !databaseName.MatchString(o.name) {
		errs = append(errs, fmt.Errorf("-name is %q: want up to 60 of a-z, 0-9 and _, beginning with a letter", o.name))
	}
	if o.load < time.Second || o.messages < 100 {
		errs = append(errs, errors.New("-load is at least 1s, -n at least 100"))
	}
	return errors.Join(errs...)
}

// onlyQuick adds a row if the part has run with -quick.
func (h *hour) onlyQuick() {
	if h.quick {
		h.report.skip(rest, errors.New("this run has the smallest part only (-quick)"))
	}
}

// part is one part of the report.
type part struct {
	name, takes, does string
	run               func(context.Context, *hour) error
}

// parts are all parts, in the order in which they run.
var parts = []part{
	{"facts", "seconds", "version, edition, hardware, and the options of each database", facts},
	{"plans", "1 minute", "the estimated plan of every statement, on empty and on filled tables", plans},
	{"locks", "1 minute", "the locks of each statement in an open transaction, compared with a recorded table", locks},
	{"behaviours", "1 minute", "the rules of locks, hints and errors that the emulator implements, one by one", behave},
	{"suite", "12 minutes", "the tests of chanq that run on a server, each on databases of its own", suite},
	{"programs", "2 minutes", "the documented rights, the command, the web UI, and processes that are killed", programs},
	{"load", "12 minutes or more", "throughput compared with other queries; reads, latches and ghosts per message over minutes", load},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// hour is one run: a server, its databases, and what has been found so far.
type hour struct {
	options
	*server
	report *report
	root   string // of the checkout
}

// command runs the command with args.
func command(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	if o.list {
		_, err := io.WriteString(out, list())
		return err
	}
	root, err := checkout()
	if err != nil {
		return err
	}
	h := &hour{options: o, root: root, report: newReport(ctx, progress)}
	if o.docker != "" {
		stop, err := h.start(ctx)
		defer stop()
		if err != nil {
			return err
		}
	}
	if h.server, err = connect(ctx, h.options.dsn, o.name); err != nil {
		return err
	}
	file, err := h.createFile(out)
	if err != nil {
		return errors.Join(err, h.admin.Close())
	}
	h.report.say("%s: %s", h.host(), h.version)
	for _, p := range parts {
		switch {
		case !slices.Contains(o.parts, p.name):
		case o.quick:
			h.report.say("  %-10s  seconds", p.name)
		default:
			h.report.say("  %-10s  %s", p.name, p.takes)
		}
	}
	h.report.ended = h.run(ctx)
	h.report.say("dropping the databases")
	left := h.server.close(ctx)
	if left == nil {
		h.report.say("the databases are dropped")
	}
	published := h.publish(file)
	switch result := h.report.summary(); {
	case h.report.ended != nil:
		err = errors.New(result)
	case h.report.count(wrong) > 0:
		err = fmt.Errorf("%w: %s", errDiffers, result)
	default:
		h.report.say("%s", result)
	}
	return errors.Join(left, published, err)
}

// run creates the databases and runs the parts. What a part cannot do is in the report; only the end of ctx, and databases that cannot be
// created, end the run.
func (h *hour) run(ctx context.Context) error {
	h.report.about = h.about(ctx)
	if err := h.createAll(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	for _, p := range parts {
		if ctx.Err() != nil {
			break
		}
		if !slices.Contains(h.parts, p.name) {
			continue
		}
		h.report.begin(p.name)
		recorded := slices.Contains(underRecord, p.name)
		if recorded {
			h.watchDeadlocks(ctx)
		}
		if err := p.run(ctx, h); err != nil {
			h.report.failed(rest, "no error", err)
		}
		if recorded {
			h.readDeadlocks(ctx)
		}
	}
	return context.Cause(ctx)
}
