// Package watermillchanq makes the queues of chanq a Pub/Sub of Watermill: each topic is a queue.
//
//	publisher, err := watermillchanq.NewPublisher(db, watermillchanq.Config{})
//	subscriber, err := watermillchanq.NewSubscriber(db, watermillchanq.Config{})
//
// Each message goes to one subscriber. Watermill's consumer groups, in which each group gets every message, are not
// supported: publish to one topic per group.
package watermillchanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/chanq/chanq"
)

// UUIDHeader is the header that stores the UUID of a Watermill message. Metadata must not use this key.
const UUIDHeader = "watermill-uuid"

var (
	errClosed = errors.New("watermillchanq: closed")
	errNacked = errors.New("nacked by the Watermill handler")
)

// Config configures a Publisher or a Subscriber.
type Config struct {
	// Queue is the configuration of all queues. Default: see chanq.Config.
	Queue chanq.Config
	// QueueName returns the name of the queue of a topic, for topics that are not words of a-z and 0-9 joined by single
	// underscores. Two topics must not share a name. Default: the topic.
	QueueName func(topic string) string
	// Migrate creates missing queues at the first use of a topic. It needs permission to create tables. Default: false,
	// and an unknown topic is chanq.ErrNoSchema. Subscriber.SubscribeInitialize always creates.
	Migrate bool
	// Prepare changes a message before it is sent, for example to set Key, Delay, Priority or DedupKey. Body and Headers
	// are set already. Default: none.
	Prepare func(topic string, m *message.Message, to *chanq.Message[[]byte]) error
	// Consumer configures subscriptions. A nacked message is redelivered after Consumer.Backoff (1 s to 1 h), and
	// dead-lettered after Spec.MaxAttempts. Default: see chanq.ConsumerConfig.
	Consumer chanq.ConsumerConfig
	// Workers is the number of messages of a subscription that are delivered and not acked yet. Default: 1, as Watermill
	// expects.
	Workers int
	// Logger is told why a subscription ended if no Close and no context ended it. Default: none.
	Logger watermill.LoggerAdapter
}

// queues opens the queue of each topic once.
type queues struct {
	db   *sql.DB
	cfg  Config
	life context.Context // until Close
	end  context.CancelFunc

	mu   sync.Mutex // guards open, and is held while a queue is opened
	open map[string]*chanq.Queue[[]byte]
}

func newQueues(db *sql.DB, cfg Config) (*queues, error) {
	if db == nil {
		return nil, errors.New("watermillchanq: db is nil")
	}
	if cfg.Workers < 0 {
		return nil, fmt.Errorf("watermillchanq: Config.Workers is %d: must be at least 1", cfg.Workers)
	}
	cfg.Workers = max(cfg.Workers, 1)
	life, end := context.WithCancel(context.Background())
	return &queues{db: db, cfg: cfg, life: life, end: end, open: map[string]*chanq.Queue[[]byte]{}}, nil
}

// of returns the queue of a topic, which it creates if migrate is set.
func (q *queues) of(ctx context.Context, topic string, migrate bool) (*chanq.Queue[[]byte], error) {
	if q.life.Err() != nil {
		return nil, errClosed
	}
	name := topic
	if q.cfg.QueueName != nil {
		name = q.cfg.QueueName(topic)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if opened := q.open[name]; opened != nil {
		return opened, nil
	}
	if migrate {
		if err := chanq.Migrate(ctx, q.db, name, q.cfg.Queue); err != nil {
			return nil, fmt.Errorf("topic %q: %w", topic, err)
		}
	}
	opened, err := chanq.Open[[]byte](ctx, q.db, name, q.cfg.Queue)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", topic, err)
	}
	q.open[name] = opened
	return opened, nil
}

// Publisher sends the messages of a topic to its queue. It is safe for concurrent use.
type Publisher struct{ queues *queues }

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher. It starts no goroutine. Close db later than the Publisher.
func NewPublisher(db *sql.DB, cfg Config) (*Publisher, error) {
	q, err := newQueues(db, cfg)
	if err != nil {
		return nil, err
	}
	return &Publisher{q}, nil
}

// Publish stores the messages in one transaction, in their order, within the context of the first one. It costs one
// round trip or two, and two more for the first use of a topic. After an error none is stored, or the outcome is
// unknown, for example after a broken connection.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return p.publish(nil, topic, messages)
}

// InTx returns a Publisher that publishes in your transaction: the messages exist when it commits. Roll back after an
// error. Use topics that exist, or publish once without a transaction before: Config.Migrate does not run in it.
func (p *Publisher) InTx(tx chanq.Tx) message.Publisher { return inTx{p, tx} }

// Close makes later calls of Publish fail. Messages that were published are stored already.
func (p *Publisher) Close() error {
	p.queues.end()
	return nil
}

func (p *Publisher) publish(tx chanq.Tx, topic string, messages []*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	ctx := messages[0].Context()
	q, err := p.queues.of(ctx, topic, p.queues.cfg.Migrate && tx == nil)
	if err != nil {
		return err
	}
	ms := make([]chanq.Message[[]byte], len(messages))
	for i, m := range messages {
		if ms[i], err = p.message(topic, m); err != nil {
			return err
		}
	}
	if tx != nil {
		_, err = q.SendTx(ctx, tx, ms...)
	} else {
		_, err = q.Send(ctx, ms...)
	}
	return err
}

func (p *Publisher) message(topic string, m *message.Message) (to chanq.Message[[]byte], err error) {
	if _, used := m.Metadata[UUIDHeader]; used {
		return to, fmt.Errorf("watermillchanq: message %s has metadata %q: this key stores the UUID", m.UUID, UUIDHeader)
	}
	to = chanq.Msg([]byte(m.Payload))
	to.Headers = make(map[string]string, len(m.Metadata)+1)
	maps.Copy(to.Headers, m.Metadata)
	to.Headers[UUIDHeader] = m.UUID
	if p.queues.cfg.Prepare == nil {
		return to, nil
	}
	return to, p.queues.cfg.Prepare(topic, m, &to)
}

type inTx struct {
	*Publisher
	tx chanq.Tx
}

func (p inTx) Publish(topic string, messages ...*message.Message) error {
	return p.publish(p.tx, topic, messages)
}

// Close does nothing: the transaction and the Publisher belong to the caller.
func (p inTx) Close() error { return nil }
