// Command firsthour asks a SQL Server whether everything is as chanq expects it, and writes one report:
//
//	go run ./prove/firsthour -dsn 'sqlserver://sa:…@host?database=master'
//	go run ./prove/firsthour -docker 2022
//
// chanq was developed on an emulator (package mssqltest), because nothing there could run Microsoft's engine. This command is for everyone
// who has one. It takes 15 to 40 minutes, on a server that nothing else uses meanwhile. It creates databases of its own and drops them, also
// after Ctrl-C. Its exit status is 1 if the server differs from what was expected, and 2 if nothing could be asked.
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
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errDiffers is a report with a difference.
var errDiffers = errors.New("the server differs from what chanq expects")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the databases to be dropped
	switch err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errDiffers) && ctx.Err() == nil:
		fmt.Fprintln(os.Stderr, "firsthour:", err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "firsthour:", err)
		os.Exit(2)
	}
}

// options are the flags.
type options struct {
	dsn, docker, name, out, plans string
	parts                         []string
	load                          time.Duration
	messages                      int
	quick, list                   bool
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("firsthour", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.dsn, "dsn", "", "`address` of a server, as sqlserver://user:password@host?database=master; the login may create databases")
	f.StringVar(&o.docker, "docker", "", "start Microsoft's container of this `year` ("+strings.Join(years, ", ")+") instead, and remove it at the end; that accepts Microsoft's licence terms")
	f.StringVar(&o.name, "name", "chanq_firsthour", "the beginning of the names of all `databases` that are created; none with such a name may exist")
	f.StringVar(&o.out, "out", "firsthour.md", "`file` of the report; - is the standard output")
	f.StringVar(&o.plans, "plans", "", "`folder` in which every plan is kept, for SQL Server Management Studio (default: none)")
	only := f.String("parts", strings.Join(partNames(), ","), "comma-separated `parts` to run")
	f.DurationVar(&o.load, "load", 10*time.Minute, "how long the load runs during which reads per message must not grow")
	f.IntVar(&o.messages, "n", 20_000, "messages of each shorter measurement of the load, and of a filled table")
	f.BoolVar(&o.quick, "quick", false, "of suite and load the smallest part, to see that they start")
	f.BoolVar(&o.list, "list", false, "print the list of what must be verified, as the documentation has it, and nothing else")
	f.Usage = func() {
		fmt.Fprintln(usage, "Asks a SQL Server whether everything is as chanq expects it, and writes one report (15 to 40 minutes).\n"+
			"Run it in a checkout of chanq. It creates databases of its own and drops them, also after Ctrl-C.\n"+
			"Exit status: 0 as expected, 1 differences, 2 nothing could be asked.\n\n"+
			"  go run ./prove/firsthour -docker 2022\n  go run ./prove/firsthour -dsn 'sqlserver://sa:password@127.0.0.1?database=master&encrypt=disable'")
		f.PrintDefaults()
		fmt.Fprintln(usage, "\nParts:")
		for _, p := range parts {
			fmt.Fprintf(usage, "  %-10s %s\n", p.name, p.does)
		}
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.parts = strings.Split(*only, ",")
	return o, o.check(f.Args())
}

func (o options) check(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q: flags only", rest[0]))
	}
	if !o.list && (o.dsn == "") == (o.docker == "") {
		errs = append(errs, errors.New("want one of -dsn and -docker (-h explains them)"))
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

// part is one part of the report.
type part struct {
	name, does string
	run        func(context.Context, *hour) error
}

// parts are all parts, in the order in which they run.
var parts = []part{
	{"facts", "version, edition, hardware, and the options of each database", facts},
	{"plans", "the estimated plan of every statement, on empty and on filled tables", plans},
	{"locks", "the locks of each statement in an open transaction, compared with a recorded table", locks},
	{"behaviours", "the rules of locks, hints and errors that the emulator implements, one by one", behave},
	{"suite", "the tests of chanq that run on a server, each on databases of its own", suite},
	{"programs", "the documented rights, the command, the web UI, and processes that are killed", programs},
	{"load", "throughput compared with other queries; reads, latches and ghosts per message over minutes", load},
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
	h := &hour{options: o, root: root, report: newReport(progress)}
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
	defer func() { err = errors.Join(err, h.server.close(ctx)) }()
	h.report.say("%s: %s", h.server.host(), h.server.version)
	h.report.ended = h.run(ctx)
	err = h.publish(out)
	return errors.Join(h.report.ended, err)
}

// run creates the databases and runs the parts. What a part cannot do is a difference in the report; only the end of ctx, and databases that
// cannot be created, end the run.
func (h *hour) run(ctx context.Context) error {
	if err := h.createAll(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if !slices.Contains(h.parts, p.name) {
			continue
		}
		h.report.begin(p.name)
		recorded := slices.Contains(underRecord, p.name)
		if recorded {
			h.watchDeadlocks(ctx)
		}
		if err := p.run(ctx, h); err != nil && ctx.Err() == nil {
			h.report.wrong("the part runs to its end", "no error", err.Error())
		}
		if recorded {
			h.readDeadlocks(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// publish writes the report, also of a run that was interrupted.
func (h *hour) publish(out io.Writer) error {
	text := h.report.markdown(h.server)
	if password, _ := h.address.User.Password(); len(password) > 3 { // tests print the address if they fail
		text = strings.NewReplacer(password, "…", url.QueryEscape(password), "…", url.PathEscape(password), "…").Replace(text)
	}
	if h.out == "-" {
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	} else {
		if err := os.WriteFile(h.out, []byte(text), 0o644); err != nil {
			return err
		}
		h.report.say("the report is in %s", h.out)
	}
	if n := h.report.differences(); n > 0 {
		return fmt.Errorf("%w: %d differences", errDiffers, n)
	}
	return nil
}
