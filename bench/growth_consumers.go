package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// beginConsumers drains one queue with the given number of consumers in this process, each with its
// own connections and one reading goroutine.
func beginConsumers(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, consumers int) ([]measure.Result, error) {
		r := newResult(o, "chanq")
		r.N, r.Batch = o.samples, o.batch
		err := onFilled(ctx, o, &r, func(s *store) error {
			c, err := timed(ctx, s, fmt.Sprintf("%d consumers", consumers), func(ctx context.Context) error {
				return drainBy(ctx, s, o, consumers)
			})
			n := float64(r.N)
			r.DrainPerS, r.WallPerMsg, r.CPUPerMsg = n/c.Seconds, 1e6*c.Seconds/n, 1e6*c.CPU/n
			r.StatementsPerMessage = c.Statements / n
			return err
		})
		return []measure.Result{r}, err
	}}, nil
}

// onFilled runs f on a queue of r.N ready messages.
func onFilled(ctx context.Context, o options, r *measure.Result, f func(*store) error) error {
	s, err := openQueue(ctx, o)
	if err != nil {
		return err
	}
	r.Server = s.about(ctx)
	if err = s.fill(ctx, sqlbatch.Ready, r.N, o.body); err == nil {
		err = f(s)
	}
	return errors.Join(err, s.remove())
}

func drainBy(ctx context.Context, s *store, o options, consumers int) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var left atomic.Int64
	left.Store(int64(o.samples))
	var group sync.WaitGroup
	failed := make([]error, consumers)
	for i := range consumers {
		group.Go(func() {
			consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{Prefetch: 2 * o.batch, LeaseFor: leaseFor})
			if err != nil {
				failed[i] = err
				stop()
				return
			}
			for lease := range consumer.C() {
				if err = lease.Ack(); err != nil || left.Add(-1) == 0 {
					stop()
				}
			}
			failed[i] = errors.Join(err, consumer.Shutdown(context.WithoutCancel(ctx)), consumer.Err())
		})
	}
	group.Wait()
	if n := left.Load(); n != 0 {
		failed = append(failed, fmt.Errorf("%d messages were not read", n))
	}
	return errors.Join(failed...)
}

// beginProcesses drains one queue with the given number of processes of one consumer each. The time
// runs from the moment when all are connected until the table is empty.
func beginProcesses(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, processes int) ([]measure.Result, error) {
		r := newResult(o, "chanq")
		r.N, r.Batch, r.Processes = o.samples, o.batch, processes
		err := onFilled(ctx, o, &r, func(s *store) error {
			readers, err := startReaders(ctx, readTask{s.place, 1, o.batch}, processes)
			if err != nil {
				return err
			}
			start := time.Now()
			readers.begin()
			err = s.awaitEmpty(ctx, readers.failed)
			seconds := time.Since(start).Seconds()
			r.DrainPerS, r.WallPerMsg = float64(r.N)/seconds, 1e6*seconds/float64(r.N)
			return errors.Join(err, readers.end())
		})
		return []measure.Result{r}, err
	}}, nil
}

// awaitEmpty checks every few milliseconds whether a message is left.
func (s *store) awaitEmpty(ctx context.Context, failed <-chan error) error {
	const every = 5 * time.Millisecond
	text := "SELECT CASE WHEN EXISTS (SELECT 1 FROM " + s.liveTable() + ") THEN 1 ELSE 0 END"
	look := time.NewTicker(every)
	defer look.Stop()
	for {
		var left int
		if err := s.db.QueryRowContext(ctx, text).Scan(&left); err != nil || left == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-failed:
			return errors.New("a process ended early")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
