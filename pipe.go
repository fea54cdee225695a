package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/pipe"
	"github.com/chanq/chanq/internal/send"
)

// Pipe moves messages from one queue to another: it calls fn for each lease of
// from, in up to workers goroutines, and then, in one short transaction per
// group, acks the inputs and stores the outputs of exactly those that were
// still held. So each input is replaced by its outputs or stays; a crash at any
// point repeats fn at most.
//
// fn runs outside of any transaction and must not settle its lease. It may
// return no output. Whatever else it does is treated as by Handle. Both queues must be on
// the same *sql.DB; they may be one. A group costs the round trips of a transaction
// with two statements, and more for more than ProducerConfig.BatchRows outputs. Pipe
// uses one session besides those of consumer and producer. Where the *sql.DB has a limit
// (SetMaxOpenConns) all pipes on it together keep two connections at most (SQLite: none),
// and Pipe is an error that says which limit would do if that leaves none for the
// application.
//
// An input whose row is locked by another transaction is stored later, and holds up no other. An input
// whose outputs are not stored in time, for example because an open transaction has
// stored one of their keys, is isolated: it is tried by itself, and holds up no other. After
// ConsumerConfig.StatementTimeout it is nacked like one whose fn failed.
//
// Pipe ends from as Handle does, and returns what Handle returns. So to end a stage, stop from (by its context, say), wait for Pipe,
// and call to.Close. Several stages may be ended in any order: what lies between them is in its table.
func Pipe[In, Out any](from *Consumer[In], to *Producer[Out], workers int, fn func(context.Context, *Lease[In]) ([]Message[Out], error)) error {
	switch {
	case from == nil || to == nil || fn == nil:
		return errors.New("chanq: pipe: from, to and fn must not be nil")
	case workers < 1:
		return from.core.queue.failed("pipe", fmt.Errorf("workers is %d: must be at least 1", workers))
	case from.core.queue.db != to.queue.db:
		return fmt.Errorf("chanq: pipe %s to %s: the queues must be on the same *sql.DB, since one transaction spans both", from.core.queue.label, to.queue.label)
	}
	p, err := newPipe(from.core, to.queue, to.cfg)
	if err != nil {
		return from.core.queue.failed("pipe", err)
	}
	var storer sync.WaitGroup
	storer.Go(p.Run)
	storer.Go(func() {
		<-from.core.engine.Stopped()
		p.Drain()
	})
	stuck, err := from.core.serve("pipe", workers, func() {
		for l := range from.feed.C() {
			if from.core.engine.Begin(l.lease) {
				item := pipe.NewItem(l.lease)
				from.core.attempt(func() error {
					out, err := fn(l.Context(), l)
					if err != nil {
						return err
					}
					return appendOutputs(item, to.queue, out)
				}, func(err error) {
					defer from.core.engine.Done()
					if err != nil {
						from.core.dispose(l.lease, err)
						return
					}
					p.Add(item)
				})
			}
		}
	})
	p.Close()
	stored := make(chan struct{})
	go func() {
		storer.Wait()
		to.queue.debouncer.Flush() // for what was stored before the last group failed
		close(stored)
	}()
	patience := consume.StoreFor
	if stuck || err != nil { // the time for what is to be stored was over
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

// appendOutputs adds messages to an input. One that would be refused every time dead-letters the input.
func appendOutputs[T any](item *pipe.Item, to *queue, out []Message[T]) error {
	for i := range out {
		row, given, err := out[i].row(to)
		if err != nil {
			return &deadLetter{fmt.Errorf("output %d: %w", i, err), true}
		}
		item.Append(row, given)
	}
	return nil
}

// newPipe makes a pipe, and starts nothing.
func newPipe(from *consumer, to *queue, cfg ProducerConfig) (*pipe.Pipe, error) {
	q := from.queue
	store, err := pipe.Open(q.db, q.cfg.SessionMaxAge, q.table, func(tx *sql.Tx) send.Inserts { return to.inserts(to.table.InTx(tx)) })
	if err != nil {
		return nil, err
	}
	return pipe.New(pipe.Config{
		Store: store, From: from.engine, Inputs: q.dialect.Traits().AckItems, BatchRows: cfg.BatchRows, BatchBytes: cfg.BatchBytes,
		Linger: from.cfg.linger(), Timeout: from.cfg.tryTimeout(), Longest: from.cfg.StatementTimeout,
		Classify: q.classify, Health: from.health, Isolated: q.isolated("pipe"),
		Delay:  func(failures int) time.Duration { return nackDelay(from.backoff(failures)) },
		Reason: base.ReasonOutput,
		Failed: func(l *lease.Lease, err error) {
			call(q.cfg.Hooks.Failed, FailedEvent{Queue: q.label, ID: l.Item.ID, Attempt: l.Attempt, Err: err})
		},
		Slots: to.debouncer.Names(),
		Sent: func(messages int, slots notify.Slots, more bool, took time.Duration) {
			to.notify(max(1, messages), slots, more)
			if messages > 0 {
				to.recorder.sent.Add(int64(messages))
				call(to.cfg.Hooks.Sent, SentEvent{Queue: to.label, Messages: messages, Took: took})
			}
		},
	}), nil
}
