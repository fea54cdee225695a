package chanq

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// The way of a message from Send, SendBatch and C to the storers.

// pending is a message on its way into the table.
type pending[T any] struct {
	seq    uint64 // how many were handed over before it
	row    sqlbatch.Row
	given  bool       // the caller chose the ID, so it may be there already
	size   int        // bytes accounted in the buffer
	call   *sendCall  // who waits for it; nil if it came through C
	index  int        // in call.outcomes
	origin Message[T] // if it came through C
	told   bool       // its outcome was told, or what is known of it at the end of Close
}

// sendCall is one Send or SendBatch that waits. The producer's mu guards it once
// its messages are handed over.
type sendCall struct {
	outcomes []outcome
	open     int // messages without an outcome
	done     chan struct{}
}

type outcome struct {
	receipt Receipt
	err     error
	known   bool
}

// settle notes the outcome of a message, unless the caller has been given one.
func (c *sendCall) settle(i int, r Receipt, err error) {
	if o := &c.outcomes[i]; !o.known {
		*o = outcome{r, err, true}
		if c.open--; c.open == 0 {
			close(c.done)
		}
	}
}

// result is what the caller gets.
func (c *sendCall) result() ([]Receipt, error) {
	receipts := make([]Receipt, len(c.outcomes))
	var batch *BatchError
	for i, o := range c.outcomes {
		receipts[i] = o.receipt
		if o.err != nil {
			if batch == nil {
				batch = &BatchError{Op: "send", Errs: make([]error, len(c.outcomes))}
			}
			batch.Errs[i] = o.err
		}
	}
	if batch == nil {
		return receipts, nil
	}
	return receipts, batch
}

// Send stores one message and waits for it: a nil error means that it is in the
// database. Sends of many goroutines share statements. If ctx ends first, Send
// returns an *OpError whose Unknown says whether the message may be stored yet.
// The Receipt has the message's ID in every case: sending again with that ID
// cannot store it twice. On SQLite a goroutine that holds a transaction
// must not call it: see Queue.
func (p *Producer[T]) Send(ctx context.Context, m Message[T]) (Receipt, error) {
	receipts, err := p.send(ctx, []Message[T]{m})
	var batch *BatchError
	if errors.As(err, &batch) {
		err = batch.Errs[0]
	}
	return receipts[0], err
}

// SendBatch stores messages and waits for them, as Send does: a nil error means
// that all are in the database. They may go in several statements, which other
// sends share. There is a Receipt for each message; a *BatchError says which
// were not stored. No messages are no error.
func (p *Producer[T]) SendBatch(ctx context.Context, ms ...Message[T]) ([]Receipt, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	return p.send(ctx, ms)
}

func (p *Producer[T]) send(ctx context.Context, ms []Message[T]) ([]Receipt, error) {
	call := &sendCall{outcomes: make([]outcome, len(ms)), open: len(ms), done: make(chan struct{})}
	items := make([]pending[T], 0, len(ms))
	for i := range ms {
		m := ms[i]
		item, err := p.prepare(&m)
		call.outcomes[i].receipt.ID = m.ID
		if err != nil {
			call.settle(i, Receipt{ID: m.ID}, p.sendError(m.ID, err, false))
			continue
		}
		item.call, item.index = call, i
		items = append(items, item)
	}
	// Handed over in parts that fit the buffer.
	for len(items) > 0 {
		n, size := 1, items[0].size
		for n < len(items) && size+items[n].size <= p.cfg.BufferBytes/2 {
			size += items[n].size
			n++
		}
		if err := p.add(ctx, items[:n], size); err != nil {
			p.mu.Lock()
			for _, item := range items {
				call.settle(item.index, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, err, false))
			}
			p.mu.Unlock()
			break
		}
		items = items[n:]
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		p.withdraw(call, context.Cause(ctx))
	}
	return call.result()
}

func (p *Producer[T]) sendError(id ID, err error, unknown bool) error {
	return &OpError{Op: "send", Queue: p.queue.name, ID: id, Unknown: unknown, Err: err}
}

// rowOverhead is what a message takes in the buffer besides its body.
const rowOverhead = 256

func (p *Producer[T]) prepare(m *Message[T]) (pending[T], error) {
	row, given, err := m.row(p.queue)
	size := min(len(row.Body)+len(row.Headers)+len(row.Key)+rowOverhead, p.cfg.BufferBytes)
	return pending[T]{row: row, given: given, size: size}, err
}

// add hands messages of size bytes in all over to the storers, once the buffer
// has room, unless the producer is closed.
func (p *Producer[T]) add(ctx context.Context, items []pending[T], size int) error {
	if p.open.Err() != nil {
		return ErrClosed
	}
	if err := p.reserve(ctx, size); err != nil {
		return err
	}
	if !p.push(items, size) {
		p.buffer.Release(int64(size))
		return ErrClosed
	}
	return nil
}

// reserve waits for room in the buffer.
func (p *Producer[T]) reserve(ctx context.Context, size int) error {
	if p.buffer.TryAcquire(int64(size)) {
		return nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.abandoned, cancel)()
	switch err := p.buffer.Acquire(wait, int64(size)); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return ErrClosed
	}
}

// push hands items over for good, and wakes a storer when that makes a group
// due. It reports false when the storers may have ended.
func (p *Producer[T]) push(items []pending[T], size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drained {
		return false
	}
	before := len(p.pending)
	if before == 0 {
		p.since = time.Now()
	}
	for i := range items {
		items[i].seq = p.added
		p.added++
		p.pending = append(p.pending, &items[i])
	}
	p.bytes += size
	crossed := func(mark int) bool { return before < mark && len(p.pending) >= mark }
	if before == 0 || crossed(p.pace.last/2) || crossed(p.pace.full) || p.bytes >= p.cfg.BatchBytes {
		notify(p.work)
	}
	return true
}

// withdraw gives up a call whose context ended: what no statement has yet is
// taken back, and is certainly not stored. The outcomes of the rest come too
// late.
func (p *Producer[T]) withdraw(call *sendCall, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = slices.DeleteFunc(p.pending, func(item *pending[T]) bool {
		if item.call != call {
			return false
		}
		p.bytes -= item.size
		p.buffer.Release(int64(item.size))
		call.settle(item.index, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, cause, false))
		return true
	})
	p.wakeFlushers()
	for i := range call.outcomes {
		id := call.outcomes[i].receipt.ID
		call.settle(i, Receipt{ID: id}, p.sendError(id, cause, true))
	}
}
