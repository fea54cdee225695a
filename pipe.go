package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
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
	if from == nil || to == nil || fn == nil {
		return errors.New("chanq: pipe: from, to and fn must not be nil")
	}
	c, t := from.core, target{from.core, to.core}
	switch {
	case workers < 1:
		return c.queue.failed("pipe", fmt.Errorf("workers is %d: must be at least 1", workers))
	case c.queue.db != t.to.db:
		return fmt.Errorf("chanq: pipe %s to %s: the queues must be on the same *sql.DB, since one transaction spans "+
			"both", c.queue.cfg.Label, t.to.cfg.Label)
	}
	unrecord := t.to.recorder.Join()
	p, err := c.engine.Pipe(t, c.queue.isolated("pipe"), func() {
		t.to.signals.Debouncer.Flush() // for outputs that were stored before a failure
		unrecord()
	})
	if p == nil {
		unrecord()
	}
	if err != nil {
		return c.queue.failed("pipe", err)
	}
	return c.serve("pipe", workers, func() {
		for l := range from.feed.C() {
			if c.engine.Begin(l.lease) {
				pipeOne(p, t, l, fn)
			}
		}
	})
}

// pipeOne calls fn for a lease, and gives its outputs to p.
func pipeOne[In, Out any](p *settle.Pipe, t target, l *Lease[In],
	fn func(context.Context, *Lease[In]) ([]Message[Out], error)) {
	input := &piped{delivery: l.Delivery}
	input.In, input.Of, input.Rows = l.lease, &input.delivery, input.one[:0]
	t.from.attempt(func() error {
		out, err := invokeForOutputs(t.from, l, fn)
		if err != nil {
			return err
		}
		return appendOutputs(&input.Input, t.to, out)
	}, func(took time.Duration, err error) {
		defer t.from.engine.Done(l.lease)
		if err != nil {
			t.from.dispose(&l.Delivery, took, err)
			return
		}
		o := HandlerOutcome{Kind: OutcomeAck}
		if l.lease.Take(lease.Ack) {
			t.from.engine.Take()
			p.Add(&input.Input)
		} else {
			o.Kind = OutcomeNone
		}
		t.from.queue.recorder.Called(took)
		t.from.handled(&l.Delivery, o, took, nil)
	})
}

// piped is an input with its delivery. Its lease would keep its body in memory until the outputs are stored.
type piped struct {
	settle.Input
	one      [1]sqlbatch.Row // where Rows begins: most inputs have one output
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
func appendOutputs[T any](in *settle.Input, to *queue, out []Message[T]) error {
	for i := range out {
		row, given, err := out[i].row(to)
		if err != nil {
			return &deadLetter{wrapper{fmt.Errorf("output %d: %w", i, err)}, CauseOutput}
		}
		in.Rows, in.Keyed = append(in.Rows, row), in.Keyed || given || row.Key != ""
		in.Size += len(row.Body) + len(row.Headers)
	}
	return nil
}

// target is the queue of a pipe's outputs, with the consumer of its inputs.
type target struct {
	from *consumer
	to   *queue
}

func (t target) Store(ctx context.Context, tx *sql.Tx, rows []sqlbatch.Row, keyed bool) error {
	return send.InsertsOf(t.to.table.InTx(tx)).StoreAll(ctx, rows, make([]send.Receipt, len(rows)), keyed,
		t.to.mostRows(), defaultBatchBytes)
}

func (t target) Stored(inputs []*settle.Input, messages int, more bool, took time.Duration) {
	var slots notify.Slots
	for _, in := range inputs {
		addSlots(&slots, in.Rows)
	}
	t.to.signals.Signal(max(1, messages), slots, more)
	if messages > 0 {
		t.to.sent(SentEvent{Messages: messages, Took: took})
	}
}

func (t target) Unstored(in *settle.Input, err error) {
	d := in.Of.(*Delivery)
	d.doomed()
	delay := t.from.backoff(d, err)
	in.In.Rare.Write().Delay = delay
	t.from.handled(d, HandlerOutcome{Kind: OutcomeRetry, Delay: delay}, 0, err)
}
