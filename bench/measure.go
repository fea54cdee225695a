package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// result is one measurement of one strategy. Rates are messages a second;
// statements and allocations are per message, over the whole life of a message
// (enqueue and drain) where no phase is named.
type result struct {
	Engine               string  `json:"engine"`
	Strategy             string  `json:"strategy"`
	N                    int     `json:"n"`
	BodyBytes            int     `json:"body_bytes"`
	Batch                int     `json:"batch"`
	Send                 string  `json:"send,omitempty"`
	Round                int     `json:"round"`
	EnqueuePerS          float64 `json:"enqueue_per_s"`
	DrainPerS            float64 `json:"drain_per_s"`
	PipelinePerS         float64 `json:"pipeline_per_s"`
	StatementsPerMessage float64 `json:"statements_per_message"`
	AllocsPerMessage     float64 `json:"allocs_per_message"`
	EnqueueAllocs        float64 `json:"enqueue_allocs_per_message"`
	DrainAllocs          float64 `json:"drain_allocs_per_message"`
	EnqueueCPU           float64 `json:"enqueue_cpu_us_per_message"` // of the whole process; 0 where unknown
	DrainCPU             float64 `json:"drain_cpu_us_per_message"`
	GOOS                 string  `json:"goos"`
	GOARCH               string  `json:"goarch"`
	GoVersion            string  `json:"go_version"`
	GOMAXPROCS           int     `json:"gomaxprocs"`
}

// measureAll measures every strategy in every round, and gives each result to
// report. The order rotates from round to round, so that none always comes
// first, and round 0 is not reported.
func measureAll(ctx context.Context, o options, report func(result)) error {
	bodies := makeBodies(o.n, o.body)
	for round := range o.rounds + 1 {
		for i := range o.strategies {
			name := o.strategies[(i+round)%len(o.strategies)]
			r, err := measure(ctx, o, name, bodies[:o.messages(name)])
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

// measure measures one strategy: on one empty queue it fills and then drains,
// on another it does both at once.
func measure(ctx context.Context, o options, name string, bodies [][]byte) (result, error) {
	n := float64(len(bodies))
	r := result{
		Engine: o.engine, Strategy: name, N: len(bodies), BodyBytes: o.body, Batch: o.batch,
		GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, GoVersion: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0),
	}
	switch name {
	case "single":
		r.Batch = 1
	case "chanq":
		r.Send = o.send
	}
	err := onStore(ctx, o, name, func(s *store, way strategy) error {
		fill, err := timed(ctx, s, name, "enqueue", func(ctx context.Context) error { return way.enqueue(ctx, bodies) })
		if err != nil {
			return err
		}
		drain, err := timed(ctx, s, name, "drain", func(ctx context.Context) error { return way.drain(ctx, len(bodies)) })
		r.EnqueuePerS, r.DrainPerS = n/fill.seconds, n/drain.seconds
		r.EnqueueAllocs, r.DrainAllocs = fill.allocs/n, drain.allocs/n
		r.EnqueueCPU, r.DrainCPU = 1e6*fill.cpu/n, 1e6*drain.cpu/n
		r.AllocsPerMessage = r.EnqueueAllocs + r.DrainAllocs
		r.StatementsPerMessage = (fill.statements + drain.statements) / n
		return err
	})
	if err != nil {
		return r, err
	}
	err = onStore(ctx, o, name, func(s *store, way strategy) error {
		both, err := timed(ctx, s, name, "pipeline", func(ctx context.Context) error { return way.pipeline(ctx, bodies) })
		r.PipelinePerS = n / both.seconds
		return err
	})
	return r, err
}

// onStore runs f on an empty queue, which is gone afterwards.
func onStore(ctx context.Context, o options, name string, f func(*store, strategy) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := findEngine(o.engine).open(ctx, o)
	if err != nil {
		return err
	}
	way, err := strategies[slices.Index(strategyNames(), name)].make(o, s)
	if err == nil {
		err = f(s, way)
	}
	return errors.Join(err, s.remove())
}

// cost is what a phase took in all.
type cost struct{ seconds, cpu, statements, allocs float64 }

func timed(ctx context.Context, s *store, strategy, phase string, f func(context.Context) error) (c cost, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	statements := s.counter.statements.Load()
	pprof.Do(ctx, pprof.Labels("phase", strategy+" "+phase), func(ctx context.Context) {
		runtime.ReadMemStats(&before)
		cpu, start := cpuTime(), time.Now()
		err = f(ctx)
		c.seconds, c.cpu = time.Since(start).Seconds(), (cpuTime() - cpu).Seconds()
		runtime.ReadMemStats(&after)
	})
	c.statements = float64(s.counter.statements.Load() - statements)
	c.allocs = float64(after.Mallocs - before.Mallocs)
	return c, err
}
