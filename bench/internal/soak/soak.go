// Package soak runs a queue under mixed load for a long time, kills processes,
// breaks and freezes connections and locks rows meanwhile, and holds what every
// process saw against what chanq promises: no message is lost, none is delivered
// after its end was confirmed, and no lease is lost but those that were stuck
// themselves (see verdict.losses).
//
// The process that the user starts is the judge: it starts workers (one that
// lives as long as the run, and others that are killed and replaced), reads what
// they tell on their standard outputs, and samples the database. A worker both
// sends and receives; what it tells is in the pipe before it acts on it, so that
// a kill takes nothing back.
package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

// WorkerCommand is the first argument of a process that is a worker.
const WorkerCommand = "soak-worker"

const queueName = "soak"

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

// Run runs the command: bench soak args. It returns an error if a promise was
// broken, after the record is printed. The end of ctx ends the sending early.
func Run(ctx context.Context, args []string, out, usage io.Writer) error {
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
	watch, err := newWatch(o.engine, address)
	if err != nil {
		return err
	}
	defer watch.close()
	if err := watch.create(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "soak: engine %s, %v, %d messages/s, %d workers, kills every %v, locks every %v, freezes every %v, faults %g, bodies up to %d B, seed %d; %s/%s, %d CPUs, %s\n",
		o.engine, o.length, o.rate, o.workers, o.killEvery, o.lockEvery, o.freezeEvery, o.faults, o.body, o.seed, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	crew, err := startCrew(o, address)
	if err != nil {
		return err
	}
	err = o.run(ctx, crew, watch, address, out)
	if err != nil {
		return errors.Join(err, crew.abandon())
	}
	return report(out, crew, watch)
}

// run lets the crew work, drains the queue and lets the crew end.
func (o options) run(ctx context.Context, crew *crew, watch *watch, address string, out io.Writer) error {
	const patience = 5 * time.Minute // for the rest of the queue, nacks of killed workers included
	random := rand.New(rand.NewPCG(o.seed, 1))
	end := time.NewTimer(o.length)
	defer end.Stop()
	sample := time.NewTicker(o.every)
	defer sample.Stop()
	killing := time.NewTimer(next(random, o.killEvery))
	defer killing.Stop()
	locking := time.NewTimer(next(random, o.lockEvery))
	defer locking.Stop()
	freezing := time.NewTimer(next(random, o.freezeEvery))
	defer freezing.Stop()
	disturber, err := newDisturber(watch.engine, address, crew, random)
	if err != nil {
		return err
	}
	defer disturber.end()
	fmt.Fprintln(out, sampleHeader)
	for sending := true; sending; {
		select {
		case <-ctx.Done():
			sending = false
		case <-end.C:
			sending = false
		case err := <-crew.died:
			return err
		case <-sample.C:
			if err := watch.sample(crew, out); err != nil {
				return err
			}
		case <-killing.C:
			if err := crew.killOne(random); err != nil {
				return err
			}
			killing.Reset(next(random, o.killEvery))
		case <-locking.C:
			disturber.lock()
			locking.Reset(next(random, o.lockEvery))
		case <-freezing.C:
			if crew.proxies != nil { // else each worker does it
				disturber.freeze()
			}
			freezing.Reset(next(random, o.freezeEvery))
		case err := <-disturber.failed:
			return err
		}
	}
	disturber.end()
	crew.drain()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for live := 1; live > 0; {
		select {
		case <-bound.Done():
			return fmt.Errorf("%d messages are left in the queue %v after the last one was sent", live, patience)
		case err := <-crew.died:
			return err
		case <-poll.C:
			s, err := watch.queue.Stats(bound)
			if err != nil {
				return err
			}
			live = s.Ready + s.Scheduled + s.Leased
		}
	}
	if err := watch.sample(crew, out); err != nil {
		return err
	}
	return crew.end(bound)
}

// next is when the next disturbance is due: after half to one and a half times the
// mean, or never.
func next(random *rand.Rand, mean time.Duration) time.Duration {
	if mean == 0 {
		return 1000 * time.Hour
	}
	return mean/2 + time.Duration(random.Int64N(int64(mean)))
}

// config is the queue's: a message may be claimed as often as workers die.
func config(e engine) chanq.Config { return chanq.Config{Dialect: e.dialect, MaxAttempts: 10_000} }
