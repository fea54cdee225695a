package main

import (
	"context"
	"fmt"
	"time"
)

// bareLoop is what a careful program without chanq would do: the same
// statements, batch rows each, one after another on one prepared connection,
// with no channel, no lease, no group and no deadline. With a batch of one it
// is the queue of the articles that chanq comes from: insert one; update the
// top one, returning it; delete it.
type bareLoop struct {
	store *store
	batch int
}

const leaseFor = 30 * time.Second // as chanq's default

func newBareLoop(_ context.Context, o options, s *store) (strategy, error) {
	return bareLoop{s, o.batch}, nil
}

func newSingle(_ context.Context, _ options, s *store) (strategy, error) {
	return bareLoop{s, 1}, nil
}

func (l bareLoop) enqueue(ctx context.Context, bodies [][]byte) error {
	return l.store.session(ctx, func(s *bareSession) error {
		for len(bodies) > 0 {
			n := min(l.batch, len(bodies))
			if err := s.enqueue(bodies[:n]); err != nil {
				return err
			}
			bodies = bodies[n:]
		}
		return nil
	})
}

func (l bareLoop) drain(ctx context.Context, n int) error {
	return l.store.session(ctx, func(s *bareSession) error {
		for n > 0 {
			got, err := s.claimAndAck(l.batch)
			if err != nil {
				return err
			}
			if got == 0 {
				return fmt.Errorf("the queue is empty with %d messages to come", n)
			}
			n -= got
		}
		return nil
	})
}

func (l bareLoop) pipeline(ctx context.Context, bodies [][]byte) error {
	return l.store.session(ctx, func(s *bareSession) error {
		for len(bodies) > 0 {
			n := min(l.batch, len(bodies))
			if err := s.enqueue(bodies[:n]); err != nil {
				return err
			}
			got, err := s.claimAndAck(n)
			if err != nil {
				return err
			}
			if got != n {
				return fmt.Errorf("claimed %d of %d messages", got, n)
			}
			bodies = bodies[n:]
		}
		return nil
	})
}
