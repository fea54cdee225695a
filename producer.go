package chanq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// producer stores messages. A Producer is its face.
//
// Its goroutines, all joined by Close: one that runs the writer, and those of the writer, which has InFlight workers, or three if
// InFlight is 1 and full groups may go ahead (store.go, turns.go); at first one that connects; and one that notes the Queue's
// history, for all its producers and consumers, which the last of them joins (record.go). In addition those of statements that
// were left behind, and of the Availability and Isolated hooks while there are events for them.
type producer[T any] struct {
	queue    *queue
	cfg      ProducerConfig
	sessions *sessions
	health   *base.Availability
	unrecord func() // ends what record began
	buffer   *semaphore.Weighted
	workers  sync.WaitGroup

	open      context.Context // of the Producer: ends when Close begins
	abandoned context.Context // of the Producer

	line     *line                      // nil: groups are stored in no order, or by one worker
	writer   *batch.Writer[*pending[T]] // closed by the intake, when nothing more will come
	isolated *base.Isolated
	givenUp  context.Context // of the writer: see giveUp
	giveIn   context.CancelCauseFunc

	unanswered atomic.Int64  // messages that were handed over and have not been resolved or withdrawn
	answered   chan struct{} // of capacity 1: has a value when there are none

	// mu guards what follows, and the outcomes of sendCall. It is taken before the writer's own lock, never after, and nothing
	// is waited for while it is held.
	mu     sync.Mutex
	unsent []Unsent[T]
}

// pending is a message on its way into the table.
type pending[T any] struct {
	batch.Place // its Size is what it takes of the buffer

	row       sqlbatch.Row
	given     bool       // the caller chose the ID, so it may be there already
	call      *sendCall  // that waits for it; nil if it came through C
	index     int        // in call.outcomes
	origin    Message[T] // if it came through C
	duplicate *Receipt   // of the message that it is a duplicate of; nil: none. To be read when its outcome is no error
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
	var failed *BatchError
	for i, o := range c.outcomes {
		receipts[i] = o.receipt
		if o.err != nil {
			if failed == nil {
				failed = &BatchError{Op: "send", Errs: make([]error, len(c.outcomes))}
			}
			failed.Errs[i] = o.err
		}
	}
	if failed == nil {
		return receipts, nil
	}
	return receipts, failed
}

// newProducer opens sessions, and starts nothing: call start.
// open and abandoned are the Producer's.
func newProducer[T any](q *queue, cfg ProducerConfig, open, abandoned context.Context) (*producer[T], error) {
	workers, turns := workersOf(cfg, q.dialect.Traits())
	need := session.Need{Kind: session.Enqueue, Sessions: cfg.InFlight, Spare: workers - cfg.InFlight + 1} // one for isolated messages
	pools, err := openSessions(q.db, q.dialect, q.cfg.SessionMaxAge, need)
	if err != nil {
		return nil, err
	}
	p := &producer[T]{
		queue: q, cfg: cfg,
		sessions:  pools[0],
		line:      turns,
		health:    q.availability("producer"),
		isolated:  q.isolated("producer"),
		buffer:    semaphore.NewWeighted(int64(cfg.BufferBytes)),
		open:      open,
		abandoned: abandoned,
		answered:  make(chan struct{}, 1),
	}
	p.givenUp, p.giveIn = context.WithCancelCause(context.Background())
	p.writer = batch.New(batch.Config[*pending[T]]{
		Full: []int{cfg.BatchRows}, Bytes: cfg.BatchBytes, Linger: cfg.Linger, AwaitedLinger: cfg.Linger,
		Cut: func(items []*pending[T]) int {
			return cut(items, cfg.BatchRows, cfg.BatchBytes, func(i **pending[T]) (*sqlbatch.Row, bool) { return &(*i).row, (*i).given })
		},
		InTurn: cfg.InFlight == 1, Workers: workers,
		Loop:     batch.Loop{Health: p.health, Classify: q.classify, Unknown: session.Fell, Waited: session.Unconnected, Timeout: cfg.StatementTimeout},
		Observer: batch.Observer{Isolated: p.isolated.Set},
		Write:    p.write, Done: p.done,
	})
	return p, nil
}

func (p *producer[T]) start() {
	p.unrecord = p.queue.record()
	p.workers.Go(func() { p.sessions.connect(p.open, p.cfg.StatementTimeout) })
	p.workers.Go(func() { p.writer.Run(p.givenUp) })
}

