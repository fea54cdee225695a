package chanq

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a producer: groups of pending messages become statements,
// repeated until their outcome is known.

// storeAll stores groups until Close has drained the producer, or given up.
func (p *shardProducer[T]) storeAll() {
	groups := p.backlog.Worker()
	for {
		items, open := groups.Next()
		if !open {
			return
		}
		t := p.line.join(groups.Turn())
		p.store(items, t)
		t.end()
		groups.Done()
	}
}

// runner runs a statement, on a session or in a caller's transaction, and gives each of
// its rows to scan.
type runner = func(st sqlbatch.Statement, scan func(*sql.Rows) error) error

// enqueue stores rows by run and fills their receipts. keyed says that an ID or key may
// be in the queue already: see enqueueNew.
func (q *queue) enqueue(ctx context.Context, run runner, build sqlbatch.Queue, rows []sqlbatch.Row, receipts []Receipt, keyed bool) error {
	if !keyed {
		return run(build.Enqueue(rows), nil)
	}
	return q.enqueueNew(ctx, run, build, rows, receipts)
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

// store stores a group and tells those who wait for it. t is its turn.
func (p *shardProducer[T]) store(group []*pending[T], t *turn) {
	rows := make([]sqlbatch.Row, len(group))
	receipts := make([]Receipt, len(group))
	keyed, bytes := false, 0
	for i := range group {
		rows[i], receipts[i].ID = group[i].row, group[i].row.ID
		keyed = keyed || group[i].given || group[i].row.Key != ""
		bytes += len(group[i].row.Body)
	}
	ahead := !keyed && p.mayGoAhead(t)
	if !ahead {
		t.await()
	}
	if p.abandoned.Err() != nil {
		t.await()
		p.answer(group, receipts, ErrClosed, false)
		return
	}
	start := time.Now()
	unknown := false
	loop := p.loop
	f := loop.UntilKnown(p.abandoned, func(ctx context.Context) error {
		if ahead {
			ahead = false
			return p.storeAhead(ctx, t, rows)
		}
		return p.queue.enqueue(ctx, func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
			return p.sessions.Run(ctx, st, scan)
		}, p.queue.sql, rows, receipts, keyed)
	}, func(f *retry.Failure) retry.Next {
		t.await() // what goes ahead does it once
		if errors.Is(f.Err, errOvertaken) {
			return retry.AtOnce
		}
		var half *halfDoneError
		unknown = unknown || f.Class == sqlbatch.Unknown || session.Fell(f.Err) || errors.As(f.Err, &half)
		switch {
		case f.Class == sqlbatch.BadRow, isPermanent(f.Class):
			return retry.Stop
		case f.Class == sqlbatch.Duplicate && !keyed:
			keyed = true // an earlier try was applied after all
			return retry.AtOnce
		}
		keyed = keyed || unknown
		return retry.Again
	})
	switch {
	case f == nil:
	case f.Class == sqlbatch.BadRow && len(group) > 1 && p.abandoned.Err() == nil:
		// One row must not sink its neighbours.
		half := len(group) / 2
		p.store(group[:half], nil)
		p.store(group[half:], nil)
		return
	case errors.Is(f.Err, errOvertaken):
		p.answer(group, receipts, ErrClosed, unknown)
		return
	default:
		if unknown {
			p.queue.ring(len(group), true) // it may be stored
		}
		p.answer(group, receipts, f.Err, unknown)
		return
	}
	t.stored(true)
	t.await() // the outcomes are told in order, too
	p.queue.ring(len(group), p.backlog.Open() > len(group))
	runtime.Gosched() // claims go before the next group: the messages wait for them
	p.answer(group, receipts, nil, false)
	duplicates := 0
	for i := range receipts {
		if receipts[i].Duplicate {
			duplicates++
		}
	}
	p.queue.recorder.sent.Add(int64(len(group) - duplicates))
	call(p.queue.cfg.Hooks.Sent, SentEvent{Queue: p.queue.label, Messages: len(group) - duplicates, Duplicates: duplicates, Bytes: bytes, Took: time.Since(start)})
}

// answer tells the outcome of a group. Messages of C that failed keep their
// room in the buffer until Close.
func (p *shardProducer[T]) answer(group []*pending[T], receipts []Receipt, err error, unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	freed := 0
	for i, item := range group {
		var failure error
		if err != nil {
			failure = p.sendError(item.row.ID, p.explain(err), unknown)
		}
		if p.answerOne(item, receipts[i], failure) {
			freed += item.Size
		}
	}
	if freed > 0 {
		p.buffer.Release(int64(freed))
	}
}

// giveUp tells all that have no outcome yet what is known of them: a driver may
// take long to notice that its statement was given up. What is in a statement
// may be stored.
func (p *shardProducer[T]) giveUp(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.Each(func(item *pending[T], underWay bool) {
		if underWay {
			p.answerOne(item, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, cause, true))
		} else {
			p.answerOne(item, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, ErrClosed, false))
		}
	})
}

// answerOne tells an outcome to whom it concerns, once. It reports whether the message
// gives its room in the buffer back. mu is held.
func (p *shardProducer[T]) answerOne(item *pending[T], r Receipt, err error) (freed bool) {
	if item.told {
		return false
	}
	item.told = true
	switch {
	case item.call != nil:
		item.call.resolve(item.index, r, err)
	case err != nil:
		item.origin.ID = item.row.ID
		p.unsent = append(p.unsent, Unsent[T]{Message: item.origin, Err: err})
		return false
	}
	return true
}

// explain adds the remedy to an error of the database.
func (p *shardProducer[T]) explain(err error) error {
	if op, ok := p.queue.fail("send", err).(*OpError); ok {
		return op.Err
	}
	return err
}
