package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/chanq/chanq/bench/internal/peer"
)

const jetName = "bench"

// jetQueue is a NATS server in this process, reached without a socket, with one
// work-queue stream in files.
type jetQueue struct {
	server  *natsserver.Server
	conn    *nats.Conn
	js      jetstream.JetStream
	pending int // publishes in progress
}

func openJetStream(sync bool) func(context.Context, peer.Job) (peer.Queue, error) {
	return func(_ context.Context, job peer.Job) (peer.Queue, error) {
		srv, err := natsserver.NewServer(&natsserver.Options{
			ServerName: jetName, DontListen: true, JetStream: true, StoreDir: job.Dir, SyncAlways: sync, NoSigs: true,
		})
		if err != nil {
			return nil, err
		}
		srv.Start()
		q := &jetQueue{server: srv, pending: 4000}
		if sync {
			q.pending = 256 // it stalls with more
		}
		if !srv.ReadyForConnections(time.Minute) {
			return nil, errors.Join(errors.New("the NATS server did not start within a minute"), q.Close())
		}
		if q.conn, err = nats.Connect("", nats.InProcessServer(srv)); err == nil {
			q.js, err = jetstream.New(q.conn, jetstream.WithPublishAsyncMaxPending(q.pending))
		}
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		return q, nil
	}
}

func (q *jetQueue) Setup(ctx context.Context) error {
	stream, err := q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: jetName, Subjects: []string{jetName}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return err
	}
	_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: jetName, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
	})
	return err
}

func (q *jetQueue) Sender(context.Context) (peer.Sender, error) { return jetSender{q}, nil }

func (q *jetQueue) Receiver(ctx context.Context, n int, deliver func(peer.Message)) (peer.Receiver, error) {
	consumer, err := q.js.Consumer(ctx, jetName, jetName)
	if err != nil {
		return nil, err
	}
	r := &jetReceiver{consumer: consumer, acked: make(chan error, 1)}
	left := n // used only by the goroutine that calls the handler
	r.consuming, err = consumer.Consume(func(jm jetstream.Msg) {
		var m peer.Message
		err := json.Unmarshal(jm.Data(), &m)
		if err == nil {
			deliver(m)
			err = jm.Ack()
		}
		if left--; left == 0 || err != nil {
			select {
			case r.acked <- err:
			default: // redelivered
			}
		}
	}, jetstream.PullMaxMessages(5000))
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (q *jetQueue) Left(ctx context.Context) (l peer.Left, err error) {
	stream, err := q.js.Stream(ctx, jetName)
	if err != nil {
		return l, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return l, err
	}
	return peer.Left{Rows: int64(info.State.Msgs), Bytes: int64(info.State.Bytes)}, nil
}

func (q *jetQueue) Statements() int64 { return 0 }

func (q *jetQueue) Close() error {
	if q.conn != nil {
		q.conn.Close()
	}
	q.server.Shutdown()
	q.server.WaitForShutdown()
	return nil
}

type jetSender struct{ queue *jetQueue }

func (s jetSender) SendAll(ctx context.Context, ms []peer.Message) error {
	futures := make([]jetstream.PubAckFuture, 0, len(ms))
	for _, m := range ms {
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		future, err := s.queue.js.PublishAsync(jetName, body, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return err
		}
		futures = append(futures, future)
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s jetSender) Send(ctx context.Context, m peer.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = s.queue.js.Publish(ctx, jetName, body)
	return err
}

func (s jetSender) Close(context.Context) error { return nil }

type jetReceiver struct {
	consumer  jetstream.Consumer
	consuming jetstream.ConsumeContext
	acked     chan error // one value: nil if n acks were sent, or the error
}

// Wait returns when the server has all acks.
func (r *jetReceiver) Wait(ctx context.Context) error {
	select {
	case err := <-r.acked:
		if err != nil {
			return fmt.Errorf("handling a message: %w", err)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return poll(ctx, func() (bool, error) {
		info, err := r.consumer.Info(ctx)
		return err == nil && info.NumAckPending == 0 && info.NumPending == 0, err
	})
}

func (r *jetReceiver) Close(ctx context.Context) error {
	r.consuming.Stop()
	select {
	case <-r.consuming.Closed():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