// end is called when the intake and the writer have ended.
func (p *producer[T]) end() {
	p.giveIn(nil)
	p.isolated.Close()
	p.queue.debouncer.flush() // for what was stored before the last group failed
	p.unrecord()
	p.health.End()
	p.sessions.close()
}

// send stores messages, and waits for them.
func (p *producer[T]) send(ctx context.Context, ms []Message[T]) ([]Receipt, error) {
	call := &sendCall{outcomes: make([]outcome, len(ms)), open: len(ms), done: make(chan struct{})}
	items := make([]pending[T], 0, len(ms))
	for i := range ms {
		m := ms[i]
		item, err := p.prepare(&m)
		if err != nil {
			call.resolve(i, Receipt{ID: m.ID}, p.sendError(m.ID, err, false))
			continue
		}
		item.call, item.index = call, i
		items = append(items, item)
	}
	all := items
	for len(items) > 0 { // in parts that fit the buffer
		n, size := 1, items[0].Size
		for n < len(items) && size+items[n].Size <= p.cfg.BufferBytes/2 {
			size += items[n].Size
			n++
		}
		if err := p.add(ctx, items[:n], size); err != nil {
			p.mu.Lock()
			for i := range items {
				call.resolve(items[i].index, Receipt{ID: items[i].row.ID}, p.sendError(items[i].row.ID, err, false))
			}
			p.mu.Unlock()
			break
		}
		items = items[n:]
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		p.withdraw(call, all[:len(all)-len(items)], context.Cause(ctx))
	}
	return call.result()
}

func (p *producer[T]) sendError(id ID, err error, unknown bool) error {
	return &OpError{Op: "send", Queue: p.queue.label, ID: id, Unknown: unknown, Err: err}
}

// rowOverhead is what a message takes in the buffer besides its body.
const rowOverhead = 256

func (p *producer[T]) prepare(m *Message[T]) (pending[T], error) {
	row, given, err := m.row(p.queue)
	size := min(len(row.Body)+len(row.Headers)+len(row.Key)+rowOverhead, p.cfg.BufferBytes)
	return pending[T]{Place: batch.Place{Size: size, Key: row.OrderKey}, row: row, given: given}, err
}

// add hands messages of size bytes in all over to the writer, once the buffer
// has room, unless the producer is closed.
func (p *producer[T]) add(ctx context.Context, items []pending[T], size int) error {
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
func (p *producer[T]) reserve(ctx context.Context, size int) error {
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

// push hands items over for good. It reports false when the writer is closed.
func (p *producer[T]) push(items []pending[T]) bool {
	p.unanswered.Add(int64(len(items)))
	if p.writer.AddAll(len(items), func(i int) *pending[T] { return &items[i] }, batch.Awaited) != nil {
		p.answer(len(items))
		return false
	}
	return true
}

// answer notes that n messages are resolved, withdrawn or refused.
func (p *producer[T]) answer(n int) {
	if p.unanswered.Add(-int64(n)) == 0 {
		base.Signal(p.answered)
	}
}

// giveUp resolves all messages. It waits for no statement, since a driver may take long to notice that its statement is given
// up, and for no hook.
func (p *producer[T]) giveUp() {
	p.giveIn(ErrClosed)
	for p.unanswered.Load() > 0 {
		<-p.answered
	}
}

// withdraw gives up the messages of a call whose context ended. Those that no statement has, or had with an unknown outcome, are
// taken back, and are certainly not stored. The outcomes of the rest come too late.
func (p *producer[T]) withdraw(call *sendCall, items []pending[T], cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range items {
		item := &items[i]
		taken := p.writer.Withdraw(item)
		if taken {
			p.buffer.Release(int64(item.Size))
			p.answer(1)
		}
		call.resolve(item.index, Receipt{ID: item.row.ID}, p.sendError(item.row.ID, cause, !taken))
	}
}

// flushed waits until what was handed over is stored, or known to be impossible to store.
func (p *producer[T]) flushed(ctx context.Context) error {
	if err := p.writer.Flush(ctx); err != nil {
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
func (p *producer[T]) takeUnsent() []Unsent[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	unsent := p.unsent
	p.unsent = nil
	return unsent
}
