package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq"
)

// channels uses chanq as its users do: one goroutine sends on Producer.C (or calls SendBatch), one
// reads Consumer.C and calls Ack.
type channels struct {
	queue    queue
	batch    int
	send     string
	keys     int    // of the messages; 0: no message has a key
	received *tally // nil: not counted
}

func newChannels(ctx context.Context, o options, s *store) (strategy, error) {
	opened, err := s.openTimed(ctx)
	return channels{single{opened}, o.batch, o.send, o.keys, s.received}, err
}

// queue is a queue in one database, or over several.
type queue interface {
	producer(chanq.ProducerConfig) (producer, error)
	consumer(context.Context, chanq.ConsumerConfig) (consumer, error)
}

type producer interface {
	C() chan<- chanq.Message[[]byte]
	SendBatch(context.Context, ...chanq.Message[[]byte]) ([]chanq.Receipt, error)
	Close(context.Context) error
}

type consumer interface {
	C() <-chan *chanq.Lease[[]byte]
	Shutdown(context.Context) error
	Err() error
	Stats() chanq.ConsumerStats
}

// single is a queue in one database.
type single struct{ *chanq.Queue[[]byte] }

func (s single) producer(cfg chanq.ProducerConfig) (producer, error) {
	return s.Producer(context.Background(), cfg)
}

func (s single) consumer(ctx context.Context, cfg chanq.ConsumerConfig) (consumer, error) {
	return s.Consume(ctx, cfg)
}

func (c channels) enqueue(ctx context.Context, bodies [][]byte) error {
	producer, err := c.queue.producer(chanq.ProducerConfig{BatchRows: c.batch})
	if err != nil {
		return err
	}
	return errors.Join(c.sendAll(ctx, producer, bodies), producer.Close(ctx))
}

func (c channels) sendAll(ctx context.Context, producer producer, bodies [][]byte) error {
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
	return readAll(ctx, c.queue, c.batch, n, func(l *chanq.Lease[[]byte]) { c.received.add(l.Body) })
}

// readAll reads n messages and acks each, as chanq's users do, and returns when the last ack is in
// the database. Claims may grow to twice the batch. They have one to two batches, because a claim
// waits until half of the buffer is free.
func readAll(ctx context.Context, queue queue, batch, n int, each func(*chanq.Lease[[]byte])) error {
	consumer, err := queue.consumer(ctx, chanq.ConsumerConfig{Prefetch: 2 * batch, LeaseFor: leaseFor})
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
