package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// The shape of messages and statements: each size is a small throughput run of
// chanq beside the bare loop.

// beginBodies measures bodies of a size, at most 64 MiB of them at once.
func beginBodies(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, size int) ([]measure.Result, error) {
		o := o
		o.body = size
		return measureShape(ctx, o, max(min(o.samples, (64<<20)/max(size, 1)), 1))
	}}, nil
}

// beginBatches measures statements of a count of rows; the smallest, which cost a
// commit each, with fewer messages.
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
		r := newResult(o, name)
		r.N, r.Batch = n, o.batch
		err := onStore(ctx, o, name, func(s *store, way strategy) error {
			r.Server = s.about(ctx)
			fill, err := timed(ctx, s, name+" enqueue", func(ctx context.Context) error { return way.enqueue(ctx, bodies) })
			if err != nil {
				return err
			}
			drain, err := timed(ctx, s, name+" drain", func(ctx context.Context) error { return way.drain(ctx, n) })
			per := 1e6 / float64(n)
			r.EnqueuePerS, r.DrainPerS = float64(n)/fill.Seconds, float64(n)/drain.Seconds
			r.WallPerMsg, r.CPUPerMsg = per*(fill.Seconds+drain.Seconds), per*(fill.CPU+drain.CPU)
			r.StatementsPerMessage = (fill.Statements + drain.Statements) / float64(n)
			return err
		})
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// senders is how many goroutines wait in Send while Linger is measured.
const senders = 64

// beginLingers measures what Send costs when many goroutines share statements,
// and how long one waits.
func beginLingers(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, ms int) ([]measure.Result, error) {
		r := newResult(o, "chanq")
		each := max(o.samples/senders, 1)
		r.N, r.Batch = each*senders, o.batch
		err := onStore(ctx, o, "chanq", func(s *store, _ strategy) error {
			r.Server = s.about(ctx)
			queue, err := s.open(ctx)
			if err != nil {
				return err
			}
			producer, err := queue.Producer(chanq.ProducerConfig{BatchRows: o.batch, Linger: time.Duration(ms) * time.Millisecond})
			if err != nil {
				return err
			}
			var waits []time.Duration
			c, err := timed(ctx, s, "linger", func(ctx context.Context) (err error) {
				waits, err = sendByMany(ctx, producer, each, o.body)
				return err
			})
			n := float64(r.N)
			r.EnqueuePerS, r.WallPerMsg, r.CPUPerMsg = n/c.Seconds, 1e6*c.Seconds/n, 1e6*c.CPU/n
			r.StatementsPerMessage = c.Statements / n
			slices.Sort(waits)
			r.CommitP50 = measure.Quantile(waits, 0.5)
			return errors.Join(err, producer.Close(context.WithoutCancel(ctx)))
		})
		return []measure.Result{r}, err
	}}, nil
}

// sendByMany returns how long each Send took.
func sendByMany(ctx context.Context, producer *chanq.Producer[[]byte], each, body int) ([]time.Duration, error) {
	waits := make([]time.Duration, senders*each)
	failed := make([]error, senders)
	content := make([]byte, body)
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			for j := range each {
				start := time.Now()
				if _, err := producer.Send(ctx, chanq.Message[[]byte]{Body: content}); err != nil {
					failed[i] = err
					return
				}
				waits[i*each+j] = time.Since(start)
			}
		})
	}
	group.Wait()
	return waits, errors.Join(failed...)
}
