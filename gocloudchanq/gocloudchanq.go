// Package gocloudchanq makes the queues of chanq topics and subscriptions of the Go CDK (gocloud.dev/pubsub).
//
//	topic := gocloudchanq.OpenTopic(orders, nil)
//	subscription, err := gocloudchanq.OpenSubscription(ctx, orders, chanq.ConsumerConfig{}, nil)
//
// A queue is a topic with one subscription: each message goes to one receiver, in whichever process.
package gocloudchanq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"

	"github.com/chanq/chanq"
)

// TopicOptions are options of OpenTopic.
type TopicOptions struct {
	// BatcherOptions say how calls of Send are collected. Default: 2 handlers, 500 messages.
	BatcherOptions batcher.Options
}

// OpenTopic returns a topic that sends to a queue. It costs nothing. A batch of calls of Send is one statement: a message
// that is refused, for example because its body is too large, also fails the others of its batch.
//
// The functions BeforeSend and AfterSend of a message can convert to *chanq.Message[[]byte], for example to set Key or
// Delay, and Topic.As to **chanq.Queue[[]byte].
func OpenTopic(q *chanq.Queue[[]byte], o *TopicOptions) *pubsub.Topic {
	return pubsub.NewTopic(&topic{failure{}, q}, topicOptions(o))
}

func topicOptions(o *TopicOptions) *batcher.Options {
	b := batcher.Options{}
	if o != nil {
		b = o.BatcherOptions
	}
	if b.MaxHandlers == 0 {
		b.MaxHandlers = 2
	}
	if b.MaxBatchSize == 0 {
		b.MaxBatchSize = chanq.DefaultBatchRows
	}
	return &b
}

type topic struct {
	failure
	queue *chanq.Queue[[]byte]
}

func (t *topic) SendBatch(ctx context.Context, batch []*driver.Message) error {
	ms := make([]chanq.Message[[]byte], len(batch))
	for i, m := range batch {
		ms[i] = chanq.Msg(m.Body)
		ms[i].Headers = m.Metadata
		if m.BeforeSend == nil {
			continue
		}
		if err := m.BeforeSend(asMessage(&ms[i])); err != nil {
			return err
		}
	}
	if _, err := t.queue.Send(ctx, ms...); err != nil {
		return err
	}
	for i, m := range batch {
		if m.AfterSend == nil {
			continue
		}
		if err := m.AfterSend(asMessage(&ms[i])); err != nil {
			return err
		}
	}
	return nil
}

func asMessage(m *chanq.Message[[]byte]) func(any) bool {
	return func(i any) bool {
		p, ok := i.(**chanq.Message[[]byte])
		if ok {
			*p = m
		}
		return ok
	}
}

func (t *topic) As(i any) bool { return asQueue(t.queue, i) }

func (t *topic) Close() error { return nil }

func asQueue(q *chanq.Queue[[]byte], i any) bool {
	p, ok := i.(**chanq.Queue[[]byte])
	if ok {
		*p = q
	}
	return ok
}

// SubscriptionOptions are options of OpenSubscription.
type SubscriptionOptions struct {
	// ReceiveBatcherOptions and AckBatcherOptions say how messages and acks are collected. Default: those of the Go CDK,
	// with 500 acks.
	ReceiveBatcherOptions, AckBatcherOptions batcher.Options
}

// OpenSubscription starts a consumer of a queue. It stops when ctx is cancelled or the subscription is shut down.
//
// A nacked message is redelivered after ConsumerConfig.Backoff (1 s to 1 h), and dead-lettered after Spec.MaxAttempts. A
// message that is held is extended for up to ConsumerConfig.MaxExtend (1 h). Shutdown releases what was not acked.
//
// Message.As converts to **chanq.Lease[[]byte], for example for AckTx, and Subscription.As to
// **chanq.Consumer[[]byte] and **chanq.Queue[[]byte].
func OpenSubscription(ctx context.Context, q *chanq.Queue[[]byte], cfg chanq.ConsumerConfig,
	o *SubscriptionOptions) (*pubsub.Subscription, error) {
	s, err := subscribe(ctx, q, cfg)
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = &SubscriptionOptions{}
	}
	acks := o.AckBatcherOptions
	if acks.MaxBatchSize == 0 {
		acks.MaxBatchSize = chanq.DefaultBatchRows
	}
	return pubsub.NewSubscription(s, &o.ReceiveBatcherOptions, &acks), nil
}

