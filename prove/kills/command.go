package kills

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/chanq/chanq/embedded"
)

// options are the flags of the command.
type options struct {
	engine      string
	dsn         string
	db          string
	length      time.Duration
	rate        int
	workers     int
	killEvery   time.Duration
	lockEvery   time.Duration
	freezeEvery time.Duration
	faults      float64
	body        int
	every       time.Duration
	seed        uint64
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench soak", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.engine, "engine", "sqlite", "`name` of the engine: "+strings.Join(engineNames(), ", "))
	flags.StringVar(&o.dsn, "dsn", "", "connection string of the server, for -engine postgres and sqlserver")
	flags.StringVar(&o.db, "db", "", "`file` for -engine sqlite, which must not exist (default: a temporary one)")
	flags.DurationVar(&o.length, "for", 10*time.Minute, "how long to send")
	flags.IntVar(&o.rate, "rate", 1000, "messages a second, of all workers together")
	flags.IntVar(&o.workers, "workers", 4, "processes; the first is never killed")
	flags.DurationVar(&o.killEvery, "kill-every", 5*time.Second, "mean time between two kills; 0 for none")
	flags.DurationVar(&o.lockEvery, "lock-every", 2*time.Second, "mean time between two locks that another session takes: of a leased row, for up to 10s (SQLite: of the database, for up to 500ms); 0 for none")
	flags.DurationVar(&o.freezeEvery, "freeze-every", 5*time.Second, "mean time between two connections that are frozen, for up to 10s (SQLite: 500ms); 0 for none. A server is reached through a proxy then")
	flags.Float64Var(&o.faults, "faults", 0.001, "share of the operations on the database that break their connection")
	flags.IntVar(&o.body, "body", 1024, "most bytes of a body")
	flags.DurationVar(&o.every, "sample", 0, "time between two samples (default: a twentieth of -for)")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the kills, the load and the faults")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if o.every == 0 {
		o.every = max(o.length/20, time.Second)
	}
	return o, o.check()
}

func (o options) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	e, known := engines[o.engine]
	if !known {
		wrong("-engine %q is unknown: it is one of %s", o.engine, strings.Join(engineNames(), ", "))
	}
	if known && e.file && o.dsn != "" {
		wrong("-dsn is for the servers; -engine sqlite takes a file by -db")
	}
	if known && !e.file && (o.dsn == "" || o.db != "") {
		wrong("-engine %s needs -dsn, and no -db", o.engine)
	}
	if o.length < time.Second {
		wrong("-for is %v: at least 1s", o.length)
	}
	if o.rate < 1 || o.rate > 100_000 {
		wrong("-rate is %d: from 1 to 100000", o.rate)
	}
	if o.workers < 1 || o.workers > 64 {
		wrong("-workers is %d: from 1 to 64", o.workers)
	}
	if o.killEvery < 0 {
		wrong("-kill-every is %v: not negative", o.killEvery)
	}
	if o.lockEvery < 0 {
		wrong("-lock-every is %v: not negative", o.lockEvery)
	}
	if o.freezeEvery < 0 {
		wrong("-freeze-every is %v: not negative", o.freezeEvery)
	}
	if o.faults < 0 || o.faults > 0.1 {
		wrong("-faults is %v: from 0 to 0.1", o.faults)
	}
	if o.body < 0 || o.body > 1<<20 {
		wrong("-body is %d: from 0 to 1 MiB", o.body)
	}
	if o.every < 100*time.Millisecond {
		wrong("-sample is %v: at least 100ms", o.every)
	}
	if o.db != "" {
		if _, err := os.Lstat(o.db); !errors.Is(err, os.ErrNotExist) {
			wrong("-db %s: must not exist: it is made and removed", o.db)
		}
	}
	return errors.Join(errs...)
}

// Command runs bench soak with args. It returns an error if a promise was broken,
// after the record is printed. The end of ctx ends the sending early.
func Command(ctx context.Context, args []string, out, usage io.Writer) error {
	o, err := parse(args, usage)
	if err != nil {
		return err
	}
	address := o.dsn
	if engines[o.engine].file {
		if address = o.db; address == "" {
			dir, err := os.MkdirTemp("", "chanq-soak-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			address = filepath.Join(dir, "soak.db")
		} else {
			defer func() {
				for _, file := range embedded.Files(o.db) {
					_ = os.Remove(file) // may not be there
				}
			}()
		}
	}
	fmt.Fprintf(out, "soak: engine %s, %v, %d messages/s, %d workers, kills every %v, locks every %v, freezes every %v, faults %g, bodies up to %d B, seed %d; %s/%s, %d CPUs, %s\n",
		o.engine, o.length, o.rate, o.workers, o.killEvery, o.lockEvery, o.freezeEvery, o.faults, o.body, o.seed, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	s := storm{
		Engine: o.engine, Address: address, For: o.length, Rate: o.rate, Workers: o.workers, Spared: 1,
		KillEvery: o.killEvery, LockEvery: o.lockEvery, FreezeEvery: o.freezeEvery, SampleEvery: o.every,
		Faults: o.faults, Body: o.body, Seed: o.seed,
	}
	workers, watch, err := s.run(ctx, out)
	if err != nil {
		return err
	}
	defer watch.close()
	return report(out, workers, watch)
}
