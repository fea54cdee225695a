package chanq

import (
	"context"
	"database/sql"
	"runtime"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a producer: what its writer calls.

// runner runs a statement, on a session or in a caller's transaction, and gives each of
// its rows to scan.
type runner = func(st sqlbatch.Statement, scan func(*sql.Rows) error) error

// enqueue stores rows by run and fills their receipts. keyed says that an ID or key may
// be in the queue already: see enqueueNew.
func (q *queue) enqueue(ctx context.Context, run runner, build sqlbatch.Queue, rows []sqlbatch.Row, receipts []Receipt, keyed bool) error {
	if !keyed {
		return run(build.Enqueue(rows), nil)
	}
	_, err := q.enqueueNew(ctx, run, build, rows, receipts)
	return err
}

// cut returns how many of items fit one statement: no more than rows and bytes
// allow (at least one), and no dedup key nor chosen ID twice. Nor is there what comes behind
// a message with a dedup key in the same line: such a one may be stored by a second INSERT,
// where it was a duplicate of what left the queue at this moment.
func cut[I any](items []I, rows, bytes int, of func(*I) (row *sqlbatch.Row, given bool)) int {
	var keys map[string]bool
	var ids map[[16]byte]bool
	var closed map[string]bool // lines
	size := 0
	for i := range items {
		row, given := of(&items[i])
		size += len(row.Body) + len(row.Headers)
		if i == rows || i > 0 && size > bytes || row.Key != "" && keys[row.Key] || given && ids[row.ID] || closed[row.OrderKey] {
			return i
		}
		if row.Key != "" && row.OrderKey != "" {
			if closed == nil {
				closed = map[string]bool{}
			}
			closed[row.OrderKey] = true
		}
		if row.Key != "" {
			if keys == nil {
				keys = map[string]bool{}
			}
			keys[row.Key] = true
		}
		if given {
			if ids == nil {
				ids = map[[16]byte]bool{}
			}
			ids[row.ID] = true
		}
	}
	return len(items)
}

// write stores messages in one statement, or the first one of a group in a transaction that commits after the group before
// (turns.go). With an error it returns those that are known to be stored.
func (p *producer[T]) write(ctx context.Context, items []*pending[T], skipLocked bool) (written []*pending[T], err error) {
	t := p.line.join(items[0].Turn)
	defer func() { t.end(err == nil) }()
	rows := make([]sqlbatch.Row, len(items))
	keyed := false // an ID or key may be in the queue already
	for i, item := range items {
		rows[i] = item.row
		keyed = keyed || item.given || item.row.Key != "" || item.Unknown
	}
	ahead := items[0].Ahead
	switch {
	case !keyed && p.mayBegin(t, ahead):
		err = p.storeBegun(ctx, t, ahead, rows)
	case ahead:
		return nil, errOvertaken
	case !keyed:
		err = p.sessions.Run(ctx, p.queue.sql.Enqueue(rows), nil)
	}
	if !keyed && (ahead || err == nil || p.queue.classify(err) != sqlbatch.Duplicate) {
		return nil, err
	}
	// Also after a Duplicate: the driver has repeated an INSERT of which it did not know the outcome.
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return p.sessions.Run(ctx, st, scan) }
	receipts := make([]Receipt, len(items))
	open, err := p.queue.enqueueNew(ctx, run, p.queue.sql, rows, receipts)
	isOpen := make(map[ID]bool, len(open))
	for i := range open {
		isOpen[open[i].ID] = true
	}
	for i, item := range items {
		if dup := receipts[i]; !isOpen[item.row.ID] && (err == nil || !dup.Duplicate) { // what it is a duplicate of may leave
			if dup.Duplicate {
				item.duplicate = &dup
			}
			written = append(written, item)
		}
	}
	return written, err
}

// done wakes consumers, and reports the outcomes of messages.
func (p *producer[T]) done(began time.Time, outcomes []batch.Outcome[*pending[T]]) {
	event := SentEvent{Queue: p.queue.label}
	stored, unknown := 0, 0
	var slots slotNames
	names := p.queue.debouncer.names()
	for _, o := range outcomes {
		if names && (o.Err == nil || o.Unknown) {
			slots.add(o.Item.row.Slot)
		}
		switch {
		case o.Err == nil:
			stored++
			event.Bytes += len(o.Item.row.Body)
			if o.Item.duplicate != nil {
				event.Duplicates++
			}
		case o.Unknown:
			unknown++
		}
	}
	if stored+unknown > 0 {
		s := p.writer.Stats()
		p.queue.notify(stored+unknown, slots, stored == 0 || s.Open-s.Isolated-s.Behind > len(outcomes))
		runtime.Gosched() // claims go before the next group: the messages wait for them
	}
	p.resolve(outcomes)
	if stored > 0 {
		event.Messages, event.Took = stored-event.Duplicates, time.Since(began)
		p.queue.recorder.sent.Add(int64(event.Messages))
		call(p.queue.cfg.Hooks.Sent, event)
	}
}

// resolve hands outcomes to the calls that wait for them. It keeps messages of C that are not known to be stored: these keep
// their room in the buffer until Close.
func (p *producer[T]) resolve(outcomes []batch.Outcome[*pending[T]]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	freed := 0
	for _, o := range outcomes {
		item, receipt, err := o.Item, Receipt{ID: o.Item.row.ID}, o.Err
		switch {
		case err == nil && item.duplicate != nil:
			receipt = *item.duplicate
		case err == ErrClosed && o.Unknown:
			err = context.Cause(p.abandoned) // why Close gave up
		}
		if err != nil {
			err = p.sendError(item.row.ID, p.explain(err), o.Unknown)
		}
		switch {
		case item.call != nil:
			item.call.resolve(item.index, receipt, err)
		case err != nil:
			item.origin.ID = item.row.ID
			p.unsent = append(p.unsent, Unsent[T]{Message: item.origin, Err: err})
			continue
		}
		freed += item.Size
	}
	if freed > 0 {
		p.buffer.Release(int64(freed))
	}
	p.answer(len(outcomes))
}

// explain adds the remedy to an error of the database.
func (p *producer[T]) explain(err error) error {
	if op, ok := p.queue.fail("send", err).(*OpError); ok {
		return op.Err
	}
	return err
}
