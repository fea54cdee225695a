package chanq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/pipe"
	"github.com/chanq/chanq/internal/settle"
)

// Pipe moves messages from one queue to another. It calls fn for each lease of from, in up to workers goroutines. In
// one transaction per batch, it then acks the inputs and stores their outputs, except for lost leases. So each input is
// replaced by its outputs or stays, and a crash repeats at most the call of fn.
//
// Pipe treats errors of fn, stops and returns as Consumer.Handle does. A batch costs a transaction with two statements,
// and more above DefaultBatchRows outputs or 4 MiB. See docs/operate/connections.md for its connections.
//
//   - Both queues must be on the same *sql.DB, and can be the same queue.
//   - fn must not settle its lease. It can return no output. An output inherits nothing: copy the Type, Headers and Key
//     yourself.
//   - An output that can never be stored dead-letters its input (CauseOutput). If outputs are not stored within
//     Config.StatementTimeout, for example because an open transaction has one of their keys, the input is nacked.
func Pipe[In, Out any](from *Consumer[In], to *Queue[Out], workers int,
	fn func(context.Context, *Lease[In]) ([]Message[Out], error)) error {
	switch {
	case from == nil || to == nil || fn == nil:
		return errors.New("chanq: pipe: from, to and fn must not be nil")
	case workers < 1:
		return from.core.queue.failed("pipe", fmt.Errorf("workers is %d: must be at least 1", workers))
	case from.core.queue.db != to.core.db:
		return fmt.Errorf("chanq: pipe %s to %s: the queues must be on the same *sql.DB, since one transaction spans "+
			"both", from.core.queue.cfg.Label, to.core.cfg.Label)
	}
	p, err := newPipe(from.core, to.core)
	if err != nil {
		return from.core.queue.failed("pipe", err)
	}
	unrecord := to.core.recorder.Join()
	var storer base.Group
	storer.Go(p.Run)
	storer.Go(func() {
		<-from.core.engine.Stopped()
		p.Drain()
	})
	stuck, err := from.core.serve("pipe", workers, func() {
		for l := range from.feed.C() {
			if from.core.engine.Begin(l.lease) {
				pipeOne(p, from.core, to.core, l, fn)
			}
		}
	})
	p.Close()
	stored := make(chan struct{})
	go func() {
		storer.Wait()
		to.core.signals.Debouncer.Flush() // for outputs that were stored before a failure
		unrecord()
		close(stored)
	}()
	patience := consume.StoreFor
	if stuck || err != nil { // the time to store outputs is over
		patience = consume.Grace / 10
	}
	select {
	case <-stored:
	case <-time.After(patience): // its goroutines end when the hook or the driver returns
		if err == nil {
			err = from.core.queue.failed("pipe", fmt.Errorf("a hook or the driver does not return: %w", ErrStopped))
		}
	}
	return err
}

// pipeOne calls fn for a lease, and gives its outputs to p.
func pipeOne[In, Out any](p *pipe.Pipe, from *consumer, to *queue, l *Lease[In],
	fn func(context.Context, *Lease[In]) ([]Message[Out], error)) {
	input := &piped{delivery: l.Delivery}
	input.Begin(l.lease, &input.delivery)
	from.attempt(func() error {
		out, err := invokeForOutputs(from, l, fn)
		if err != nil {
			return err
		}
		return appendOutputs(&input.Item, to, out)
	}, func(took time.Duration, err error) {
		defer from.engine.Done(l.lease)
		if err != nil {
			from.dispose(&l.Delivery, took, err)
			return
		}
		o := HandlerOutcome{Kind: OutcomeAck}
		if !p.Add(&input.Item) {
			o.Kind = OutcomeNone
		}
		from.handled(&l.Delivery, o, took, nil)
	})
}

// piped is an input with its delivery. Its lease would keep its body in memory until the outputs are stored.
type piped struct {
	pipe.Item
	delivery Delivery
}

// invokeForOutputs calls fn through the Middleware of its consumer.
func invokeForOutputs[In, Out any](c *consumer, l *Lease[In],
	fn func(context.Context, *Lease[In]) ([]Message[Out], error)) ([]Message[Out], error) {
	if len(c.cfg.Middleware) == 0 {
		return fn(l.Context(), l)
	}
	return aroundForOutputs(c, l, fn)
}

// aroundForOutputs returns the outputs of the last call of fn: a Middleware might call it again, or make a success of
// one that failed. It is a separate function because out, which a closure writes, costs an allocation.
func aroundForOutputs[In, Out any](c *consumer, l *Lease[In],
	fn func(context.Context, *Lease[In]) ([]Message[Out], error)) (out []Message[Out], err error) {
	err = around(l.Context(), c.cfg.Middleware, &l.Delivery, func(ctx context.Context) error {
		out = nil
		made, err := fn(ctx, l)
		if err == nil {
			out = made
		}
		return err
	})
	return out, err
}

// appendOutputs adds the outputs of an input. An output that the queue always rejects dead-letters the input.
func appendOutputs[T any](item *pipe.Item, to *queue, out []Message[T]) error {
	for i := range out {
		row, given, err := out[i].row(to)
		if err != nil {
			return &deadLetter{wrapper{fmt.Errorf("output %d: %w", i, err)}, CauseOutput}
		}
		item.Append(row, given)
	}
	return nil
}

// newPipe makes a pipe, and starts nothing.
func newPipe(from *consumer, to *queue) (*pipe.Pipe, error) {
	q, traits := from.queue, from.queue.table.Dialect.Traits()
	store, err := pipe.Open(q.db, q.cfg.SessionMaxAge, q.table, to.table)
	if err != nil {
		return nil, err
	}
	return pipe.New(pipe.Config{
		Store: store, From: from.engine, Inputs: traits.AckItems, BatchRows: min(DefaultBatchRows, traits.EnqueueRows),
		BatchBytes: defaultBatchBytes,
		Linger:     settle.Linger(from.cfg.LeaseFor),
		Timeout:    settle.TryTimeout(from.cfg.LeaseFor, q.cfg.StatementTimeout),
		Longest:    q.cfg.StatementTimeout,
		Classify:   q.classify, Health: from.health, Isolated: q.isolated("pipe"),
		Reason: base.ReasonOutput, Slots: to.signals.Debouncer.Names(),
		Failed: func(item *pipe.Item, err error) time.Duration {
			d := item.Of.(*Delivery)
			d.doomed()
			delay := from.backoff(d, err)
			from.handled(d, HandlerOutcome{Kind: OutcomeRetry, Delay: delay}, 0, err)
			return delay
		},
		Sent: func(messages int, slots notify.Slots, more bool, took time.Duration) {
			to.signals.Signal(max(1, messages), slots, more)
			if messages > 0 {
				to.sent(SentEvent{Messages: messages, Took: took})
			}
		},
	}), nil
}
