package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// bareCrew splits the bare loop over three connections, as many as chanq uses at once: one
// enqueues, one claims, and one acks the claimed messages in parallel. It is the fastest loop over
// these statements that we know.
type bareCrew struct{ bareLoop }

func newBareCrew(_ context.Context, o options, s *store) (strategy, error) {
	return bareCrew{bareLoop{s, o.batch, s.rawConnections()}}, nil
}

func (c bareCrew) drain(ctx context.Context, n int) error {
	return c.claimAndAck(ctx, n, nil, nil)
}

func (c bareCrew) pipeline(ctx context.Context, bodies [][]byte) error {
	send := func(ctx context.Context, stored func()) error {
		return c.store.session(ctx, func(s *bareSession) error {
			for batch := range slices.Chunk(bodies, c.batch) {
				if err := s.enqueue(batch); err != nil {
					return err
				}
				stored()
			}
			return nil
		})
	}
	return together(ctx, send, func(ctx context.Context, more func(context.Context) error) error {
		return c.claimAndAck(ctx, len(bodies), more, nil)
	})
}

// claimAndAck takes n messages (0: until ctx ends), and passes each to work, if that is not nil,
// before its ack. When it finds none it calls more to wait. If more is nil, the messages must
// already be stored.
func (c bareCrew) claimAndAck(ctx context.Context, n int, more func(context.Context) error, work func(*bareMessage) error) error {
	claimed := make(chan bareBatch, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(claimed)
		return c.store.session(ctx, func(s *bareSession) error { return c.claimAll(ctx, s, n, more, claimed) })
	})
	group.Go(func() error {
		return c.store.session(ctx, func(s *bareSession) error {
			for batch := range claimed {
				if err := s.handle(batch, work); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return group.Wait()
}

func (c bareCrew) claimAll(ctx context.Context, s *bareSession, n int, more func(context.Context) error, claimed chan<- bareBatch) error {
	for left := n; left > 0 || n == 0; {
		batch, err := s.claimBatch(c.batch)
		if err != nil {
			return err
		}
		left -= len(batch.items)
		switch {
		case len(batch.items) > 0:
			select {
			case claimed <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		case more == nil:
			return fmt.Errorf("the queue is empty with %d messages to come", left)
		default:
			if err := more(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// handle works on each message and acks all of them.
func (s *bareSession) handle(batch bareBatch, work func(*bareMessage) error) error {
	for i := range batch.messages {
		if work == nil {
			break
		}
		if err := work(&batch.messages[i]); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(batch.items, s.ackItems) {
		if err := s.ack(some); err != nil {
			return err
		}
	}
	return nil
}
