package chanq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sourcegraph/conc"
	"golang.org/x/sync/semaphore"

	"github.com/chanq/chanq/internal/group"
	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Producer stores messages, many to a statement. It is safe for concurrent use:
// one for each queue is enough for a program. End it by Close.
//
// Its goroutines, all joined by Close: the intake, which reads C (intake.go); InFlight
// storers, or three where that is 1 and full groups may be stored side by side (store.go,
// turns.go); at first one that connects; and at the end one that waits for these and ends
// the rest. Beside them those of statements that were left behind, and of the
// Availability hook while there is something to tell.
//
// Each storer uses one session while it stores. While idle a producer holds no connection:
// see internal/session.
type Producer[T any] struct {
	queue    *queue
	cfg      ProducerConfig
	sessions *sessions
	health   health
	in       chan Message[T] // unbuffered: what was sent is in the intake's hands
	usual    int             // how many the intake last received together; of its own
	flushIn  chan struct{}   // received by the intake after all that was sent before
	buffer   *semaphore.Weighted
	workers  conc.WaitGroup

	open      context.Context // ends when Close begins
	shut      context.CancelFunc
	abandoned context.Context
	abandon   context.CancelFunc
	received  chan struct{} // the intake has ended
	finished  chan struct{} // every goroutine has ended
	closeOnce sync.Once

	line    *line                       // nil: groups are stored in no order, or by one storer
	backlog *group.Backlog[*pending[T]] // handed over; closed by the intake, when nothing more will come
	loop    retry.Loop                  // to be copied for each statement

	// mu guards what follows, and the outcomes of pending and sendCall. It is taken before
	// the backlog's own lock, never after, and held while nothing is waited for.
	mu     sync.Mutex
	unsent []Unsent[T]
	hand   *hand[T] // of the intake, while a codec has what it took from C
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

// Producer starts a producer. Where the *sql.DB has a limit (SetMaxOpenConns), a
// producer keeps one of its connections, or two if InFlight is above 1, and all producers
// on it together two (SQLite: one, shared by all queues). What InFlight asks for beyond, and
// two for full groups where it is 1, is taken while there is enough to spare. It is an error that says which limit would do if
// that leaves none for the application.
func (q *Queue[T]) Producer(cfg ProducerConfig) (*Producer[T], error) {
	cfg, err := cfg.withDefaults(q.core.dialect)
	if err == nil && q.core.ordered() && cfg.InFlight > 1 {
		err = fmt.Errorf("ProducerConfig.InFlight is %d: must be 1, since the queue is ordered, and statements side by side have no order", cfg.InFlight)
	}
	var pools []*sessions
	storers, turns := storersOf(cfg, q.core.dialect.Traits())
	if err == nil {
		need := session.Need{Kind: session.Enqueue, Sessions: cfg.InFlight, Spare: storers - cfg.InFlight}
		pools, err = openSessions(q.core.db, q.core.dialect, q.core.cfg.SessionMaxAge, need)
	}
	if err != nil {
		return nil, fmt.Errorf("chanq: producer %s: %w", q.core.name, err)
	}
	p := &Producer[T]{
		queue: q.core, cfg: cfg,
		sessions: pools[0],
		line:     turns,
		health:   health{queue: q.core, part: "producer"},
		in:       make(chan Message[T]),
		flushIn:  make(chan struct{}),
		buffer:   semaphore.NewWeighted(int64(cfg.BufferBytes)),
		received: make(chan struct{}),
		finished: make(chan struct{}),
	}
	p.loop = retry.Loop{Health: &p.health, Classify: q.core.classify, Timeout: cfg.StatementTimeout}
	p.open, p.shut = context.WithCancel(context.Background())
	p.abandoned, p.abandon = context.WithCancel(context.Background())
	p.backlog = group.New(group.Config[*pending[T]]{
		Full: cfg.BatchRows, Bytes: cfg.BatchBytes, Linger: cfg.Linger, AwaitedLinger: cfg.Linger,
		Cut: func(items []*pending[T]) int {
			return cut(items, cfg.BatchRows, cfg.BatchBytes, func(i **pending[T]) (*sqlbatch.Row, bool) { return &(*i).row, (*i).given })
		},
		InTurn:    p.line != nil,
		Abandoned: p.abandoned,
	})
	p.workers.Go(p.intake)
	p.workers.Go(p.connect)
	for range storers {
		p.workers.Go(p.storeAll)
	}
	return p, nil
}

// connect takes the connections before the first message, where they are few. What
// fails is met again, and told, by the storers.
func (p *Producer[T]) connect() {
	ctx, cancel := context.WithTimeout(p.open, p.cfg.StatementTimeout)
	defer cancel()
	_ = p.sessions.Fill(ctx)
}

// C is a channel to send on, unbuffered: a send that went through has handed the
// message over, and Close returns it if it could not be stored. From the
// beginning of Close nobody receives: a sender that may outlive the producer
// selects on Done, too. C is never closed by chanq; closing it is allowed and
// ends nothing but C.
func (p *Producer[T]) C() chan<- Message[T] { return p.in }

// Done is closed when Close begins.
func (p *Producer[T]) Done() <-chan struct{} { return p.open.Done() }

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
			call.resolve(i, Receipt{ID: m.ID}, p.sendError(m.ID, err, false))
			continue
		}
		item.call, item.index = call, i
		items = append(items, item)
	}
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

