package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
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

// classify is what an error means: session.Classify, and that of an undecided row.
func classify(d sqlbatch.Dialect, err error) sqlbatch.Class {
	if undecided := (*undecidedError)(nil); errors.As(err, &undecided) {
		return sqlbatch.BadRow // the others of its batch may be stored
	}
	return session.Classify(d, err)
}

// halfDoneError: some rows are stored already, and which ones was not learned.
type halfDoneError struct{ err error }

func (e *halfDoneError) Error() string { return e.err.Error() }
func (e *halfDoneError) Unwrap() error { return e.err }

// undecidedError: again and again the database took a row for a duplicate, and
// showed nothing that it is a duplicate of.
type undecidedError struct {
	row sqlbatch.Row
	err error // of the last INSERT; nil if that left the row out
}

func (e *undecidedError) Error() string {
	what := "ID " + ID(e.row.ID).String()
	if e.row.Key != "" {
		what = fmt.Sprintf("dedup key %q", e.row.Key)
	}
	text := fmt.Sprintf("the database refuses %s as a duplicate, and has none in the queue, in %d tries", what, keyTries)
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *undecidedError) Unwrap() error { return e.err }

// keyTries is how often a row is sent of which the database says that it is there,
// and that it is not: its holder came or left between two statements, each time. The
// pauses between the tries are two seconds in all.
const (
	keyTries     = 10
	keyPauseLow  = 5 * time.Millisecond
	keyPauseHigh = 500 * time.Millisecond
)

// enqueue stores rows by run and fills their receipts. keyed says that an id or
// key may be in the queue already: an INSERT then leaves out what is there, and a
// look tells what that was. Where both say different things, or the INSERT meets a
// row that another has just stored (Duplicate), the rest is sent again: in a
// producer, and in a caller's transaction, which such an error leaves as it was. If
// it does not, the next statement says so.
func (q *queue) enqueue(ctx context.Context, run func(sqlbatch.Statement, func(*sql.Rows) error) error, build sqlbatch.Queue, rows []sqlbatch.Row, receipts []Receipt, keyed bool) error {
	if !keyed {
		return run(build.Enqueue(rows), nil)
	}
	index := make(map[ID]int, len(rows))
	for i := range rows {
		index[rows[i].ID] = i
		receipts[i] = Receipt{ID: rows[i].ID} // not what a try that failed has found
	}
	pause := backoff{low: keyPauseLow, high: keyPauseHigh}
	tries, before := 0, len(rows)
	var refused error
	for todo := rows; len(todo) > 0; {
		if len(todo) < before {
			tries, before, pause = 0, len(todo), backoff{low: keyPauseLow, high: keyPauseHigh}
		}
		if tries == keyTries {
			return halfDone(len(todo) < len(rows), &undecidedError{todo[0], refused})
		}
		if tries > 0 {
			sleep(ctx, pause.pause())
		}
		tries++
		var stored []ID
		switch err := run(build.EnqueueNew(todo), collectIDs(&stored)); {
		case err != nil && classify(q.dialect, err) == sqlbatch.Duplicate && ctx.Err() == nil:
			refused = err
			continue
		case err != nil:
			return halfDone(len(todo) < len(rows), err)
		}
		refused = nil
		isStored := make(map[ID]bool, len(stored))
		for _, id := range stored {
			isStored[id] = true
		}
		var missing []sqlbatch.Row
		for _, row := range todo {
			if !isStored[row.ID] {
				missing = append(missing, row)
			}
		}
		var err error
		if todo, err = q.explainMissing(run, build, missing, receipts, index); err != nil {
			return &halfDoneError{err}
		}
	}
	return nil
}

func halfDone(some bool, err error) error {
	if some {
		return &halfDoneError{err}
	}
	return err
}

// explainMissing looks for what kept rows from being stored: their own id (they
// are stored already) or a message with their key. It returns those for which
// neither is there any more: they are to be stored again.
func (q *queue) explainMissing(run func(sqlbatch.Statement, func(*sql.Rows) error) error, build sqlbatch.Queue, missing []sqlbatch.Row, receipts []Receipt, index map[ID]int) (again []sqlbatch.Row, err error) {
	for chunk := range slices.Chunk(missing, q.dialect.Traits().FindIDs) {
		var ids [][16]byte
		var keys []string
		for i := range chunk {
			ids = append(ids, chunk[i].ID)
			if chunk[i].Key != "" {
				keys = append(keys, chunk[i].Key)
			}
		}
		found := map[ID]liveRow{}
		if err := run(build.Find(ids, keys), collectLive(found)); err != nil {
			return nil, err
		}
		byKey := map[string]ID{}
		for _, row := range found {
			if row.key != "" {
				byKey[row.key] = row.id
			}
		}
		for _, row := range chunk {
			_, own := found[row.ID]
			other, taken := byKey[row.Key]
			switch {
			case own:
			case taken && row.Key != "":
				receipts[index[row.ID]] = Receipt{ID: other, Duplicate: true}
			default:
				again = append(again, row)
			}
		}
	}
	return again, nil
}
