package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq/sqlbatch"
)

// bareCrew is the bare loop taken apart for three connections, as many as chanq
// uses at once: one enqueues, one claims, one acks what the other has claimed
// while it claims more.
type bareCrew struct{ bareLoop }

func newBareCrew(_ context.Context, o options, s *store) (strategy, error) {
	return bareCrew{bareLoop{s, o.batch, s.rawConnections()}}, nil
}

func (c bareCrew) drain(ctx context.Context, n int) error {
	return c.claimAndAck(ctx, n, nil)
}

func (c bareCrew) pipeline(ctx context.Context, bodies [][]byte) error {
	n := len(bodies)
	stored := make(chan struct{}, 1) // rings after each batch
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.store.session(ctx, func(s *bareSession) error {
			for batch := range slices.Chunk(bodies, c.batch) {
				if err := s.enqueue(batch); err != nil {
					return err
				}
				select {
				case stored <- struct{}{}:
				default:
				}
			}
			return nil
		})
	})
	group.Go(func() error { return c.claimAndAck(ctx, n, stored) })
	return group.Wait()
}

// claimAndAck takes n messages. When it finds none it waits for stored to ring;
// where that is nil, more must be there.
func (c bareCrew) claimAndAck(ctx context.Context, n int, stored <-chan struct{}) error {
	claimed := make(chan []sqlbatch.Item, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(claimed)
		return c.store.session(ctx, func(s *bareSession) error {
			for n > 0 {
				if err := s.claim(c.batch); err != nil {
					return err
				}
				if n -= len(s.items); len(s.items) > 0 {
					select {
					case claimed <- slices.Clone(s.items):
					case <-ctx.Done():
						return ctx.Err()
					}
					continue
				}
				if stored == nil {
					return fmt.Errorf("the queue is empty with %d messages to come", n)
				}
				select {
				case <-stored:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	group.Go(func() error {
		return c.store.session(ctx, func(s *bareSession) error {
			for items := range claimed {
				for some := range slices.Chunk(items, s.ackItems) {
					if err := s.ack(some); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
	return group.Wait()
}
