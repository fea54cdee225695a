package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

// bench runs measurements, each phase in a separate process on a new store, so that no system is
// affected by leftovers of another in memory or on disk.
type bench struct {
	options  options
	messages io.Writer
	programs map[string]string // by system: the program that measures it
	dir      string            // programs and stores
	server   *server           // nil without PostgreSQL
	about    string            // the machine and the server
}

func newBench(ctx context.Context, o options, messages io.Writer) (b *bench, err error) {
	b = &bench{options: o, messages: messages, programs: map[string]string{}}
	if b.dir, err = os.MkdirTemp(o.dir, "chanq-peers-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	b.about = measure.Here().Machine()
	if o.dsn != "" {
		if b.server, err = connect(ctx, o.dsn); err != nil {
			return b, err
		}
		b.about += "; " + b.server.about
		if b.server.counts != nil {
			fmt.Fprintf(messages, "peers: statements on PostgreSQL are not counted: %v\n", b.server.counts)
		}
		if !b.server.durable {
			fmt.Fprintf(messages, "peers: NOT DURABLE: %s\n", b.server.about)
		}
	}
	return b, b.build(ctx)
}

// build finds or builds the program of each system.
func (b *bench) build(ctx context.Context) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	for _, s := range b.options.systems {
		if s.program == (program{}) {
			b.programs[s.name()] = own
			continue
		}
		file := filepath.Join(b.dir, s.strategy)
		if runtime.GOOS == "windows" {
			file += ".exe"
		}
		command := exec.CommandContext(ctx, "go", "build", "-o", file, s.program.path)
		command.Dir = s.program.module
		command.Env = append(command.Environ(), "GOWORK=off") // its module is not in the workspace, or in other versions
		if said, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s, in bench/peers/%s: %w\n%s", s.name(), s.program.module, err, said)
		}
		b.programs[s.name()] = file
	}
	return nil
}

