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

// The phases of a measurement. Enqueue and then Drain share a store. Pipeline, Latency and
// Sustained have their own, and so has Sleep with its concurrent Naps. Setup comes first on every
// store.
const (
	Setup     = "setup"
	Enqueue   = "enqueue"
	Drain     = "drain"
	Pipeline  = "pipeline"
	Latency   = "latency"
	Sustained = "sustained" // prints its Progress until its input ends; no Outcome
	Sleep     = "sleep"     // also without Outcome
	Nap       = "nap"
)

// Job is the measurement of one process. It arrives as JSON on standard input, so that a password
// in the DSN is not among its arguments.
type Job struct {
	Engine, Strategy, Phase string
	DSN                     string // of the PostgreSQL database, which contains nothing else
	Dir                     string // for the files of other engines, which contains nothing else
	N, Body                 int
	Rate                    float64 // of the latency phase, messages per second; of Sustained, 0: full speed
	Warm                    int     // the latency phase's first messages, which are not measured
	Backlog                 int     // of Sustained without a rate: messages sent and not yet received

	// For a Nap: the gaps between messages (none: nothing is sent), and the duration.
	Gap measure.Gap
	For time.Duration
}

// Outcome is the result, as JSON on standard output.
type Outcome struct {
	measure.Cost
	FirstDelivery float64 // seconds from the beginning of the phase
	WAL           int64   // bytes that PostgreSQL wrote to its log; set by the program that started the job
	Redelivered   int64
	Left          Left
	Version       string // of the system's module
	// Of the latency phase, in microseconds.
	P50, P99, P999, Max float64
	Saturated           bool // the rate was not reached
	// For a Nap, whose P50 is the time of a send.
	Sent int
}

// System creates a Queue of the module that implements it.
type System struct {
	Module string // its path, for the version; for chanq the version of this program
	Open   func(context.Context, Job) (Queue, error)
}

// Main runs the job of its standard input on one of the systems of this program, by
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

// version returns the version that is linked into the binary.
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
