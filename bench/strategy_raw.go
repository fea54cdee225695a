package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// bareLoop is a careful program without chanq: the same statements, batch rows each, one after
// another on one prepared connection, without channels, leases, group commit or deadlines. An
// enqueue uses as many connections as make it faster, and therefore loses the order. With a batch
// of one it is the queue of the articles that inspired chanq: insert one row, update the top row
// and return it, delete it.
type bareLoop struct {
	store   *store
	batch   int
	senders int // connections of an enqueue
}

// rawConnections is the number of connections with the highest store rate. With one connection a
// server is idle while the client packs and waits, and a third gains nothing (docs/internals/decisions.md). A
// database with one writer has no use for a second connection.
func (s *store) rawConnections() int {
	if s.dialect.Traits().OneWriter {
		return 1
	}
	return 2
}

const leaseFor = 30 * time.Second // as chanq's default

func newBareLoop(_ context.Context, o options, s *store) (strategy, error) {
	return bareLoop{s, o.batch, s.rawConnections()}, nil
}

func newSingle(_ context.Context, _ options, s *store) (strategy, error) {
	return bareLoop{s, 1, 1}, nil
}

func (l bareLoop) enqueue(ctx context.Context, bodies [][]byte) error {
	batches := make(chan [][]byte, len(bodies)/l.batch+1)
	for some := range slices.Chunk(bodies, l.batch) {
		batches <- some
	}
	close(batches)
	group, ctx := errgroup.WithContext(ctx)
	for range l.senders {
		group.Go(func() error {
			return l.store.session(ctx, func(s *bareSession) error {
				for some := range batches {
					if err := s.enqueue(some); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return group.Wait()
}

func (l bareLoop) drain(ctx context.Context, n int) error {
	return l.store.session(ctx, func(s *bareSession) error { return takeAll(n, l.batch, s.claimAndAck) })
}

func (l bareLoop) pipeline(ctx context.Context, bodies [][]byte) error {
	return l.store.session(ctx, func(s *bareSession) error { return inBatches(bodies, l.batch, s.enqueue, s.claimAndAck) })
}

// inBatches stores the bodies, and takes each batch again unless take is nil.
func inBatches(bodies [][]byte, batch int, store func([][]byte) error, take func(n int) (int, error)) error {
	for some := range slices.Chunk(bodies, batch) {
		if err := store(some); err != nil {
			return err
		}
		if take == nil {
			continue
		}
		got, err := take(len(some))
		if err != nil {
			return err
		}
		if got != len(some) {
			return fmt.Errorf("took %d of %d messages", got, len(some))
		}
	}
	return nil
}

// takeAll takes n messages, up to batch at once.
func takeAll(n, batch int, take func(n int) (int, error)) error {
	for n > 0 {
		got, err := take(batch)
		if err != nil {
			return err
		}
		if got == 0 {
			return fmt.Errorf("nothing is left with %d messages to come", n)
		}
		n -= got
	}
	return nil
}
