package main

import (
	"context"
	"errors"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// beginTables creates a table for each size, filled with that many messages in the axis's state,
// which stay until the end. A measurement repeatedly enqueues a batch, claims as many messages and
// acks them, so that the table keeps its size. It is a bare loop, because only the statements can
// grow here.
func beginTables(ctx context.Context, o options, axis string, sizes []int) (growthRun, error) {
	tables := map[int]*store{}
	run := growthRun{end: func() error {
		var errs []error
		for _, s := range tables {
			errs = append(errs, s.remove())
		}
		return errors.Join(errs...)
	}}
	for _, size := range sizes {
		s, err := openQueue(ctx, o)
		if err != nil {
			return run, err
		}
		tables[size] = s
		if err := s.fill(ctx, stateOf[axis], size, o.body); err != nil {
			return run, err
		}
	}
	bodies := makeBodies(o.batch, o.body)
	run.measure = func(ctx context.Context, size int) ([]measure.Result, error) {
		s := tables[size]
		r := newResult(o, "raw")
		r.N, r.Batch = max(o.samples/o.batch, 1)*o.batch, o.batch
		r.Server = s.about(ctx)
		err := s.session(ctx, func(session *bareSession) error {
			round := func() error {
				if err := session.enqueue(bodies); err != nil {
					return err
				}
				_, err := session.claimAndAck(o.batch)
				return err
			}
			if err := round(); err != nil { // prepares statements and warms caches
				return err
			}
			session.spent = spent{}
			c, err := measure.Of(s.counter.Statements, func() error {
				for range r.N / o.batch {
					if err := round(); err != nil {
						return err
					}
				}
				return nil
			})
			n := float64(r.N)
			r.WallPerMsg, r.CPUPerMsg = 1e6*c.Seconds/n, 1e6*c.CPU/n
			session.spent.of(&r)
			return err
		})
		return []measure.Result{r}, err
	}
	return run, nil
}

var stateOf = map[string]sqlbatch.State{"backlog": sqlbatch.Ready, "leased": sqlbatch.Leased, "scheduled": sqlbatch.Scheduled}
