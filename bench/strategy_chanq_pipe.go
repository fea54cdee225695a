package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/chanq/chanq"
)

// piped moves messages from one queue to the next by chanq.Pipe, with one worker and one output for
// each input. Its drain moves the messages in the first queue. Its pipeline also fills that queue.
type piped struct {
	channels
	from, next *chanq.Queue[[]byte]
}

func newPipe(ctx context.Context, o options, s *store) (strategy, error) {
	queue, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	second, err := s.next(ctx)
	if err != nil {
		return nil, err
	}
	next, err := second.open(ctx)
	return piped{channels{single{queue}, o.batch, o.send, 0, s.received}, queue, next}, err
}

func (p piped) drain(ctx context.Context, n int) error {
	consumer, err := p.from.Consume(ctx, chanq.ConsumerConfig{Prefetch: 2 * p.batch, LeaseFor: leaseFor})
	if err != nil {
		return err
	}
	var handled atomic.Int64
	err = chanq.Pipe(consumer, p.next, 1, func(_ context.Context, l *chanq.Lease[[]byte]) ([]chanq.Message[[]byte], error) {
		p.received.add(l.Body)
		if handled.Add(1) == int64(n) {
			consumer.Stop()
		}
		return []chanq.Message[[]byte]{{Body: l.Body}}, nil
	})
	ctx = context.WithoutCancel(ctx)
	err = errors.Join(err, consumer.Shutdown(ctx))
	if acked := consumer.Stats().Acked; err == nil && acked != int64(n) {
		err = fmt.Errorf("moved %d of %d messages", acked, n)
	}
	return err
}

func (p piped) pipeline(ctx context.Context, bodies [][]byte) error {
	sent := make(chan error, 1)
	go func() { sent <- p.enqueue(ctx, bodies) }()
	err := p.drain(ctx, len(bodies))
	return errors.Join(<-sent, err)
}
