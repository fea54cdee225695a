// Chaos runs a queue under load while its processes are killed, stopped and replaced, its server crashes, connections
// break and freeze, rows are locked and transactions stay open. It checks the events of every process against the
// guarantees: no message is lost, none is delivered after its end was confirmed, no two processes hold one, no lease
// is lost unless it was blocked itself, and the messages of each key are delivered in their order.
//
//	go run ./prove/chaos -storm soak -at postgres="host=localhost dbname=test" -for 10m
//	go run ./prove/chaos -storm keys -kills 100
//
// The process that the user starts starts workers, kills and replaces them, reads the events from their standard
// outputs, samples the database, and judges the events at the end (package record). A worker both sends and receives;
// its events are in the pipe before it acts on them, so that a kill loses no event. The tests run the same storms for
// a short time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

// parts are the functions of this program's processes.
var parts = map[string]child.Part{workerPart: child.Does(work)}

func main() {
	child.Main(parts)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// parse returns a storm, changed by flags. Its places are empty if the user names none.
func parse(args []string, usage io.Writer) (s storm, err error) {
	s, _ = stormOf("soak")
	for i, arg := range args { // its values are the defaults of the other flags
		name, is := strings.CutPrefix(strings.TrimLeft(arg, "-"), "storm=")
		if !is && strings.TrimLeft(arg, "-") == "storm" && i+1 < len(args) {
			name, is = args[i+1], true
		}
		if is {
			if s, err = stormOf(name); err != nil {
				return s, err
			}
		}
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.String("storm", s.Name, "`name`: soak, kills, guilty, keys or handovers, which have the defaults of the other flags")
	flags.Func("at", "`engine=address` of the database, or of each shard of a queue: "+engineNames()+" (default: a temporary file for sqlite)", func(text string) error {
		engine, address, _ := strings.Cut(text, "=")
		s.At = append(s.At, testdb.Place{Engine: engine, Address: address})
		return nil
	})
	flags.DurationVar(&s.For, "for", s.For, "how long to send, without -kills")
	flags.IntVar(&s.Kills, "kills", s.Kills, "the number of kills after which sending ends")
	flags.IntVar(&s.Rate, "rate", s.Rate, "messages a second, of all workers together")
	flags.IntVar(&s.Workers, "workers", s.Workers, "processes")
	flags.IntVar(&s.Spared, "spared", s.Spared, "how many of them are never killed, stopped or replaced")
	flags.DurationVar(&s.KillEvery, "kill-every", s.KillEvery, "mean time between two kills; 0 for none")
	flags.DurationVar(&s.LeaveEvery, "leave-every", s.LeaveEvery, "time after which a worker ends in order, and another replaces it; 0 for none")
	flags.DurationVar(&s.StopEvery, "stop-every", s.StopEvery, "time after which a worker is stopped by a signal, for two leases; 0 for none")
	flags.DurationVar(&s.LockEvery, "lock-every", s.LockEvery, "mean time between two locks that another session takes: of a leased row, or of all consumers or slots, for up to two leases (SQLite: of the database, for up to 500ms); 0 for none")
	flags.DurationVar(&s.HoldEvery, "hold-every", s.HoldEvery, "time after which transactions are opened that stay open for three quarters of it; 0 for none")
	flags.DurationVar(&s.FreezeEvery, "freeze-every", s.FreezeEvery, "mean time between two connections that are frozen, for up to 10s (SQLite: 500ms); 0 for none. A server is reached through a proxy then")
	flags.Float64Var(&s.Faults, "faults", s.Faults, "share of the operations on the database that fail: before or after they are applied, with a known or an unknown outcome, or only when their time is over")
	flags.Float64Var(&s.Guilty, "guilty", s.Guilty, "share of the messages that fail, or make a statement or their process fail (sqlite, postgres)")
	flags.BoolVar(&s.Holds, "holds", s.Holds, "dead messages of an ordered queue keep their keys closed, and are redriven")
	flags.DurationVar(&s.LeaseFor, "lease", s.LeaseFor, "how long a lease lasts")
	flags.IntVar(&s.Body, "body", s.Body, "most random bytes of a body")
	flags.DurationVar(&s.SampleEvery, "sample", 0, "time between two samples (default: a twentieth of -for; none with -kills)")
	flags.Uint64Var(&s.Seed, "seed", s.Seed, "of the kills, the load and the faults")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if s.SampleEvery == 0 && s.Kills == 0 {
		s.SampleEvery = max(s.For/20, time.Second)
	}
	return s, s.check()
}

// command runs a storm with flags. It returns an error if a guarantee was broken, after the record is printed. The
// end of ctx ends the sending early.
func command(ctx context.Context, args []string, out, usage io.Writer) error {
	s, err := parse(args, usage)
	if err != nil {
		return err
	}
	if s.At == nil {
		dir, err := os.MkdirTemp("", "chanq-chaos-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.At = []testdb.Place{{Engine: "sqlite", Address: filepath.Join(dir, "soak.db")}}
	}
	settings := s
	settings.At = nil // an address may have a password
	fmt.Fprintf(out, "%+v\non %s, %s/%s, %d CPUs, %s\n",
		settings, s.At[0].Engine, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	_, _, err = s.blow(ctx, out)
	return err
}