func (p *Producer[T]) sendError(id ID, err error, unknown bool) error {
	return &OpError{Op: "send", Queue: p.queue.name, ID: id, Unknown: unknown, Err: err}
}

// rowOverhead is what a message takes in the buffer besides its body.
const rowOverhead = 256

func (p *Producer[T]) prepare(m *Message[T]) (pending[T], error) {
	row, given, err := m.row(p.queue)
	size := min(len(row.Body)+len(row.Headers)+len(row.Key)+rowOverhead, p.cfg.BufferBytes)
	return pending[T]{Place: group.Place{Size: size}, row: row, given: given}, err
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
	if !p.push(items) {
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

// push hands items over for good. It reports false when the storers may have ended.
func (p *Producer[T]) push(items []pending[T]) bool {
	return p.backlog.AddAll(len(items), func(i int) *pending[T] { return &items[i] }, group.Awaited)
}

// withdraw gives up a call whose context ended: what no statement has yet is
// taken back, and is certainly not stored. The outcomes of the rest come too
// late.
func (p *Producer[T]) withdraw(call *sendCall, cause error) {
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

// Flush waits until every message handed over before, also through C, is stored
// or known to be impossible to store, or ctx ends. What came through C and
// could not be stored is returned by Close, and makes Flush fail. On SQLite a
// goroutine that holds a transaction must not call it: see Queue.
func (p *Producer[T]) Flush(ctx context.Context) error {
	select {
	case p.flushIn <- struct{}{}:
	case <-p.open.Done(): // Close flushes, too
	case <-ctx.Done():
		return fmt.Errorf("chanq: flush %s: %w", p.queue.name, context.Cause(ctx))
	}
	if err := p.backlog.Flush(ctx); err != nil {
		return fmt.Errorf("chanq: flush %s: %w", p.queue.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.unsent); n > 0 {
		return fmt.Errorf("chanq: flush %s: %d messages sent on C could not be stored, Close returns them; first: %w", p.queue.name, n, p.unsent[0].Err)
	}
	return nil
}

// Close stores everything that was handed over and ends the producer; sends
// fail with ErrClosed from its beginning. If ctx ends before all is stored it
// gives up; the goroutines end as soon as the driver returns. An *UnsentError has
// the messages that came through C and are not known to be stored, each with its
// error. Calling it again, at the same time or later, waits until the goroutines have
// ended, and returns nil, or the error of its own ctx: what is unsent is the first
// call's. On SQLite a goroutine that holds a transaction must not call it: see Queue.
func (p *Producer[T]) Close(ctx context.Context) error {
	first := false
	p.closeOnce.Do(func() {
		first = true
		p.shut()
		p.backlog.Drain()
		go func() { // ends when the intake and the storers have
			p.workers.Wait()
			p.queue.ringer.end() // for what was stored before the last group failed
			p.abandon()
			p.health.changes.close()
			p.sessions.close()
			close(p.finished)
		}()
	})
	if !first {
		return p.closed(ctx)
	}
	select {
	case <-p.finished:
	case <-ctx.Done():
		p.abandon()
		hand := p.giveUpHand()
		if hand == nil {
			<-p.received // soon: nothing is encoded any more, and nothing waited for
		}
		p.giveUp(context.Cause(ctx))
		p.mu.Lock()
		p.unsent = append(p.unsent, hand...)
		p.mu.Unlock()
	}
	p.mu.Lock()
	unsent := p.unsent
	p.unsent = nil
	p.mu.Unlock()
	if len(unsent) == 0 {
		return nil
	}
	return &UnsentError[T]{Unsent: unsent}
}

// closed waits for a Close that has begun.
func (p *Producer[T]) closed(ctx context.Context) error {
	select {
	case <-p.finished:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-p.finished: // both at once
		return nil
	default:
		return fmt.Errorf("chanq: close %s: %w", p.queue.name, context.Cause(ctx))
	}
}
