package main

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// The shape of messages and statements. Each size is a small throughput run of chanq and the bare
// loop.

// beginBodies measures bodies of a size, at most 64 MiB in all at once.
func beginBodies(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, size int) ([]measure.Result, error) {
		o := o
		o.body = size
		return measureShape(ctx, o, max(min(o.samples, (64<<20)/max(size, 1)), 1))
	}}, nil
}

// beginBatches measures statements with a number of rows. The smallest, which cost a commit each,
// use fewer messages.
func beginBatches(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, size int) ([]measure.Result, error) {
		o := o
		o.batch = size
		return measureShape(ctx, o, min(o.samples, 400*size+400))
	}}, nil
}

func measureShape(ctx context.Context, o options, n int) (results []measure.Result, err error) {
	bodies := makeBodies(n, o.body)
	for _, name := range []string{"raw", "chanq"} {
		r, err := measureLife(ctx, o, name, bodies)
		if err != nil {
			return nil, err
		}
		r.WallPerMsg, r.CPUPerMsg = 1e6/r.EnqueuePerS+1e6/r.DrainPerS, r.EnqueueCPU+r.DrainCPU
		results = append(results, r)
	}
	return results, nil
}

// lingering is how many goroutines wait in Send while Linger is measured.
const lingering = 64

// beginLingers measures the cost of Send when many goroutines share statements, and how long a
// single goroutine waits.
func beginLingers(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, ms int) ([]measure.Result, error) {
		r := newResult(o, "chanq")
		each := max(o.samples/lingering, 1)
		r.N, r.Batch = each*lingering, o.batch
		err := onStore(ctx, o, "chanq", func(s *store, _ strategy) error {
			r.Server = s.about(ctx)
			queue, err := s.open(ctx)
			if err != nil {
				return err
			}
			producer, err := queue.Producer(ctx, chanq.ProducerConfig{BatchRows: o.batch, Linger: time.Duration(ms) * time.Millisecond})
			if err != nil {
				return err
			}
			message := chanq.Message[[]byte]{Body: make([]byte, o.body)}
			waits, c, err := crew{lingering, 1}.run(ctx, s, "linger", each, func(use func(func() error) error) error {
				return use(func() error { _, err := producer.Send(ctx, message); return err })
			})
			n := float64(r.N)
			r.EnqueuePerS, r.WallPerMsg, r.CPUPerMsg = n/c.Seconds, 1e6*c.Seconds/n, 1e6*c.CPU/n
			r.StatementsPerMessage = c.Statements / n
			r.CommitP50 = measure.Quantile(waits, 0.5)
			return errors.Join(err, producer.Close(context.WithoutCancel(ctx)))
		})
		return []measure.Result{r}, err
	}}, nil
}
