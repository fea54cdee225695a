package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/chanq/chanq/bench/internal/measure"
)

// run runs the job's phase on the queue.
func run(ctx context.Context, q Queue, job Job) (Outcome, error) {
	switch job.Phase {
	case Setup:
		return Outcome{}, q.Setup(ctx)
	case Nap:
		return nap(ctx, q, job)
	}
	ms, err := messages(job.N, job.Body)
	if err != nil {
		return Outcome{}, err
	}
	switch job.Phase {
	case Enqueue:
		return enqueue(ctx, q, ms)
	case Drain:
		return drain(ctx, q, len(ms))
	case Pipeline:
		return pipeline(ctx, q, ms)
	case Latency:
		return latency(ctx, q, job, ms)
	default:
		return Outcome{}, fmt.Errorf("unknown phase %q", job.Phase)
	}
}

// messages returns n messages whose JSON is size bytes long. Bodies are incompressible, and the
// same in every process.
func messages(n, size int) ([]Message, error) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random := rand.NewChaCha8([32]byte{})
	ms := make([]Message, n)
	for i := range ms {
		frame, err := json.Marshal(Message{N: int64(i)})
		if err != nil {
			return nil, err
		}
		if len(frame) > size {
			return nil, fmt.Errorf("a body of %d bytes is too small: message %d needs %d", size, i, len(frame))
		}
		body := make([]byte, size-len(frame))
		_, _ = random.Read(body) // never fails
		for j, b := range body {
			body[j] = alphabet[b&63]
		}
		ms[i] = Message{N: int64(i), Body: string(body)}
	}
	return ms, nil
}

func enqueue(ctx context.Context, q Queue, ms []Message) (o Outcome, err error) {
	sender, err := q.Sender(ctx)
	if err != nil {
		return o, err
	}
	o.Cost, err = measure.Of(q.Statements, func() error { return sender.SendAll(ctx, ms) })
	return o, errors.Join(err, sender.Close(ctx))
}

func drain(ctx context.Context, q Queue, n int) (o Outcome, err error) {
	t := newTally(n)
	var receiver Receiver
	o.Cost, err = measure.Of(q.Statements, func() error {
		t.begin()
		if receiver, err = q.Receiver(ctx, n, t.deliver); err != nil {
			return err
		}
		return receiver.Wait(ctx)
	})
	return o, finish(ctx, q, &o, t, nil, receiver, err)
}

func pipeline(ctx context.Context, q Queue, ms []Message) (o Outcome, err error) {
	sender, err := q.Sender(ctx)
	if err != nil {
		return o, err
	}
	t := newTally(len(ms))
	var receiver Receiver
	o.Cost, err = measure.Of(q.Statements, func() error {
		t.begin()
		if receiver, err = q.Receiver(ctx, len(ms), t.deliver); err != nil {
			return err
		}
		if err := sender.SendAll(ctx, ms); err != nil {
			return err // nothing to wait for
		}
		return receiver.Wait(ctx)
	})
	return o, finish(ctx, q, &o, t, sender, receiver, err)
}

// finish closes both sides and checks that all awaited messages arrived.
func finish(ctx context.Context, q Queue, o *Outcome, t *tally, s Sender, r Receiver, err error) error {
	if err == nil {
		o.FirstDelivery, o.Redelivered = t.first().Seconds(), t.again.Load()
		o.Left, err = q.Left(ctx)
		err = errors.Join(err, t.check())
	}
	if s != nil {
		err = errors.Join(err, s.Close(ctx))
	}
	if r != nil {
		err = errors.Join(err, r.Close(ctx))
	}
	return err
}
