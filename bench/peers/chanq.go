package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/pgnotify"
)

const chanqName = "bench"

// chanqQueue uses chanq as its users do: one goroutine sends on Producer.C, one reads Consumer.C
// and calls Ack.
type chanqQueue struct {
	db       *sql.DB
	counter  *measure.Counter // nil if the server counts
	left     func(context.Context, *sql.DB, ...string) (peer.Left, error)
	config   chanq.Config
	producer chanq.ProducerConfig
	consumer chanq.ConsumerConfig
	notifier *pgnotify.Notifier // nil: none
}

// chanqTuned trades order for throughput, and memory for larger claims.
var (
	chanqTunedProducer = chanq.ProducerConfig{BatchRows: 512, InFlight: 2}
	chanqTunedConsumer = chanq.ConsumerConfig{Prefetch: 4000}
)

func openChanqPostgres(p chanq.ProducerConfig, c chanq.ConsumerConfig) func(context.Context, peer.Job) (peer.Queue, error) {
	return func(_ context.Context, job peer.Job) (peer.Queue, error) {
		db, err := openPostgres(job.DSN)
		return &chanqQueue{db: db, left: peer.LeftPostgres, producer: p, consumer: c}, err
	}
}

// openChanqNotifier is openChanqPostgres with consumers that are woken by senders of other
// processes.
func openChanqNotifier(_ context.Context, job peer.Job) (peer.Queue, error) {
	db, err := openPostgres(job.DSN)
	if err != nil {
		return nil, err
	}
	notifier := pgnotify.New(db, pgnotify.Config{})
	return &chanqQueue{db: db, left: peer.LeftPostgres, notifier: notifier, config: chanq.Config{Notifier: notifier}}, nil
}

func openChanqSQLite(ctx context.Context, job peer.Job) (peer.Queue, error) {
	inner, err := embedded.Connector(peer.SQLiteFile(job.Dir))
	if err != nil {
		return nil, err
	}
	counter := &measure.Counter{}
	db := sql.OpenDB(counter.Connector(inner))
	db.SetMaxIdleConns(4) // as embedded.Open does
	if err := peer.CheckSQLite(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &chanqQueue{db: db, counter: counter, left: peer.LeftSQLite}, nil
}

func (q *chanqQueue) Setup(ctx context.Context) error {
	return chanq.Migrate(ctx, q.db, chanqName, q.config)
}

func (q *chanqQueue) Sender(ctx context.Context) (peer.Sender, error) {
	queue, err := chanq.Open[peer.Message](ctx, q.db, chanqName, q.config)
	if err != nil {
		return nil, err
	}
	producer, err := queue.Producer(ctx, q.producer)
	return &chanqSender{producer}, err
}

func (q *chanqQueue) Receiver(ctx context.Context, n int, deliver func(peer.Message)) (peer.Receiver, error) {
	queue, err := chanq.Open[peer.Message](ctx, q.db, chanqName, q.config)
	if err != nil {
		return nil, err
	}
	consumer, err := queue.Consume(ctx, q.consumer)
	if err != nil {
		return nil, err
	}
	r := &chanqReceiver{consumer: consumer, n: int64(n), acked: make(chan error, 1)}
	go func() { r.acked <- r.receive(deliver) }() // ends with the channel; Close closes it
	return r, nil
}

func (q *chanqQueue) Left(ctx context.Context) (peer.Left, error) {
	return q.left(ctx, q.db, "chanq_"+chanqName, "chanq_"+chanqName+"__dead", "chanq_"+chanqName+"__done")
}

func (q *chanqQueue) Statements() int64 { return q.counter.Statements() }

func (q *chanqQueue) Close() error {
	var err error
	if q.notifier != nil {
		err = q.notifier.Close()
	}
	return errors.Join(err, q.db.Close())
}

type chanqSender struct{ producer *chanq.Producer[peer.Message] }

func (s *chanqSender) SendAll(ctx context.Context, ms []peer.Message) error {
	for _, m := range ms {
		if err := s.Hand(ctx, m); err != nil {
			return err
		}
	}
	return s.producer.Flush(ctx)
}

func (s *chanqSender) Hand(ctx context.Context, m peer.Message) error {
	select {
	case s.producer.C() <- chanq.Message[peer.Message]{Body: m}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *chanqSender) Send(ctx context.Context, m peer.Message) error {
	_, err := s.producer.Send(ctx, chanq.Message[peer.Message]{Body: m})
	return err
}

func (s *chanqSender) Close(ctx context.Context) error { return s.producer.Close(ctx) }

type chanqReceiver struct {
	consumer *chanq.Consumer[peer.Message]
	n        int64
	acked    chan error // one value: nil if n messages were acked, or the error
}

func (r *chanqReceiver) receive(deliver func(peer.Message)) error {
	left := r.n
	for lease := range r.consumer.C() {
		deliver(lease.Body)
		if err := lease.Ack(); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
	}
	return fmt.Errorf("the consumer ended with %d messages to come: %w", left, r.consumer.Err())
}

func (r *chanqReceiver) Wait(ctx context.Context) error {
	select {
	case err := <-r.acked:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := r.consumer.Flush(ctx); err != nil {
		return err
	}
	if acked := r.consumer.Stats().Acked; acked != r.n {
		return fmt.Errorf("acked %d of %d messages", acked, r.n)
	}
	return nil
}

func (r *chanqReceiver) Close(ctx context.Context) error { return r.consumer.Shutdown(ctx) }
