package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq"
)

// channels is chanq as its users meet it: one goroutine sends on Producer.C (or
// calls SendBatch), one reads Consumer.C and calls Ack.
type channels struct {
	queue *chanq.Queue[[]byte]
	batch int
	send  string
	keys  int // of the messages; 0: none has one
}

func newChannels(ctx context.Context, o options, s *store) (strategy, error) {
	queue, err := s.openTimed(ctx)
	return channels{queue, o.batch, o.send, o.keys}, err
}

func (c channels) enqueue(ctx context.Context, bodies [][]byte) error {
	producer, err := c.queue.Producer(chanq.ProducerConfig{BatchRows: c.batch})
	if err != nil {
		return err
	}
	return errors.Join(c.sendAll(ctx, producer, bodies), producer.Close(ctx))
}

func (c channels) sendAll(ctx context.Context, producer *chanq.Producer[[]byte], bodies [][]byte) error {
	keys := newKeys(c.keys)
	if c.send == sendChannel {
		for _, body := range bodies {
			producer.C() <- chanq.Message[[]byte]{Key: keys.next(), Body: body}
		}
		return nil
	}
	for some := range slices.Chunk(bodies, c.batch) {
		messages := make([]chanq.Message[[]byte], len(some))
		for i, body := range some {
			messages[i].Key, messages[i].Body = keys.next(), body
		}
		if _, err := producer.SendBatch(ctx, messages...); err != nil {
			return err
		}
	}
	return nil
}

func (c channels) drain(ctx context.Context, n int) error {
	return readAll(ctx, c.queue, c.batch, n, func(*chanq.Lease[[]byte]) {})
}

// readAll reads n messages and acks each, as chanq's users do, and returns when
// the last ack is in the database. Claims may grow to twice the batch, so that they
// are between one and two batches large: one waits until half of the buffer is free.
func readAll(ctx context.Context, queue *chanq.Queue[[]byte], batch, n int, each func(*chanq.Lease[[]byte])) error {
	consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{Prefetch: 2 * batch, LeaseFor: leaseFor})
	if err != nil {
		return err
	}
	left := n
	for lease := range consumer.C() {
		each(lease)
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