type subscription struct {
	failure
	queue    *chanq.Queue[[]byte]
	consumer *chanq.Consumer[[]byte]
}

func subscribe(ctx context.Context, q *chanq.Queue[[]byte], cfg chanq.ConsumerConfig) (*subscription, error) {
	c, err := q.Consume(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &subscription{failure{}, q, c}, nil
}

// receiveFor is how long ReceiveBatch waits for the first message, as the interface asks.
const receiveFor = time.Second

func (s *subscription) ReceiveBatch(ctx context.Context, most int) ([]*driver.Message, error) {
	timer := time.NewTimer(receiveFor)
	defer timer.Stop()
	var batch []*driver.Message
	select {
	case l, open := <-s.consumer.C():
		if !open {
			return nil, s.ended()
		}
		batch = append(batch, received(l))
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(batch) < most {
		select {
		case l, open := <-s.consumer.C():
			if !open {
				return batch, nil
			}
			batch = append(batch, received(l))
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// ended returns why there are no more messages.
func (s *subscription) ended() error {
	if err := s.consumer.Err(); err != nil {
		return err
	}
	return fmt.Errorf("gocloudchanq: %w", chanq.ErrStopped)
}

func received(l *chanq.Lease[[]byte]) *driver.Message {
	return &driver.Message{
		LoggableID: l.ID.String(), Body: l.Body, Metadata: l.Headers, AckID: l,
		AsFunc: func(i any) bool {
			p, ok := i.(**chanq.Lease[[]byte])
			if ok {
				*p = l
			}
			return ok
		},
	}
}

func (s *subscription) SendAcks(ctx context.Context, ids []driver.AckID) error {
	return settle(ctx, ids, (*chanq.Lease[[]byte]).Ack)
}

func (s *subscription) CanNack() bool { return true }

func (s *subscription) SendNacks(ctx context.Context, ids []driver.AckID) error {
	return settle(ctx, ids, func(l *chanq.Lease[[]byte]) error { return l.Nack(nil) })
}

// settle settles leases in one batch, and waits until that is stored. An error would end the subscription, so a settle that
// was not stored is none: its message is redelivered, and Hooks of the queue report it.
func settle(ctx context.Context, ids []driver.AckID, how func(*chanq.Lease[[]byte]) error) error {
	for _, id := range ids {
		_ = how(id.(*chanq.Lease[[]byte]))
	}
	for _, id := range ids {
		_ = id.(*chanq.Lease[[]byte]).Wait(ctx)
	}
	return ctx.Err()
}

func (s *subscription) As(i any) bool {
	if p, ok := i.(**chanq.Consumer[[]byte]); ok {
		*p = s.consumer
		return true
	}
	return asQueue(s.queue, i)
}

// Close releases what was received and not acked: the Go CDK keeps received messages that the program has not asked for.
func (s *subscription) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.consumer.Shutdown(now) // it counts the messages that were released, or is the error of ReceiveBatch
	return nil
}

// failure says what errors mean. chanq itself repeats what fails for a moment.
type failure struct{}

func (failure) IsRetryable(error) bool { return false }

func (failure) ErrorAs(err error, i any) bool { return errors.As(err, i) }

func (failure) ErrorCode(err error) gcerrors.ErrorCode {
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		return gcerrors.NotFound
	case errors.Is(err, chanq.ErrTooLarge):
		return gcerrors.InvalidArgument
	case errors.Is(err, chanq.ErrStopped), errors.Is(err, chanq.ErrClosed):
		return gcerrors.FailedPrecondition
	case errors.Is(err, context.Canceled):
		return gcerrors.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return gcerrors.DeadlineExceeded
	}
	return gcerrors.Unknown
}
