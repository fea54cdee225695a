package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/chanq/chanq/bench/internal/peer"
)

const (
	waterTopic = "bench"
	waterRows  = 500 // of an insert and of a fetch, as chanq's default
)

// waterQueue is watermill-sql's log with offsets: one transaction per fetch, open until each of its
// messages has been acked, one at a time.
type waterQueue struct{ db *sql.DB }

func openWatermill(_ context.Context, job peer.Job) (peer.Queue, error) {
	db, err := openPostgres(job.DSN)
	return &waterQueue{db}, err
}

func waterSchema() watersql.DefaultPostgreSQLSchema {
	return watersql.DefaultPostgreSQLSchema{SubscribeBatchSize: waterRows}
}

func (q *waterQueue) subscriber() (*watersql.Subscriber, error) {
	return watersql.NewSubscriber(q.db, watersql.SubscriberConfig{
		PollInterval:   10 * time.Millisecond, // as the first pause of an idle consumer of chanq; the default of 1 s would not be comparable
		SchemaAdapter:  waterSchema(),
		OffsetsAdapter: watersql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
}

func (q *waterQueue) Setup(context.Context) error {
	subscriber, err := q.subscriber()
	if err != nil {
		return err
	}
	return errors.Join(subscriber.SubscribeInitialize(waterTopic), subscriber.Close())
}

func (q *waterQueue) Sender(context.Context) (peer.Sender, error) {
	publisher, err := watersql.NewPublisher(q.db, watersql.PublisherConfig{SchemaAdapter: waterSchema()}, watermill.NopLogger{})
	return &waterSender{publisher}, err
}

func (q *waterQueue) Receiver(_ context.Context, n int, deliver func(peer.Message)) (peer.Receiver, error) {
	subscriber, err := q.subscriber()
	if err != nil {
		return nil, err
	}
	// Not the caller's context, because its end would roll back the transaction.
	messages, err := subscriber.Subscribe(context.Background(), waterTopic)
	if err != nil {
		return nil, errors.Join(err, subscriber.Close())
	}
	r := &waterReceiver{db: q.db, subscriber: subscriber, acked: make(chan error, 1)}
	go func() { r.acked <- r.receive(messages, n, deliver) }() // ends with the channel; Close closes it
	return r, nil
}

func (q *waterQueue) Left(ctx context.Context) (peer.Left, error) {
	return peer.LeftPostgres(ctx, q.db, "watermill_"+waterTopic)
}

func (q *waterQueue) Statements() int64 { return 0 }
func (q *waterQueue) Close() error      { return q.db.Close() }

type waterSender struct{ publisher *watersql.Publisher }

func (s *waterSender) SendAll(_ context.Context, ms []peer.Message) error {
	batch := make([]*message.Message, 0, waterRows)
	for i, m := range ms {
		w, err := waterMessage(m)
		if err != nil {
			return err
		}
		if batch = append(batch, w); len(batch) == waterRows || i == len(ms)-1 {
			if err := s.publisher.Publish(waterTopic, batch...); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

func (s *waterSender) Send(_ context.Context, m peer.Message) error {
	w, err := waterMessage(m)
	if err != nil {
		return err
	}
	return s.publisher.Publish(waterTopic, w)
}

func (s *waterSender) Close(context.Context) error { return s.publisher.Close() }

func waterMessage(m peer.Message) (*message.Message, error) {
	body, err := json.Marshal(m)
	return message.NewMessage(watermill.NewUUID(), body), err
}

type waterReceiver struct {
	db         *sql.DB
	subscriber *watersql.Subscriber
	acked      chan error // one value: nil if n messages were acked, or the error
}

func (r *waterReceiver) receive(messages <-chan *message.Message, n int, deliver func(peer.Message)) error {
	for w := range messages {
		var m peer.Message
		if err := json.Unmarshal(w.Payload, &m); err != nil {
			return err
		}
		deliver(m)
		w.Ack()
		if n--; n == 0 {
			return nil
		}
	}
	return fmt.Errorf("the subscriber ended with %d messages to come", n)
}

// Wait returns when the offset that covers the last message is committed, which happens after the
// last Ack.
func (r *waterReceiver) Wait(ctx context.Context) error {
	select {
	case err := <-r.acked:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return poll(ctx, func() (done bool, err error) {
		var more bool
		err = r.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM watermill_`+waterTopic+` m, watermill_offsets_`+waterTopic+` o
			WHERE m.transaction_id > o.last_processed_transaction_id
			   OR m.transaction_id = o.last_processed_transaction_id AND m."offset" > o.offset_acked) AS `+peer.Probe).Scan(&more)
		return !more, err
	})
}

func (r *waterReceiver) Close(context.Context) error { return r.subscriber.Close() }
