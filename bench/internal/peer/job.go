package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
)

// The phases of a measurement. Enqueue, then Drain share a store; Pipeline,
// Latency and Sustained have one each, and so have Sleep and the Naps that it goes on
// during. Setup comes first on every store.
const (
	Setup     = "setup"
	Enqueue   = "enqueue"
	Drain     = "drain"
	Pipeline  = "pipeline"
	Latency   = "latency"
	Sustained = "sustained" // prints its Progress until its input ends; no Outcome
	Sleep     = "sleep"     // so does this
	Nap       = "nap"
)

// Job is what one process measures. It comes as JSON on its standard input, so
// that a password in the DSN is not among its arguments.
type Job struct {
	Engine, Strategy, Phase string
	DSN                     string // of the PostgreSQL database, which holds nothing else
	Dir                     string // for the other engines' files, which holds nothing else
	N, Body                 int
	Rate                    float64 // of the latency phase, messages a second; of Sustained, 0: as fast as it goes
	Warm                    int     // the latency phase's first messages, which are not measured
	Backlog                 int     // of Sustained without a rate: sent and not yet received

	// Of a Nap: the gaps between messages, none: nothing is sent, and how long.
	Gap measure.Gap
	For time.Duration
}

// Outcome is the answer, as JSON on the standard output.
type Outcome struct {
	measure.Cost
	FirstDelivery float64 // seconds from the beginning of the phase
	WAL           int64   // bytes that PostgreSQL wrote to its log; filled in by the program that gave the job
	Redelivered   int64
	Left          Left
	Version       string // of the system's module
	// Of the latency phase, in microseconds.
	P50, P99, P999, Max float64
	Saturated           bool // it could not send at the rate
	// Of a Nap, whose P50 is that of sending.
	Sent int
}

// System makes a Queue of the module that implements it.
type System struct {
	Module string // its path, for the version; chanq's is that of this program
	Open   func(context.Context, Job) (Queue, error)
}

// Main runs the job that it is given, on one of the systems of this program by
// engine/strategy, and ends the process.
func Main(systems map[string]System) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, systems, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func serve(ctx context.Context, systems map[string]System, in io.Reader, out io.Writer) error {
	var job Job
	jobs := json.NewDecoder(in)
	if err := jobs.Decode(&job); err != nil {
		return fmt.Errorf("reading the job, which `go run .` in bench/peers gives: %w", err)
	}
	system, ok := systems[job.Engine+"/"+job.Strategy]
	if !ok {
		return fmt.Errorf("unknown system %s/%s", job.Engine, job.Strategy)
	}
	queue, err := system.Open(ctx, job)
	if err != nil {
		return err
	}
	if job.Phase == Sustained || job.Phase == Sleep {
		return errors.Join(serveSustained(ctx, queue, job, version(system.Module), io.MultiReader(jobs.Buffered(), in), out), queue.Close())
	}
	outcome, err := run(ctx, queue, job)
	outcome.Version = version(system.Module)
	if err = errors.Join(err, queue.Close()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(outcome)
}

// serveSustained ends with its input, or as soon as its output is closed.
func serveSustained(ctx context.Context, queue Queue, job Job, version string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	go func() { // ends with the input
		_, _ = io.Copy(io.Discard, in)
		close(stop)
	}()
	lines := json.NewEncoder(out)
	tell := func(p Progress) {
		p.Version, version = version, ""
		if lines.Encode(p) != nil {
			cancel()
		}
	}
	if job.Phase == Sleep {
		return asleep(ctx, queue, stop, tell)
	}
	return sustained(ctx, queue, job, stop, tell)
}

// version is what the binary was linked with.
func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace == nil {
			return dep.Version
		}
	}
	return ""
}
