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
	trial
	dsn, db string
}

func parse(args []string, usage io.Writer) (options, error) {
	o := options{trial: trial{Spared: 1}}
	flags := flag.NewFlagSet("bench soak", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.Engine, "engine", "sqlite", "`name` of the engine: "+strings.Join(engineNames(), ", "))
	flags.StringVar(&o.dsn, "dsn", "", "connection string of the server, for -engine postgres and sqlserver")
	flags.StringVar(&o.db, "db", "", "`file` for -engine sqlite, which must not exist (default: a temporary one)")
	flags.DurationVar(&o.For, "for", 10*time.Minute, "how long to send")
	flags.IntVar(&o.Rate, "rate", 1000, "messages a second, of all workers together")
	flags.IntVar(&o.Workers, "workers", 4, "processes; the first is never killed")
	flags.DurationVar(&o.KillEvery, "kill-every", 5*time.Second, "mean time between two kills; 0 for none")
	flags.DurationVar(&o.LockEvery, "lock-every", 2*time.Second, "mean time between two locks that another session takes: of a leased row, for up to 10s (SQLite: of the database, for up to 500ms); 0 for none")
	flags.DurationVar(&o.FreezeEvery, "freeze-every", 5*time.Second, "mean time between two connections that are frozen, for up to 10s (SQLite: 500ms); 0 for none. A server is reached through a proxy then")
	flags.Float64Var(&o.Faults, "faults", 0.001, "share of the operations on the database that fail: before or after they are applied, with a known or an unknown outcome, or only when their time is over")
	flags.Float64Var(&o.Guilty, "guilty", 0, "share of the messages that fail, or make a statement or their process fail (sqlite, postgres)")
	flags.IntVar(&o.Body, "body", 1024, "most bytes of a body")
	flags.DurationVar(&o.SampleEvery, "sample", 0, "time between two samples (default: a twentieth of -for)")
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "of the kills, the load and the faults")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if o.SampleEvery == 0 {
		o.SampleEvery = max(o.For/20, time.Second)
	}
	return o, o.check()
}

func (o options) check() error {
	e, known := engines[o.Engine]
	exists := false
	if o.db != "" {
		_, err := os.Lstat(o.db)
		exists = !errors.Is(err, os.ErrNotExist)
	}
	var errs []error
	for _, c := range []struct {
		wrong bool
		what  string
	}{
		{!known, fmt.Sprintf("-engine %q is unknown: it is one of %s", o.Engine, strings.Join(engineNames(), ", "))},
		{known && e.file && o.dsn != "", "-dsn is for the servers; -engine sqlite takes a file by -db"},
		{known && !e.file && (o.dsn == "" || o.db != ""), fmt.Sprintf("-engine %s needs -dsn, and no -db", o.Engine)},
		{o.For < time.Second, fmt.Sprintf("-for is %v: at least 1s", o.For)},
		{o.Rate < 1 || o.Rate > 100_000, fmt.Sprintf("-rate is %d: from 1 to 100000", o.Rate)},
		{o.Workers < 1 || o.Workers > 64, fmt.Sprintf("-workers is %d: from 1 to 64", o.Workers)},
		{o.KillEvery < 0, fmt.Sprintf("-kill-every is %v: not negative", o.KillEvery)},
		{o.LockEvery < 0, fmt.Sprintf("-lock-every is %v: not negative", o.LockEvery)},
		{o.FreezeEvery < 0, fmt.Sprintf("-freeze-every is %v: not negative", o.FreezeEvery)},
		{o.Faults < 0 || o.Faults > 0.1, fmt.Sprintf("-faults is %v: from 0 to 0.1", o.Faults)},
		{o.Guilty < 0 || o.Guilty > 0.1, fmt.Sprintf("-guilty is %v: from 0 to 0.1", o.Guilty)},
		{known && o.Guilty > 0 && e.triggers == nil, fmt.Sprintf("-guilty: -engine %s has no triggers for guilty messages", o.Engine)},
		{o.Body < 0 || o.Body > 1<<20, fmt.Sprintf("-body is %d: from 0 to 1 MiB", o.Body)},
		{o.SampleEvery < 100*time.Millisecond, fmt.Sprintf("-sample is %v: at least 100ms", o.SampleEvery)},
		{exists, fmt.Sprintf("-db %s: must not exist: it is made and removed", o.db)},
	} {
		if c.wrong {
			errs = append(errs, errors.New(c.what))
		}
	}
	return errors.Join(errs...)
}

// Command runs bench soak with args. It returns an error if a guarantee was broken, after the record is printed. The
// end of ctx ends the sending early.
func Command(ctx context.Context, args []string, out, usage io.Writer) error {
	o, err := parse(args, usage)
	if err != nil {
		return err
	}
	o.Address = o.dsn
	if engines[o.Engine].file {
		if o.Address = o.db; o.db == "" {
			dir, err := os.MkdirTemp("", "chanq-soak-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			o.Address = filepath.Join(dir, "soak.db")
		} else {
			defer func() {
				for _, file := range embedded.Files(o.db) {
					_ = os.Remove(file) // might not exist
				}
			}()
		}
	}
	fmt.Fprintf(out, "soak: engine %s, %v, %d messages/s, %d workers, kills every %v, locks every %v, freezes every %v, faults %g, guilty %g, bodies up to %d B, seed %d; %s/%s, %d CPUs, %s\n",
		o.Engine, o.For, o.Rate, o.Workers, o.KillEvery, o.LockEvery, o.FreezeEvery, o.Faults, o.Guilty, o.Body, o.Seed, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	w, err := o.run(ctx, out)
	if err != nil {
		return err
	}
	defer w.end()
	return report(out, w)
}
