package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

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
// with two statements, and more for more than ProducerConfig.BatchRows outputs.
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
		return fmt.Errorf("chanq: pipe %s: workers is %d: must be at least 1", from.queue.name, workers)
	case from.queue.db != to.queue.db:
		return fmt.Errorf("chanq: pipe %s to %s: the queues must be on the same *sql.DB, since one transaction spans both", from.queue.name, to.queue.name)
	}
	p := &pipe[In, Out]{from: from, to: to, groups: make(chan piped[Out], 2*from.queue.dialect.Traits().AckItems)}
	stored := make(chan struct{})
	go func() { // ends when the workers have
		defer close(stored)
		p.storeAll()
	}()
	crew(workers, func() {
		for l := range from.out {
			if from.begin(l) {
				p.work(l, fn)
			}
		}
	})
	close(p.groups)
	<-stored
	return from.Err()
}

type pipe[In, Out any] struct {
	from   *Consumer[In]
	to     *Producer[Out]
	groups chan piped[Out]
}

// piped is an input that was handled, with its outputs.
type piped[Out any] struct {
	in   *lease
	rows []sqlbatch.Row
	size int
	keys bool // an output has a key or an ID of the caller's
}

// work calls fn and hands its result to the storer.
func (p *pipe[In, Out]) work(l *Lease[In], fn func(context.Context, *Lease[In]) ([]Message[Out], error)) {
	item := piped[Out]{in: l.lease}
	encoding := -1 // the output that is
	p.from.serve(l, func(l *Lease[In]) error {
		out, err := fn(l.Context(), l)
		if err != nil {
			return err
		}
		for encoding = range out {
			row, given, err := out[encoding].row(p.to.queue)
			if err != nil {
				return unfit(encoding, err)
			}
			item.rows = append(item.rows, row)
			item.size += len(row.Body) + len(row.Headers)
			item.keys = item.keys || given || row.Key != ""
		}
		return nil
	}, func(l *Lease[In], err error) {
		if err == errLeft && encoding >= 0 {
			err = unfit(encoding, fmt.Errorf("Message.Body: codec %w", err))
		}
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

// handOver hands an input that was handled to the storer. From here on the settle is
// under way: no one else may settle it. The keeper goes on extending it only while it
// is held, so the group must be stored soon.
func (p *pipe[In, Out]) handOver(item piped[Out]) {
	if !item.in.state.CompareAndSwap(leaseHeld, leaseSettling) && !item.in.state.CompareAndSwap(leaseExpired, leaseSettling) {
		return // settled by fn, or lost
	}
	p.from.noteTaken()
	p.groups <- item
}

// storeAll stores groups of what the workers have done: as many as are there.
func (p *pipe[In, Out]) storeAll() {
	limit := p.from.queue.dialect.Traits().AckItems
	pace := pacer{full: limit, linger: p.from.cfg.linger()}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var carry []piped[Out]
	for {
		group := carry
		carry = nil
		if len(group) == 0 {
			item, open := <-p.groups
			if !open {
				return
			}
			group = append(group, item)
		}
		since := time.Now()
		for open := true; open && len(group) < limit; {
			select {
			case item, ok := <-p.groups:
				if open = ok; ok {
					group = append(group, item)
				}
				continue
			default:
			}
			due, wait := pace.due(len(group), since)
			if due {
				break
			}
			timer.Reset(wait)
			select {
			case item, ok := <-p.groups:
				if open = ok; ok {
					group = append(group, item)
				}
			case <-timer.C:
			}
		}
		group, carry = p.fit(group)
		pace.last = len(group)
		p.store(group)
	}
}

// fit splits off what does not fit one transaction: 4 MiB or so of outputs.
func (p *pipe[In, Out]) fit(group []piped[Out]) (now, later []piped[Out]) {
	size := 0
	for i := range group {
		if size += group[i].size; i > 0 && size > p.to.cfg.BatchBytes {
			return group[:i:i], group[i:]
		}
	}
	return group, nil
}

// store replaces inputs by outputs, repeated until the outcome is known.
func (p *pipe[In, Out]) store(group []piped[Out]) {
	start := time.Now()
	slices.SortFunc(group, func(a, b piped[Out]) int { return compareItems(a.in.item, b.in.item) })
	abandoned := p.from.settler.abandoned
	pause := retries()
	unknown := false
	for {
		var held []sqlbatch.Item
		sent := 0
		began := time.Now()
		ctx, cancel := context.WithTimeout(abandoned, p.from.cfg.Statement)
		err := p.from.sessions.inTx(ctx, func(tx *sql.Tx) (err error) {
			held, sent, err = p.replace(ctx, tx, group)
			return err
		})
		cancel()
		if err == nil {
			p.from.health.worked(began)
			p.finish(group, held, unknown, sent, time.Since(start))
			return
		}
		class := classify(p.from.queue.dialect, err)
		unknown = unknown || class == sqlbatch.Unknown
		switch {
		case abandoned.Err() != nil:
			p.giveUp(group, unknown, err)
			return
		case class == sqlbatch.NoSchema, class == sqlbatch.Permanent:
			p.giveUp(group, unknown, err)
			p.from.fail(p.from.queue.fail("pipe", err))
			return
		case class == sqlbatch.BadRow && len(group) > 1:
			p.store(group[:len(group)/2])
			p.store(group[len(group)/2:])
			return
		case class == sqlbatch.BadRow:
			l := group[0].in
			l.op, l.text = settleDead, err.Error()
			p.from.settler.addAll([]*lease{l})
			return
		case pause.outage(class, began):
			p.from.health.failed(began, err)
		}
		sleep(abandoned, pause.after(class))
	}
}

// replace acks the inputs in tx and stores the outputs of those still held.
func (p *pipe[In, Out]) replace(ctx context.Context, tx *sql.Tx, group []piped[Out]) (held []sqlbatch.Item, sent int, err error) {
	items := make([]sqlbatch.Item, len(group))
	for i := range group {
		items[i] = group[i].in.item
	}
	if err := runTx(ctx, tx, p.from.queue.ackStatement(p.from.queue.sql.InTx(), items), collectItems(&held)); err != nil {
		return nil, 0, err
	}
	slices.SortFunc(held, compareItems)
	var rows []sqlbatch.Row
	keyed := false
	for i := range group {
		if _, ok := slices.BinarySearchFunc(held, group[i].in.item, compareItems); ok {
			rows = append(rows, group[i].rows...)
			keyed = keyed || group[i].keys
		}
	}
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return runTx(ctx, tx, st, scan) }
	for sent < len(rows) {
		chunk := rows[sent:]
		chunk = chunk[:cut(chunk, p.to.cfg.BatchRows, p.to.cfg.BatchBytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, keyed })]
		receipts := make([]Receipt, len(chunk))
		if err := p.to.queue.enqueue(run, p.to.queue.sql.InTx(), chunk, receipts, keyed); err != nil {
			return nil, 0, err
		}
		sent += len(chunk)
	}
	return held, sent, nil
}

// finish tells each input its outcome. After a try with an unknown outcome, an
// input that is gone was replaced by that try if its lease still runs.
func (p *pipe[In, Out]) finish(group []piped[Out], held []sqlbatch.Item, unknown bool, sent int, took time.Duration) {
	var lost []*lease
	done := 0
	for i := range group {
		l := group[i].in
		if _, ok := slices.BinarySearchFunc(held, l.item, compareItems); ok {
			done++
			l.finish(nil)
		} else {
			lost = append(lost, l)
		}
	}
	if unknown && len(lost) > 0 {
		lost = p.from.settler.finishUnknown(settleAck, lost, &done)
	}
	for _, l := range lost {
		l.finish(ErrLeaseLost)
		call(p.from.queue.cfg.Hooks.LeaseLost, LeaseLostEvent{Queue: p.from.queue.name, ID: l.item.ID, Attempt: l.attempt, Confirmed: true})
	}
	event := SettledEvent{Queue: p.from.queue.name, Acked: done, Lost: len(lost), Took: took}
	call(p.from.queue.cfg.Hooks.Settled, event)
	p.from.noteSettled(event)
	if sent > 0 {
		call(p.to.queue.cfg.Hooks.Sent, SentEvent{Queue: p.to.queue.name, Messages: sent, Took: took})
	}
	if sent > 0 || unknown {
		p.to.queue.key.ring()
	}
}

func (p *pipe[In, Out]) giveUp(group []piped[Out], unknown bool, err error) {
	for i := range group {
		l := group[i].in
		l.finish(&OpError{Op: "pipe", Queue: p.from.queue.name, ID: l.item.ID, Unknown: unknown, Err: err})
	}
}
