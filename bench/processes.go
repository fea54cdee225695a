package main

import (
	"context"
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/child"
)

// parts are the tasks of this program as another process of a measurement.
var parts = map[string]child.Part{
	"send": part[senderTask](), "read": part[readTask](), "sleep": part[sleepTask](), "crowd": part[crowdTask](),
}

// task is the work of such a process on an existing queue. It ends with ctx.
type task interface {
	where() place
	run(ctx context.Context, s *store, orders <-chan string) error
}

func part[T task]() child.Part {
	return child.Does(func(ctx context.Context, t T, orders <-chan string) error {
		s, err := findEngine(t.where().Engine).connect(t.where())
		if err != nil {
			return err
		}
		return errors.Join(t.run(ctx, s, orders), s.remove())
	})
}

// senderTask sends N messages at a rate. Each contains the time when it was due, so that a delay of
// the sender counts as latency.
type senderTask struct {
	Place          place
	Rate           float64
	N, Body, Batch int
}

func (t senderTask) where() place { return t.Place }

func (t senderTask) run(ctx context.Context, s *store, _ <-chan string) error {
	producer, err := s.producer(ctx, t.Batch)
	if err != nil {
		return err
	}
	err = measure.AtRate(ctx, t.Rate, t.N, stamped(ctx, producer, t.Body, nil))
	return errors.Join(err, producer.Close(context.WithoutCancel(ctx)))
}

// runApart runs the task in a separate process.
func (t senderTask) runApart(ctx context.Context) error {
	p, err := child.Start(ctx, "send", t, nil)
	if err != nil {
		return err
	}
	return p.Wait()
}

func (s *store) producer(ctx context.Context, batch int) (*chanq.Producer[[]byte], error) {
	queue, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return queue.Producer(ctx, chanq.ProducerConfig{BatchRows: batch})
}
