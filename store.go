package chanq

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a producer: groups of pending messages become statements,
// repeated until their outcome is known.

// storeAll stores groups until Close has drained the producer, or given up.
func (p *Producer[T]) storeAll() {
	for {
		group, open := p.next()
		if !open {
			return
		}
		p.store(group)
		p.mu.Lock()
		p.flying = slices.DeleteFunc(p.flying, func(o []*pending[T]) bool { return o[0] == group[0] })
		p.wakeFlushers()
		clear(group) // its array may live on under pending
		p.mu.Unlock()
	}
}

// next waits for a group that is due. open is false at the end.
func (p *Producer[T]) next() (group []*pending[T], open bool) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		wait := time.Hour
		if n := len(p.pending); n > 0 {
			due, left := p.pace.due(n, p.since)
			if due || p.bytes >= p.cfg.BatchBytes || p.pending[0].seq < p.urgent || p.open.Err() != nil {
				group = p.take()
				if len(p.pending) > 0 {
					notify(p.work) // for another storer
				}
				p.mu.Unlock()
				return group, true
			}
			wait = left
		} else if p.drained {
			notify(p.work) // the other storers end, too
			p.mu.Unlock()
			return nil, false
		}
		p.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-p.work:
		case <-timer.C:
		}
	}
}

// take removes a group from pending. mu is held. The group keeps its place in
// the array, which push leaves when it is full: moving the rest up would cost as
// much as the whole backlog for each group.
func (p *Producer[T]) take() []*pending[T] {
	n := cut(p.pending, p.cfg.BatchRows, p.cfg.BatchBytes, func(i **pending[T]) (*sqlbatch.Row, bool) { return &(*i).row, (*i).given })
	group := p.pending[:n:n]
	p.pending = p.pending[n:]
	for _, item := range group {
		p.bytes -= item.size
	}
	p.since = time.Now()
	p.pace.last = n
	p.flying = append(p.flying, group)
	return group
}

// cut returns how many of items fit one statement: no more than rows and bytes
// allow (at least one), and no dedup key nor chosen ID twice.
func cut[I any](items []I, rows, bytes int, of func(*I) (row *sqlbatch.Row, given bool)) int {
	var keys map[string]bool
	var ids map[[16]byte]bool
	size := 0
	for i := range items {
		row, given := of(&items[i])
		size += len(row.Body) + len(row.Headers)
		if i == rows || i > 0 && size > bytes || row.Key != "" && keys[row.Key] || given && ids[row.ID] {
			return i
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

// store stores a group and tells those who wait for it.
func (p *Producer[T]) store(group []*pending[T]) {
	rows := make([]sqlbatch.Row, len(group))
	receipts := make([]Receipt, len(group))
	keyed, bytes := false, 0
	for i := range group {
		rows[i], receipts[i].ID = group[i].row, group[i].row.ID
		keyed = keyed || group[i].given || group[i].row.Key != ""
		bytes += len(group[i].row.Body)
	}
	if p.abandoned.Err() != nil {
		p.finish(group, receipts, ErrClosed, false)
		return
	}
	start := time.Now()
	pause := retries()
	unknown := false
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(p.abandoned, p.cfg.StatementTimeout)
		err := p.queue.enqueue(ctx, func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
			return p.sessions.Run(ctx, st, scan)
		}, p.queue.sql, rows, receipts, keyed)
		cancel()
		if err == nil {
			p.health.worked(began)
			break
		}
		class := classify(p.queue.dialect, err)
		var half *halfDoneError
		unknown = unknown || class == sqlbatch.Unknown || errors.As(err, &half)
		switch {
		case p.abandoned.Err() != nil:
			p.finish(group, receipts, err, unknown)
			return
		case class == sqlbatch.BadRow && len(group) > 1:
			// One row must not sink its neighbours.
			half := len(group) / 2
			p.store(group[:half])
			p.store(group[half:])
			return
		case class == sqlbatch.BadRow, class == sqlbatch.NoSchema, class == sqlbatch.Permanent:
			p.finish(group, receipts, err, unknown)
			return
		case class == sqlbatch.Duplicate && !keyed:
			keyed = true // an earlier try was applied after all
			continue
		case pause.outage(class, began):
			p.health.failed(began, err)
		}
		keyed = keyed || unknown
		sleep(p.abandoned, pause.after(class))
	}
	p.queue.key.ring()
	runtime.Gosched() // claims go before the next group: the messages wait for them
	p.finish(group, receipts, nil, false)
	duplicates := 0
	for i := range receipts {
		if receipts[i].Duplicate {
			duplicates++
		}
	}
	call(p.queue.cfg.Hooks.Sent, SentEvent{Queue: p.queue.name, Messages: len(group) - duplicates, Duplicates: duplicates, Bytes: bytes, Took: time.Since(start)})
}

// finish tells the outcome of a group. Messages of C that failed keep their
// room in the buffer until Close.
func (p *Producer[T]) finish(group []*pending[T], receipts []Receipt, err error, unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	freed := 0
	for i, item := range group {
		var failure error
		if err != nil {
			failure = p.sendError(item.row.ID, p.explain(err), unknown)
		}
		if p.tell(item, receipts[i], failure) {
			freed += item.size
		}
	}
	if freed > 0 {
		p.buffer.Release(int64(freed))
	}
}

// giveUp tells all that have no outcome yet what is known of them: a driver may
// take long to notice that its statement was given up. What is in a statement
// may be stored.
func (p *Producer[T]) giveUp(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, group := range p.flying {
		for _, item := range group {
			p.tell(item, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, cause, true))
		}
	}
	for _, item := range p.pending {
		p.tell(item, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, ErrClosed, false))
	}
}

// tell tells an outcome to whom it concerns, once. It reports whether the message
// gives its room in the buffer back. mu is held.
func (p *Producer[T]) tell(item *pending[T], r Receipt, err error) (freed bool) {
	if item.told {
		return false
	}
	item.told = true
	switch {
	case item.call != nil:
		item.call.settle(item.index, r, err)
	case err != nil:
		item.origin.ID = item.row.ID
		p.unsent = append(p.unsent, Unsent[T]{Message: item.origin, Err: err})
		return false
	}
	return true
}

// explain adds the remedy to an error of the database.
func (p *Producer[T]) explain(err error) error {
	if op, ok := p.queue.fail("send", err).(*OpError); ok {
		return op.Err
	}
	return err
}