func (b *bench) close() error {
	var err error
	if b.server != nil {
		err = b.server.close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// measureAll measures every system in every round, and passes each result to report. The order
// rotates from round to round, so that none always comes first. Round 0, with few messages, warms
// up the machine and is not reported. A system that fails is skipped in that round, and the whole
// run fails at the end.
func (b *bench) measureAll(ctx context.Context, report func(measure.Result)) error {
	var failures []error
	for round := range b.options.rounds + 1 {
		for i := range b.options.systems {
			s := b.options.systems[(i+round)%len(b.options.systems)]
			r, err := b.measure(ctx, s, round)
			if ctx.Err() != nil {
				return errors.Join(append(failures, context.Cause(ctx))...)
			}
			if err != nil {
				err = fmt.Errorf("%s, round %d: %w", s.name(), round, err)
				fmt.Fprintln(b.messages, "peers:", err)
				failures = append(failures, err)
			} else if round > 0 {
				report(r)
			}
		}
	}
	return errors.Join(failures...)
}

// warming is the most messages of round 0.
const warming = 20_000

// measure measures one system: on one store it enqueues and then drains, on another it does both
// concurrently, on a third it sends at a fixed rate.
func (b *bench) measure(ctx context.Context, s system, round int) (measure.Result, error) {
	o := b.options
	if round == 0 {
		o.n = min(o.n, warming)
	}
	n := float64(o.n)
	r := measure.Here()
	r.Engine, r.Strategy, r.N, r.BodyBytes, r.Round = s.engine, s.strategy, o.n, o.body, round
	r.RatePerS, r.LatencyN = float64(o.rate), o.latencyN
	err := b.onStore(ctx, s, func(_ peer.Job, phase phaseRun) error {
		fill, err := phase(peer.Job{Phase: peer.Enqueue, N: o.n})
		if err != nil {
			return err
		}
		drain, err := phase(peer.Job{Phase: peer.Drain, N: o.n})
		if err != nil {
			return err
		}
		r.Version = fill.Version
		r.EnqueuePerS, r.DrainPerS = n/fill.Seconds, n/drain.Seconds
		r.EnqueueCPU, r.DrainCPU = 1e6*fill.CPU/n, 1e6*drain.CPU/n
		r.FirstDeliveryMS, r.Redelivered = 1e3*drain.FirstDelivery, drain.Redelivered
		r.LeftRows, r.LeftBytes = drain.Left.Rows, drain.Left.Bytes
		if s.engine == sqlite || s.engine == postgres && b.server.counts == nil {
			r.EnqueueStatements, r.DrainStatements = fill.Statements/n, drain.Statements/n
			r.StatementsPerMessage = r.EnqueueStatements + r.DrainStatements
			r.EnqueueWAL, r.DrainWAL = float64(fill.WAL)/n, float64(drain.WAL)/n
		}
		return nil
	})
	if err != nil || o.drainOnly {
		return r, err
	}
	err = b.onStore(ctx, s, func(_ peer.Job, phase phaseRun) error {
		both, err := phase(peer.Job{Phase: peer.Pipeline, N: o.n})
		r.PipelinePerS = n / both.Seconds
		return err
	})
	if err != nil || round == 0 {
		return r, err
	}
	return r, b.onStore(ctx, s, func(_ peer.Job, phase phaseRun) error {
		steady, err := phase(peer.Job{Phase: peer.Latency, N: o.warmUp + o.latencyN, Warm: o.warmUp, Rate: float64(o.rate)})
		r.P50, r.P99, r.P999, r.Max, r.Saturated = steady.P50, steady.P99, steady.P999, steady.Max, steady.Saturated
		return err
	})
}

// phaseRun runs a phase on a store.
type phaseRun func(peer.Job) (peer.Outcome, error)

// onStore passes f an empty store, which is removed afterwards: a job with its
// address, and a function that runs a phase on it.
func (b *bench) onStore(ctx context.Context, s system, f func(peer.Job, phaseRun) error) (err error) {
	common := peer.Job{Engine: s.engine, Strategy: s.strategy, Body: b.options.body}
	prepare, count := func() error { return nil }, func(*peer.Outcome) error { return nil }
	if s.engine == postgres {
		d, err := b.server.create(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.drop(context.WithoutCancel(ctx))) }()
		common.DSN = d.dsn
		prepare = func() error { return d.prepare(ctx) }
		count = func(o *peer.Outcome) error { return d.count(ctx, o) }
	} else {
		if common.Dir, err = os.MkdirTemp(b.dir, "store-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(common.Dir)) }()
	}
	phase := func(job peer.Job) (peer.Outcome, error) {
		job.Engine, job.Strategy, job.Body, job.DSN, job.Dir = common.Engine, common.Strategy, common.Body, common.DSN, common.Dir
		outcome, err := b.child(ctx, s, job)
		if err != nil {
			err = fmt.Errorf("%s: %w", job.Phase, err)
		}
		return outcome, err
	}
	if _, err := phase(peer.Job{Phase: peer.Setup}); err != nil {
		return err
	}
	return f(common, func(job peer.Job) (peer.Outcome, error) {
		if err := prepare(); err != nil {
			return peer.Outcome{}, err
		}
		outcome, err := phase(job)
		if err == nil {
			err = count(&outcome)
		}
		return outcome, err
	})
}

// child runs a job in a process.
func (b *bench) child(ctx context.Context, s system, job peer.Job) (o peer.Outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.options.patience, fmt.Errorf("took longer than -patience %v", b.options.patience))
	defer cancel()
	in, err := json.Marshal(job)
	if err != nil {
		return o, err
	}
	command := exec.CommandContext(ctx, b.programs[s.name()])
	command.Args = append(command.Args, s.arguments()...)
	var out, said bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(in), &out, &said
	command.WaitDelay = 10 * time.Second
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return o, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	if said.Len() > 0 {
		fmt.Fprintf(b.messages, "peers: %s, %s: %s", s.name(), job.Phase, said.Bytes())
	}
	return o, json.Unmarshal(out.Bytes(), &o)
}
