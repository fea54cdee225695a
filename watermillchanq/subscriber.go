package watermillchanq

import (
	"context"
	"database/sql"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/chanq/chanq"
)

// Subscriber receives the messages of topics. It is safe for concurrent use.
type Subscriber struct {
	queues *queues
	mu     sync.Mutex // held by Subscribe and Close: no subscription begins while Close waits
	// running are the goroutines of subscriptions: each one runs a consumer, and ends when all its messages are acked,
	// nacked or released.
	running sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a Subscriber. Close db later than the Subscriber.
func NewSubscriber(db *sql.DB, cfg Config) (*Subscriber, error) {
	q, err := newQueues(db, cfg)
	if err != nil {
		return nil, err
	}
	return &Subscriber{queues: q}, nil
}

// SubscribeInitialize creates the queue of a topic, or brings it up to date.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.queues.of(context.Background(), topic, true)
	return err
}

// Subscribe starts a consumer of the queue of a topic, and returns its messages one after the other (see
// Config.Workers). An ack is stored with others within milliseconds; after a crash before that the message is redelivered.
//
// When ctx is cancelled or the Subscriber is closed, messages that your program has not received are released. Those in work have
// Consumer.DrainFor (20 s) to be acked or nacked. Then their contexts are cancelled, they are released, and the channel
// is closed. The context of a message is also cancelled if its lease is lost.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	q, err := s.queues.of(ctx, topic, s.queues.cfg.Migrate)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues.life.Err() != nil {
		return nil, errClosed
	}
	c, err := q.Consume(ctx, s.queues.cfg.Consumer)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		defer context.AfterFunc(s.queues.life, c.Stop)()
		err := c.Handle(s.queues.cfg.Workers, func(ctx context.Context, l *chanq.Lease[[]byte]) error {
			return deliver(ctx, out, l)
		})
		if err != nil && s.queues.cfg.Logger != nil {
			s.queues.cfg.Logger.Error("the subscription has ended", err, map[string]any{"topic": topic})
		}
	})
	return out, nil
}

// Close stops all subscriptions and returns when their channels are closed: see Subscribe.
func (s *Subscriber) Close() error {
	s.queues.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Wait()
	return nil
}

// deliver passes one message on and waits for its result.
func deliver(ctx context.Context, out chan<- *message.Message, l *chanq.Lease[[]byte]) error {
	m := message.NewMessage(l.Headers[UUIDHeader], l.Body)
	for key, value := range l.Headers {
		if key != UUIDHeader {
			m.Metadata.Set(key, value)
		}
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, deliveryKey{}, &l.Delivery))
	defer cancel()
	m.SetContext(ctx)
	select {
	case out <- m:
	case <-l.Stopping():
		return l.Release()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-m.Acked():
		return nil
	case <-m.Nacked():
		return errNacked
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type deliveryKey struct{}

// DeliveryOf returns the delivery of a message that a Subscriber has received, by the context of the message: for
// AckTx, which acks in your transaction (then call message.Ack as always), for Attempt, Fence, Extend and so on.
func DeliveryOf(ctx context.Context) (d *chanq.Delivery, ok bool) {
	d, ok = ctx.Value(deliveryKey{}).(*chanq.Delivery)
	return d, ok
}
