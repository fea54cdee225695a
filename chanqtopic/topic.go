package chanqtopic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/chanq/chanq"
)

// Topic publishes messages with bodies of type T. It is safe for concurrent use, and has no goroutine.
type Topic[T any] struct {
	db    *sql.DB
	name  string
	cfg   chanq.Config
	names chanq.Names

	mu     sync.Mutex
	queues map[[2]string]*chanq.Queue[T] // that were opened, by name and creation
}

// Open opens a topic for Publish, and the queues that subscribe to it now. The bodies must be those of their consumers:
// T, and Config.Codec. It uses cfg for all queues, without Label, Spec and Shard. It costs two round trips, and up to
// three per queue.
func Open[T any](ctx context.Context, db *sql.DB, topic string, cfg chanq.Config) (*Topic[T], error) {
	cfg.Label, cfg.Spec, cfg.Shard = "", chanq.Spec{}, chanq.ShardMark{}
	t := &Topic[T]{db: db, name: topic, cfg: cfg, queues: map[[2]string]*chanq.Queue[T]{}}
	err := checkTopic(topic)
	if err == nil {
		t.names, err = existing(ctx, db, cfg)
		t.cfg.Dialect = t.names.Dialect
	}
	if err != nil {
		return nil, failed("open", topic, err)
	}
	subscriptions, err := read(ctx, db, t.names, topicText, topic)
	for _, s := range subscriptions {
		if s.made.Valid && err == nil { // otherwise Publish says so
			_, err = t.queue(ctx, nil, s)
		}
	}
	if err != nil {
		return nil, failed("open", topic, err)
	}
	return t, nil
}

// Publish sends messages to each queue that subscribes to the topic, in your transaction. A message whose headers match
// no Filter is sent to no queue. A plain queue gets the message without its Key.
//
// Publish checks all messages for all queues before it stores any: after ErrNoSubscriptions, an invalid message, or the
// error that a subscribed queue was dropped, the transaction is unchanged. After another error, roll back.
//
// It costs one round trip, one for the first Publish after a new Subscribe, and the cost of SendTx per queue.
func (t *Topic[T]) Publish(ctx context.Context, tx chanq.Tx, ms ...chanq.Message[T]) error {
	return failed("publish", t.name, t.publish(ctx, tx, ms))
}

// delivery is what a queue gets.
type delivery struct {
	queue *chanq.Queue[[]byte]
	ms    []chanq.Message[[]byte]
}

func (t *Topic[T]) publish(ctx context.Context, tx chanq.Tx, ms []chanq.Message[T]) error {
	if tx == nil {
		return errors.New("tx must not be nil")
	}
	subscriptions, err := read(ctx, tx, t.names, topicText, t.name)
	if err != nil {
		return err
	}
	if len(subscriptions) == 0 {
		return ErrNoSubscriptions
	}
	var deliveries []delivery
	bodies := make([][]byte, len(ms)) // encoded for the first queue that gets it
	for _, s := range subscriptions {
		d, err := t.prepare(ctx, tx, s, ms, bodies)
		if err != nil {
			return fmt.Errorf("queue %s: %w", s.Queue, err)
		}
		deliveries = append(deliveries, d)
	}
	for _, d := range deliveries {
		if _, err := d.queue.SendTx(ctx, tx, d.ms...); err != nil {
			return err
		}
	}
	return nil
}

// prepare checks and encodes what a queue gets.
func (t *Topic[T]) prepare(ctx context.Context, tx chanq.Tx, s stored, ms []chanq.Message[T], bodies [][]byte) (d delivery, err error) {
	if !s.made.Valid {
		return d, fmt.Errorf("%w: it subscribes, but was dropped: migrate it, or call chanqtopic.Unsubscribe, or the "+
			"command: chanq topic unsubscribe %s %s", chanq.ErrNoSchema, s.Queue, s.Topic)
	}
	q, err := t.queue(ctx, tx, s)
	if err == nil {
		_, err = q.SendTx(ctx, tx) // which checks tx
	}
	if err != nil {
		return d, err
	}
	d.queue = q.Raw()
	for i, m := range ms {
		if !s.matches(m.Headers) {
			continue
		}
		if q.Spec().Kind == chanq.KindPlain {
			m.Key = ""
		}
		if bodies[i] == nil {
			bodies[i], err = q.Encode(m)
		}
		raw := chanq.Message[[]byte]{ID: m.ID, Body: bodies[i], Type: m.Type, Headers: m.Headers, Priority: m.Priority,
			Delay: m.Delay, TTL: m.TTL, DedupKey: m.DedupKey, OnDuplicate: m.OnDuplicate, DebounceMax: m.DebounceMax, Key: m.Key}
		if err == nil {
			_, err = d.queue.Encode(raw)
		}
		if err != nil {
			return d, err
		}
		d.ms = append(d.ms, raw)
	}
	return d, nil
}

// queue returns the queue of a subscription, opened: in a transaction on its connection.
func (t *Topic[T]) queue(ctx context.Context, tx chanq.Tx, s stored) (q *chanq.Queue[T], err error) {
	key := [2]string{s.Queue, s.made.String}
	t.mu.Lock()
	q = t.queues[key]
	t.mu.Unlock()
	switch {
	case q != nil:
		return q, nil
	case tx != nil:
		q, err = chanq.OpenTx[T](ctx, tx, t.db, s.Queue, t.cfg)
	default:
		q, err = chanq.Open[T](ctx, t.db, s.Queue, t.cfg)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[key] = q
	return q, nil
}
