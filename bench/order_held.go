package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// otherKeys is the number of keys behind the held one, with one message each.
const otherKeys = 2000

// beginHeld creates a queue for each size, with that many messages of one key and then those of other keys. A measurement starts a consumer,
// which knows nothing of them, and holds the first message of each key until all have arrived.
func beginHeld(ctx context.Context, o options, _ string, sizes []int) (growthRun, error) {
	stores := map[int]*store{}
	run := growthRun{end: func() error {
		var errs []error
		for _, s := range stores {
			errs = append(errs, s.remove())
		}
		return errors.Join(errs...)
	}}
	for _, size := range sizes {
		s, err := openQueue(ctx, o.ordered(o.keys))
		if err != nil {
			return run, err
		}
		stores[size] = s
		if err := errors.Join(fillHeld(ctx, s, o, size), s.tidy(ctx)); err != nil {
			return run, fmt.Errorf("%d messages behind a held one: %w", size, err)
		}
	}
	run.measure = func(ctx context.Context, size int) ([]measure.Result, error) {
		r, err := measureHeld(ctx, stores[size], o)
		return []measure.Result{r}, err
	}
	return run, nil
}

func fillHeld(ctx context.Context, s *store, o options, size int) error {
	producer, err := s.producer(ctx, o.batch)
	if err != nil {
		return err
	}
	body := make([]byte, o.body)
	for i := range size + otherKeys {
		m := chanq.Message[[]byte]{Key: heldKey, Body: body}
		if i >= size {
			m.Key = fmt.Sprint("other ", i-size)
		}
		select {
		case producer.C() <- m:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), producer.Close(context.WithoutCancel(ctx)))
		}
	}
	return producer.Close(ctx)
}

const heldKey = "held"

// measureHeld starts a consumer, and returns when the first message of another key arrived, in FirstDeliveryMS, and the time until all have
// arrived per message. Afterwards it releases them.
func measureHeld(ctx context.Context, s *store, o options) (measure.Result, error) {
	r := newResult(o.ordered(o.keys), "chanq")
	r.N, r.Batch, r.Server = otherKeys, o.batch, s.about(ctx)
	queue, err := s.openTimed(ctx)
	if err != nil {
		return r, err
	}
	s.spent.forget()
	var leases []*chanq.Lease[[]byte]
	var consumer *chanq.Consumer[[]byte]
	c, err := timed(ctx, s, "held", func(ctx context.Context) (err error) {
		began := time.Now()
		if consumer, err = queue.Consume(context.WithoutCancel(ctx), chanq.ConsumerConfig{Prefetch: otherKeys + 1, LeaseFor: leaseFor}); err != nil {
			return err
		}
		for others := 0; others < otherKeys; {
			select {
			case lease, ok := <-consumer.C():
				if !ok {
					return fmt.Errorf("the consumer ended: %w", consumer.Err())
				}
				if leases = append(leases, lease); lease.Key == heldKey {
					continue
				}
				if others++; others == 1 {
					r.FirstDeliveryMS = 1e3 * time.Since(began).Seconds()
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	r.WallPerMsg, r.CPUPerMsg, r.StatementsPerMessage = 1e6*c.Seconds/otherKeys, 1e6*c.CPU/otherKeys, c.Statements/otherKeys
	s.spent.of(&r)
	if consumer != nil {
		consumer.Stop()
		for _, lease := range leases {
			err = errors.Join(err, lease.Release())
		}
		err = errors.Join(err, consumer.Shutdown(context.WithoutCancel(ctx)), consumer.Err())
	}
	return r, err
}
