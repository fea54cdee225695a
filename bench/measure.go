package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
)

// measureAll measures the throughput of every strategy in every round, and gives
// each result to report. The order rotates from round to round, so that none
// always comes first, and round 0 is not reported.
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
	r := newResult(o, name)
	r.N, r.Batch = len(bodies), findStrategy(name).batch(o)
	if name == "chanq" || name == "chanq-pipe" {
		r.Send = o.send
	}
	err := onStore(ctx, o, name, func(s *store, way strategy) error {
		r.on(ctx, s)
		fill, err := timed(ctx, s, name+" enqueue", func(ctx context.Context) error { return way.enqueue(ctx, bodies) })
		if err != nil {
			return err
		}
		drain, err := timed(ctx, s, name+" drain", func(ctx context.Context) error { return way.drain(ctx, len(bodies)) })
		r.EnqueuePerS, r.DrainPerS = n/fill.seconds, n/drain.seconds
		r.EnqueueAllocs, r.DrainAllocs = fill.allocs/n, drain.allocs/n
		r.EnqueueCPU, r.DrainCPU = 1e6*fill.cpu/n, 1e6*drain.cpu/n
		r.AllocsPerMessage = r.EnqueueAllocs + r.DrainAllocs
		r.StatementsPerMessage = (fill.statements + drain.statements) / n
		r.EnqueueStatement = 1e6 * s.spent.enqueue.Seconds() / n
		r.ClaimStatement, r.AckStatement = 1e6*s.spent.claim.Seconds()/n, 1e6*s.spent.ack.Seconds()/n
		return err
	})
	if err != nil {
		return r, err
	}
	err = onStore(ctx, o, name, func(s *store, way strategy) error {
		both, err := timed(ctx, s, name+" pipeline", func(ctx context.Context) error { return way.pipeline(ctx, bodies) })
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

// cost is what a phase took in all.
type cost struct{ seconds, cpu, statements, allocs float64 }

// timed runs f under the label phase.
func timed(ctx context.Context, s *store, phase string, f func(context.Context) error) (c cost, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	statements := s.counter.statements.Load()
	pprof.Do(ctx, pprof.Labels("phase", phase), func(ctx context.Context) {
		runtime.ReadMemStats(&before)
		watch := startWatch()
		err = f(ctx)
		c.seconds, c.cpu = watch.read()
		runtime.ReadMemStats(&after)
	})
	c.statements = float64(s.counter.statements.Load() - statements)
	c.allocs = float64(after.Mallocs - before.Mallocs)
	return c, err
}
