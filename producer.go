package chanq

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/chanq/chanq/internal/group"
	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// shardProducer stores messages. A Producer is its face.
//
// Its goroutines, all joined by Close: InFlight storers, or three where that is 1 and full
// groups may be stored side by side (store.go, turns.go); at first one that connects; and one
// that notes the Queue's history, for all its producers and consumers, which the last of them
// joins (record.go). Beside them those of statements that were left behind, and of the
// Availability hook while there is something to tell.
type shardProducer[T any] struct {
	queue    *queue
	cfg      ProducerConfig
	sessions *sessions
	health   health
	unrecord func() // ends what record began
	buffer   *semaphore.Weighted
	workers  sync.WaitGroup

	open      context.Context // of the Producer: ends when Close begins
	abandoned context.Context // of the Producer

	storers int                         // how many are started
	line    *line                       // nil: groups are stored in no order, or by one storer
	backlog *group.Backlog[*pending[T]] // handed over; closed by the intake, when nothing more will come
	loop    retry.Loop                  // to be copied for each statement

	// mu guards what follows, and the outcomes of pending and sendCall. It is taken before
	// the backlog's own lock, never after, and held while nothing is waited for.
	mu     sync.Mutex
	unsent []Unsent[T]
}

// pending is a message on its way into the table.
type pending[T any] struct {
	group.Place // its Size is what it takes of the buffer

	row    sqlbatch.Row
	given  bool       // the caller chose the ID, so it may be there already
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

// resolve notes the outcome of a message, unless the caller has been given one.
func (c *sendCall) resolve(i int, r Receipt, err error) {
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

// newShardProducer opens sessions, and starts nothing: call start or discard.
// open and abandoned are the Producer's.
func newShardProducer[T any](q *queue, cfg ProducerConfig, open, abandoned context.Context) (*shardProducer[T], error) {
	storers, turns := storersOf(cfg, q.dialect.Traits())
	need := session.Need{Kind: session.Enqueue, Sessions: cfg.InFlight, Spare: storers - cfg.InFlight}
	pools, err := openSessions(q.db, q.dialect, q.cfg.SessionMaxAge, need)
	if err != nil {
		return nil, err
	}
	p := &shardProducer[T]{
		queue: q, cfg: cfg,
		sessions:  pools[0],
		storers:   storers,
		line:      turns,
		health:    health{queue: q, part: "producer"},
		buffer:    semaphore.NewWeighted(int64(cfg.BufferBytes)),
		open:      open,
		abandoned: abandoned,
	}
	p.loop = retry.Loop{Health: &p.health, Classify: q.classify, Timeout: cfg.StatementTimeout}
	p.backlog = group.New(group.Config[*pending[T]]{
		Full: cfg.BatchRows, Bytes: cfg.BatchBytes, Linger: cfg.Linger, AwaitedLinger: cfg.Linger,
		Cut: func(items []*pending[T]) int {
			return cut(items, cfg.BatchRows, cfg.BatchBytes, func(i **pending[T]) (*sqlbatch.Row, bool) { return &(*i).row, (*i).given })
		},
		InTurn:    p.line != nil,
		Abandoned: p.abandoned,
	})
	return p, nil
}

func (p *shardProducer[T]) start() {
	p.unrecord = p.queue.record()
	p.workers.Go(func() { p.sessions.connect(p.open, p.cfg.StatementTimeout) })
	for range p.storers {
		p.workers.Go(p.storeAll)
	}
}

// end is called when the intake and the storers have ended.
func (p *shardProducer[T]) end() {
	p.queue.ringer.end() // for what was stored before the last group failed
	p.unrecord()
	p.health.end()
	p.sessions.close()
}

// send stores messages, and waits for them.
func (p *shardProducer[T]) send(ctx context.Context, ms []Message[T]) ([]Receipt, error) {
	call, items := p.encodeAll(ms)
	return p.sendEncoded(ctx, call, items)
}

// encodeAll makes a call of messages, and of those that can be stored what is to be. It calls the
// user's codec, so it is for the goroutine of the sender.
func (p *shardProducer[T]) encodeAll(ms []Message[T]) (*sendCall, []pending[T]) {
	call := &sendCall{outcomes: make([]outcome, len(ms)), open: len(ms), done: make(chan struct{})}
	items := make([]pending[T], 0, len(ms))
	for i := range ms {
		m := ms[i]
		item, err := p.prepare(&m)
		call.outcomes[i].receipt.ID = m.ID
		if err != nil {
			call.resolve(i, Receipt{ID: m.ID}, p.sendError(m.ID, err, false))
			continue
		}
		item.call, item.index = call, i
		items = append(items, item)
	}
	return call, items
}

func (p *shardProducer[T]) sendEncoded(ctx context.Context, call *sendCall, items []pending[T]) ([]Receipt, error) {
	// Handed over in parts that fit the buffer.
	for len(items) > 0 {
		n, size := 1, items[0].Size
		for n < len(items) && size+items[n].Size <= p.cfg.BufferBytes/2 {
			size += items[n].Size
			n++
		}
		if err := p.add(ctx, items[:n], size); err != nil {
			p.mu.Lock()
			for _, item := range items {
				call.resolve(item.index, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, err, false))
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

func (p *shardProducer[T]) sendError(id ID, err error, unknown bool) error {
	return &OpError{Op: "send", Queue: p.queue.label, ID: id, Unknown: unknown, Err: err}
}

// rowOverhead is what a message takes in the buffer besides its body.
const rowOverhead = 256

func (p *shardProducer[T]) prepare(m *Message[T]) (pending[T], error) {
	row, given, err := m.row(p.queue)
	size := min(len(row.Body)+len(row.Headers)+len(row.Key)+rowOverhead, p.cfg.BufferBytes)
	return pending[T]{Place: group.Place{Size: size}, row: row, given: given}, err
}

// add hands messages of size bytes in all over to the storers, once the buffer
// has room, unless the producer is closed.
func (p *shardProducer[T]) add(ctx context.Context, items []pending[T], size int) error {
	if p.open.Err() != nil {
		return ErrClosed
	}
	if err := p.reserve(ctx, size); err != nil {
		return err
	}
	if !p.push(items) {
		p.buffer.Release(int64(size))
		return ErrClosed
	}
	return nil
}

// reserve waits for room in the buffer.
func (p *shardProducer[T]) reserve(ctx context.Context, size int) error {
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

// push hands items over for good. It reports false when the storers may have ended.
func (p *shardProducer[T]) push(items []pending[T]) bool {
	return p.backlog.AddAll(len(items), func(i int) *pending[T] { return &items[i] }, group.Awaited)
}

// withdraw gives up a call whose context ended: what no statement has yet is
// taken back, and is certainly not stored. The outcomes of the rest come too
// late.
func (p *shardProducer[T]) withdraw(call *sendCall, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.Remove(func(item *pending[T]) bool {
		if item.call != call {
			return false
		}
		p.buffer.Release(int64(item.Size))
		call.resolve(item.index, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, cause, false))
		return true
	})
	for i := range call.outcomes {
		id := call.outcomes[i].receipt.ID
		call.resolve(i, Receipt{ID: id}, p.sendError(id, cause, true))
	}
}

// flushed waits until what was handed over is stored, or known to be impossible to store.
func (p *shardProducer[T]) flushed(ctx context.Context) error {
	if err := p.backlog.Flush(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.unsent); n > 0 {
		return fmt.Errorf("%d messages sent on C could not be stored, Close returns them; first: %w", n, p.unsent[0].Err)
	}
	return nil
}

// takeUnsent returns what came through C and is not known to be stored.
func (p *shardProducer[T]) takeUnsent() []Unsent[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	unsent := p.unsent
	p.unsent = nil
	return unsent
}
