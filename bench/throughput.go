package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"

	"github.com/chanq/chanq/bench/internal/measure"
)

// measureThroughput measures every strategy in every round, and passes each result to report. The
// order rotates from round to round, so that none always comes first. Round 0 is short and not reported.
func measureThroughput(ctx context.Context, o options, report func(measure.Result)) error {
	bodies := makeBodies(o.n, o.body)
	for round := range o.rounds + 1 {
		for i := range o.strategies {
			name := o.strategies[(i+round)%len(o.strategies)]
			n := o.messages(name)
			if round == 0 {
				n = (n + 9) / 10
			}
			r, err := measureStrategy(ctx, o, name, bodies[:n])
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", name, round, err)
			}
			if round > 0 {
				r.Round = round
				report(r)
			}
		}
	}
	return nil
}

// measureStrategy measures one strategy: on one empty queue it fills and then drains, on another it
// does both concurrently.
func measureStrategy(ctx context.Context, o options, name string, bodies [][]byte) (measure.Result, error) {
	r, err := measureLife(ctx, o, name, bodies)
	if err != nil {
		return r, err
	}
	err = onStore(ctx, o, name, func(s *store, way strategy) error {
		both, err := timed(ctx, s, name+" pipeline", func(ctx context.Context) error { return way.pipeline(ctx, bodies) })
		if err == nil {
			err = s.received.check(bodies)
		}
		n := float64(len(bodies))
		r.PipelinePerS, r.PipelineCPU, r.PipelineServerCPU = n/both.Seconds, 1e6*both.CPU/n, 1e6*both.ServerCPU/n
		return err
	})
	return r, err
}

// measureLife fills an empty queue and then drains it.
func measureLife(ctx context.Context, o options, name string, bodies [][]byte) (measure.Result, error) {
	n := float64(len(bodies))
	r := newResult(o, name)
	r.N, r.Batch = len(bodies), findStrategy(name).batch(o)
	if name == "chanq" || name == "chanq-pipe" {
		r.Send = o.send
	}
	err := onStore(ctx, o, name, func(s *store, way strategy) error {
		r.Server = s.about(ctx)
		fill, err := timed(ctx, s, name+" enqueue", func(ctx context.Context) error { return way.enqueue(ctx, bodies) })
		if err != nil {
			return err
		}
		drain, err := timed(ctx, s, name+" drain", func(ctx context.Context) error { return way.drain(ctx, len(bodies)) })
		if err == nil {
			err = s.received.check(bodies)
		}
		r.EnqueuePerS, r.DrainPerS = n/fill.Seconds, n/drain.Seconds
		r.EnqueueAllocs, r.DrainAllocs = fill.Allocs/n, drain.Allocs/n
		r.EnqueueCPU, r.DrainCPU = 1e6*fill.CPU/n, 1e6*drain.CPU/n
		r.EnqueueServerCPU, r.DrainServerCPU = 1e6*fill.ServerCPU/n, 1e6*drain.ServerCPU/n
		r.AllocsPerMessage = r.EnqueueAllocs + r.DrainAllocs
		r.StatementsPerMessage = (fill.Statements + drain.Statements) / n
		s.spent.of(&r)
		return err
	})
	return r, err
}

// onStore runs f on an empty queue, which is removed afterwards.
func onStore(ctx context.Context, o options, name string, f func(*store, strategy) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := openQueue(ctx, o)
	if err != nil {
		return err
	}
	way, err := findStrategy(name).make(ctx, o, s)
	if err == nil {
		err = f(s, way)
	}
	return errors.Join(err, s.remove())
}

// timed runs f with the profiler label phase.
func timed(ctx context.Context, s *store, phase string, f func(context.Context) error) (cost measure.Cost, err error) {
	var server serverProcesses
	if s.engine.name == postgresEngine.name {
		server = findServer(ctx, s)
	}
	before := server.cpuTime()
	pprof.Do(ctx, pprof.Labels("phase", phase), func(ctx context.Context) {
		cost, err = measure.Of(s.counter.Statements, func() error { return f(ctx) })
	})
	cost.ServerCPU = (server.cpuTime() - before).Seconds()
	return cost, err
}
