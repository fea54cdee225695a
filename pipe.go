package chanq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
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
// Pipe returns when from's channel is closed and every group is stored; then it
// returns from's Err. So to end a stage, stop from (by its context, say), wait for
// Pipe, then call from.Shutdown and then to.Close. Several stages may be ended in
// any order: what lies between them is in its table.
func Pipe[In, Out any](from *Consumer[In], to *Producer[Out], workers int, fn func(context.Context, *Lease[In]) ([]Message[Out], error)) error {
	switch {
	case from == nil || to == nil || fn == nil:
		return errors.New("chanq: pipe: from, to and fn must not be nil")
	case workers < 1:
		return from.core.queue.failed("pipe", fmt.Errorf("workers is %d: must be at least 1", workers))
	case from.core.queue.db != to.queue.db:
		return fmt.Errorf("chanq: pipe %s to %s: the queues must be on the same *sql.DB, since one transaction spans both", from.core.queue.label, to.queue.label)
	}
	p, err := newPipe(from.core, to)
	if err != nil {
		return from.core.queue.failed("pipe", err)
	}
	var storer sync.WaitGroup
	storer.Go(p.store)
	base.Workers(workers, func() {
		for l := range from.feed.C() {
			if p.from.begin(l.lease) {
				work(p, l, fn)
			}
		}
	})
	p.writer.Close()
	storer.Wait()
	return from.Err()
}

// pipe is one call of Pipe. Its goroutines, all joined by that call: the workers, which call fn, and those of the writer
// (pipe_store.go), which end when the workers have.
type pipe[Out any] struct {
	from     *consumer
	to       *Producer[Out]
	sessions *sessions
	writer   *batch.Writer[*piped[Out]]
	isolated *base.Isolated
}

// newPipe makes a pipe, and starts nothing.
func newPipe[Out any](from *consumer, to *Producer[Out]) (*pipe[Out], error) {
	pools, err := openSessions(from.queue.db, from.queue.dialect, from.queue.cfg.SessionMaxAge, session.Need{Kind: session.Pipe, Sessions: 1, Spare: 1})
	if err != nil {
		return nil, err
	}
	p := &pipe[Out]{from: from, to: to, sessions: pools[0], isolated: from.queue.isolated("pipe")}
	p.writer = p.newWriter()
	return p, nil
}

// piped is an input that was handled, with its outputs.
type piped[Out any] struct {
	batch.Place // its Size is that of the outputs

	in     *lease.Lease
	rows   []sqlbatch.Row
	one    [1]sqlbatch.Row // where rows begin: most have one
	keys   bool            // an output has a key or an ID of the caller's
	alone  time.Time       // when the first transaction of this input alone began that took too long; of the writer
	handed bool            // the settler has it, since that went on for too long
}

// work calls fn and hands its result to the writer.
func work[In, Out any](p *pipe[Out], l *Lease[In], fn func(context.Context, *Lease[In]) ([]Message[Out], error)) {
	item := &piped[Out]{in: l.lease}
	item.rows = item.one[:0]
	p.from.serve(l.lease, func() error {
		out, err := fn(l.Context(), l)
		if err != nil {
			return err
		}
		for i := range out {
			row, given, err := out[i].row(p.to.queue)
			if err != nil {
				return unfit(i, err)
			}
			item.rows = append(item.rows, row)
			item.Size += len(row.Body) + len(row.Headers)
			item.keys = item.keys || given || row.Key != ""
		}
		return nil
	}, func(l *lease.Lease, err error) {
		if err != nil {
			p.from.dispose(l, err)
			return
		}
		p.handOver(item)
	})
}

// unfit sets an input aside: its output would be refused every time.
func unfit(output int, err error) error {
	return DeadLetter(fmt.Errorf("output %d: %w", output, err))
}

// handOver hands an input that was handled to the writer. From here on the settle is
// under way: no one else may settle it.
func (p *pipe[Out]) handOver(item *piped[Out]) {
	if !item.in.Take(lease.Ack) {
		return // settled by fn, or lost
	}
	p.from.pace.Take()
	if p.writer.Add(context.Background(), item, batch.Awaited) != nil { // it was given up
		lease.Finish(p.from, []*lease.Lease{item.in}, []error{&lease.FailedError{Op: "pipe", Err: ErrClosed}})
	}
}
