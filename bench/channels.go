package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/chanq/chanq"
)

// channels is chanq as its users meet it: one goroutine sends on Producer.C (or
// calls SendBatch), one reads Consumer.C and calls Ack.
type channels struct {
	queue *chanq.Queue[[]byte]
	batch int
	send  string
}

func newChannels(ctx context.Context, o options, s *store) (strategy, error) {
	queue, err := s.openTimed(ctx)
	return channels{queue, o.batch, o.send}, err
}

func (c channels) enqueue(ctx context.Context, bodies [][]byte) error {
	producer, err := c.queue.Producer(chanq.ProducerConfig{BatchRows: c.batch})
	if err != nil {
		return err
	}
	return errors.Join(c.sendAll(ctx, producer, bodies), producer.Close(ctx))
}

func (c channels) sendAll(ctx context.Context, producer *chanq.Producer[[]byte], bodies [][]byte) error {
	if c.send == sendChannel {
		for _, body := range bodies {
			producer.C() <- chanq.Message[[]byte]{Body: body}
		}
		return nil
	}
	messages := make([]chanq.Message[[]byte], 0, c.batch)
	for len(bodies) > 0 {
		messages = messages[:0]
		n := min(c.batch, len(bodies))
		for _, body := range bodies[:n] {
			messages = append(messages, chanq.Message[[]byte]{Body: body})
		}
		if _, err := producer.SendBatch(ctx, messages...); err != nil {
			return err
		}
		bodies = bodies[n:]
	}
	return nil
}

// drain lets claims grow to twice the batch, so that they are between one and
// two batches large: a claim waits until half of the buffer is free.
func (c channels) drain(ctx context.Context, n int) error {
	consumer, err := c.queue.Consume(ctx, chanq.ConsumerConfig{Prefetch: 2 * c.batch, LeaseFor: leaseFor})
	if err != nil {
		return err
	}
	left := n
	for lease := range consumer.C() {
		if err = lease.Ack(); err != nil {
			break
		}
		if left--; left == 0 {
			break
		}
	}
	err = errors.Join(err, consumer.Shutdown(context.WithoutCancel(ctx)), consumer.Err())
	if acked := consumer.Stats().Acked; err == nil && acked != int64(n) {
		err = fmt.Errorf("acked %d of %d messages", acked, n)
	}
	return err
}

func (c channels) pipeline(ctx context.Context, bodies [][]byte) error {
	sent := make(chan error, 1)
	go func() { sent <- c.enqueue(ctx, bodies) }()
	err := c.drain(ctx, len(bodies))
	return errors.Join(<-sent, err)
}
