package chanq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Producer stores messages, many per statement. It is safe for concurrent use: your program needs one per queue. Stop
// it with Close. While idle it holds no connection.
type Producer[T any] struct {
	queue    *queue
	cfg      ProducerConfig
	sender   *send.Sender
	sessions *session.Part
	health   *base.Availability
	isolated *base.Isolated
	events   base.Events // calls of the Unsent hook
	unrecord func()      // ends what recorder.Join began

	in      chan Message[T] // unbuffered: when a send returns, the intake has received the message
	usual   int             // how many messages the intake last received together; used by the intake only
	flushIn chan struct{}   // received by the intake after all that was sent before
	usesC   atomic.Bool     // C was called
	workers base.Group

	open      context.Context // ends when Close begins
	shut      context.CancelFunc
	abandoned context.Context
	abandon   context.CancelCauseFunc
	received  chan struct{} // the intake has ended
	finished  chan struct{} // every goroutine has ended
	closeOnce sync.Once
	closed    chan struct{} // closed when the first Close has determined what is stored
	left      error         // the error of Close; valid when closed is closed
}

// Producer starts a producer. It makes no database call. A ctx that is cancelled later does not stop it, because
// handlers can send while their consumer stops: call Close after them.
//
// With SetMaxOpenConns, a producer reserves one connection, or two if InFlight is above 1, all producers on the *sql.DB
// two (SQLite: one), and uses more while some are free. If the limit is too low, the error names a sufficient one.
func (q *Queue[T]) Producer(ctx context.Context, cfg ProducerConfig) (*Producer[T], error) {
	core := q.core
	if ctx.Err() != nil {
		return nil, core.failed("producer", context.Cause(ctx))
	}
	cfg, err := cfg.withDefaults(core.table.Dialect)
	if err == nil && core.table.Ordered && cfg.InFlight > 1 {
		err = fmt.Errorf("ProducerConfig.InFlight is %d: must be 1, since the queue is ordered and parallel "+
			"statements have no order", cfg.InFlight)
	}
	if err != nil {
		return nil, core.failed("producer", err)
	}
	// For an isolated message, and batches ahead
	need := session.Need{Kind: session.Enqueue, Sessions: cfg.InFlight, Spare: send.MostAhead}
	pools, err := session.Open(core.db, core.table.Dialect, core.cfg.SessionMaxAge, need)
	if err != nil {
		return nil, core.failed("producer", err)
	}
	p := &Producer[T]{
		queue: core, cfg: cfg, sessions: pools[0],
		health: core.availability("producer"), isolated: core.isolated("producer"),
		in: make(chan Message[T]), flushIn: make(chan struct{}), received: make(chan struct{}),
		finished: make(chan struct{}), closed: make(chan struct{}),
	}
	p.open, p.shut = context.WithCancel(context.Background())
	p.abandoned, p.abandon = context.WithCancelCause(context.Background())
	p.sender = send.New(send.Config{
		Table: send.TableOf(core.on(p.sessions)), Classify: core.classify, Health: p.health,
		Traits:    core.table.Dialect.Traits(),
		BatchRows: cfg.BatchRows, BatchBytes: cfg.BatchBytes, BufferBytes: cfg.BufferBytes, InFlight: cfg.InFlight,
		Linger: cfg.Linger, StatementTimeout: core.cfg.StatementTimeout, Open: p.open, Abandoned: p.abandoned,
		Isolated: p.isolated.Set, Notify: core.signals.Signal,
		Sent: func(began time.Time, messages, duplicates, bytes int) {
			core.sent(SentEvent{Messages: messages, Duplicates: duplicates, Bytes: bytes, Took: time.Since(began)})
		},
		Keep: func(origin any) any { return origin.(*received[T]).message() }, Unsent: p.reportUnsent,
	})
	p.unrecord = core.recorder.Join()
	p.workers.Go(func() { _ = p.sessions.Connect(p.open, core.cfg.StatementTimeout) }) // a send reports its error
	p.workers.Go(p.sender.Run)
	p.workers.Go(p.intake)
	return p, nil
}

// mostRows returns the most rows of a statement of Queue.Send and SendTx.
func (q *queue) mostRows() int { return min(DefaultBatchRows, q.table.Dialect.Traits().EnqueueRows) }

// addSlots adds the slots of rows: 0 on a plain queue.
func addSlots(slots *notify.Slots, rows []sqlbatch.Row) {
	for i := range rows {
		slots.Add(rows[i].Slot)
	}
}

// sent counts messages that are stored, or will be if a transaction is committed, and calls the hook.
func (q *queue) sent(e SentEvent) {
	e.Queue = q.cfg.Label
	q.recorder.Add(sqlbatch.Sample{Sent: int64(e.Messages + e.Attempted)})
	call(q.cfg.Hooks.Sent, e)
}

// C is an unbuffered channel to send on. When your send returns, the message is handed over; if it cannot be stored,
// Unsent or Close returns it. While the buffer is full (ProducerConfig.BufferBytes), for example in an outage, a send
// blocks: select on your context too, and on Done if your sender can outlive the producer. You can close C; chanq never
// does.
func (p *Producer[T]) C() chan<- Message[T] {
	if !p.usesC.Load() {
		p.usesC.Store(true)
	}
	return p.in
}

// ProducerStats counts the messages of a producer.
type ProducerStats struct {
	Pending int // messages handed over and not stored yet
	// Isolated messages, which Pending includes: see IsolatedEvent.
	Isolated int
	Down     bool // the database does not answer
}

// Stats returns the current counts. It makes no database call.
func (p *Producer[T]) Stats() ProducerStats {
	s := p.sender.Stats()
	return ProducerStats{Pending: s.Open, Isolated: s.Isolated, Down: p.health.Away()}
}

// Done is closed when Close starts.
func (p *Producer[T]) Done() <-chan struct{} { return p.open.Done() }

// Send stores one message and waits for the commit: after a nil error it is in the database. Sends of many goroutines
// share statements. If ctx is cancelled first, you get an *OpError, and Unknown says whether the message might be
// stored. To send it again, set the ID of the Receipt: see Message.ID. On an ordered queue, Send waits for earlier
// sends on C.
func (p *Producer[T]) Send(ctx context.Context, m Message[T]) (Receipt, error) {
	receipts, err := p.send(ctx, []Message[T]{m})
	var batch *BatchError
	if errors.As(err, &batch) {
		err = batch.Errs[0]
	}
	return receipts[0], err
}

// SendBatch is Send for many messages: after a nil error all of them are in the database. You get a Receipt for each. A
// *BatchError has an error for each message not stored. It can use several statements.
func (p *Producer[T]) SendBatch(ctx context.Context, ms ...Message[T]) ([]Receipt, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	return p.send(ctx, ms)
}

// send stores messages, and waits for them.
func (p *Producer[T]) send(ctx context.Context, ms []Message[T]) ([]Receipt, error) {
	call, refused := send.NewCall(len(ms)), p.queue.outsideTx(ctx, "use SendTx")
	if refused == nil {
		refused = p.awaitIntake(ctx)
	}
	items, rows := make([]send.Item, 0, len(ms)), send.Rows(nil)
	for i := range ms {
		m := ms[i]
		item, err := p.prepare(&m, &rows, len(ms)-i)
		if err = cmp.Or(refused, err); err != nil {
			call.Resolve(i, send.Outcome{Receipt: send.Receipt{ID: m.ID}, Err: err})
			continue
		}
		item.Origin, item.Index = call, int32(i)
		items = append(items, item)
	}
	p.sender.Send(ctx, call, items)
	receipts := make([]Receipt, len(ms))
	var failed *BatchError
	for i, o := range call.Outcomes {
		receipts[i] = receiptOf(o.Receipt)
		if o.Err != nil {
			if failed == nil {
				failed = &BatchError{Op: "send", Errs: make([]error, len(ms))}
			}
			failed.Errs[i] = p.sendError(o)
		}
	}
	if failed == nil {
		return receipts, nil
	}
	return receipts, failed
}

// awaitIntake waits, on an ordered queue, until the intake has passed on the messages that the caller's goroutine has
// sent on C.
func (p *Producer[T]) awaitIntake(ctx context.Context) error {
	if !p.queue.table.Ordered || !p.usesC.Load() {
		return nil
	}
	select {
	case p.flushIn <- struct{}{}:
	case <-p.open.Done(): // the message is refused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func receiptOf(r send.Receipt) Receipt {
	return Receipt{ID: r.ID, Duplicate: r.Duplicate, Replaced: r.Replaced}
}

// sendError returns the error of a message that is not known to be stored.
func (p *Producer[T]) sendError(o send.Outcome) error {
	return &OpError{Op: "send", Queue: p.queue.cfg.Label, ID: o.ID, Unknown: o.Unknown, Err: p.queue.explain(o.Err)}
}

// rowOverhead is the estimated size of a message in the buffer without its body.
const rowOverhead = 256

// prepare makes the item of a message, one of most that are added together.
func (p *Producer[T]) prepare(m *Message[T], rows *send.Rows, most int) (item send.Item, err error) {
	row, given, err := m.row(p.queue)
	if row.OnDuplicate > KeepQueued && p.cfg.InFlight > 1 {
		err = cmp.Or(err, fmt.Errorf("Message.OnDuplicate is %v: needs a producer with InFlight 1, since parallel "+
			"statements have no order", row.OnDuplicate))
	}
	item = rows.NewItem(&row, given, most)
	item.Size = min(len(row.Body)+len(row.Headers)+len(row.Key)+len(row.Type)+rowOverhead, p.cfg.BufferBytes)
	return item, err
}

// reportUnsent has the Unsent hook called, until Close begins: Close returns unsent messages.
func (p *Producer[T]) reportUnsent(o send.Outcome) {
	if hook := p.queue.cfg.Hooks.Unsent; hook != nil && p.open.Err() == nil {
		p.events.Enqueue(func() { call(hook, UnsentEvent{Queue: p.queue.cfg.Label, ID: o.ID, Err: p.sendError(o)}) })
	}
}

// Unsent returns messages that came through C and could not be stored, each with its error, for example because it is
// too large. Each is returned once; Close returns the rest. Until then they keep their room in the buffer, and Flush
// returns an error.
func (p *Producer[T]) Unsent() (unsent []Unsent[T]) {
	for _, u := range p.sender.TakeUnsent() {
		unsent = append(unsent, p.unsentOf(u.Origin, u.Outcome))
	}
	return unsent
}

func (p *Producer[T]) unsentOf(origin any, o send.Outcome) Unsent[T] {
	return Unsent[T]{Message: origin.(Message[T]), Err: p.sendError(o)}
}

// Flush waits until every message handed over before, even through C, is stored or known to be impossible to store, or
// ctx is cancelled. It returns an error while Unsent has messages; if these fill the buffer, call Unsent, and then
// Flush again. Once Close has started, Flush waits for it and returns its error.
func (p *Producer[T]) Flush(ctx context.Context) error {
	return p.queue.failed("flush", p.flush(ctx))
}

// flushCheck is how often Flush checks whether messages that cannot be stored block the intake.
const flushCheck = 10 * time.Millisecond

func (p *Producer[T]) flush(ctx context.Context) error {
	if err := p.queue.outsideTx(ctx, afterCommit); err != nil {
		return err
	}
	check := time.NewTicker(flushCheck)
	defer check.Stop()
	for open := true; open; {
		select {
		case p.flushIn <- struct{}{}:
			if err := cmp.Or(p.sender.Flush(ctx), p.unsent()); err != nil || p.open.Err() == nil {
				return err
			}
			open = false
		case <-p.open.Done():
			open = false
		case <-check.C:
			if p.sender.Full() {
				return p.unsent()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-p.closed:
		return p.left
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unsent returns an error if there are messages that Unsent would return.
func (p *Producer[T]) unsent() error {
	first, n := p.sender.FirstUnsent()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("messages sent on C that could not be stored: %d, Unsent returns them; first: %w", n,
		p.sendError(first.Outcome))
}

// Close stores everything handed over and stops the producer. As soon as it starts, sends fail with ErrClosed. If ctx
// is cancelled first, Close and the open sends return an error. The goroutines end when the driver and the hooks
// return.
//
// You get messages of C not known to be stored in an *UnsentError, except those whose codec does not return within 1 s.
// A further call waits until the goroutines have ended, or its own ctx is cancelled.
func (p *Producer[T]) Close(ctx context.Context) error {
	first := false
	p.closeOnce.Do(func() {
		first = true
		p.shut()
		p.sender.Drain()
		go p.end()
	})
	if !first {
		return p.awaitEnd(ctx)
	}
	defer close(p.closed)
	select {
	case <-p.finished:
	case <-ctx.Done():
		p.left = fmt.Errorf("messages were not stored in time, or a hook or the driver does not return: %w",
			context.Cause(ctx))
		p.abandon(context.Cause(ctx))
		select {
		case <-p.received:
		case <-time.After(consume.Grace):
			p.left = errStuck
		}
		p.sender.GiveUp()
	}
	unsent := p.Unsent()
	if len(unsent) == 0 {
		return p.queue.failed("close", p.left)
	}
	var err error = &UnsentError[T]{Unsent: unsent}
	if p.left == errStuck {
		err = errors.Join(err, p.queue.failed("close", errStuck))
	}
	p.left = fmt.Errorf("messages sent on C that could not be stored: %d, Close returns them; first: %w", len(unsent),
		unsent[0].Err)
	return err
}

var errStuck = fmt.Errorf("a codec does not return: Close does not return the messages that wait for it, at most %d",
	mostReceived)

// end waits for the intake and the writer, and ends the other parts. Goroutines of a producer: the intake, which reads
// C; the workers, which store; one that connects at the start; one that runs end; one that records the Queue's history
// for all its producers and consumers, which the last of them joins; and goroutines of abandoned statements and of
// events for the hooks Availability and Isolated.
func (p *Producer[T]) end() {
	p.workers.Wait()
	p.abandon(nil)
	p.sender.End()
	p.isolated.Close()
	p.events.Close()
	p.queue.signals.Debouncer.Flush() // for messages that were stored before a failure
	p.unrecord()
	p.health.End()
	p.sessions.Close()
	close(p.finished)
}

// awaitEnd waits for the end of a Close that has begun.
func (p *Producer[T]) awaitEnd(ctx context.Context) error {
	select {
	case <-p.finished:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-p.finished: // it may have ended at the same time
		return nil
	default:
		return p.queue.failed("close", context.Cause(ctx))
	}
}

// mostReceived is the maximum number of messages of C that are passed on together.
const mostReceived = 64

// received is a message that came through C.
type received[T any] struct {
	send.Item
	body    T // as it was given, like the headers
	headers map[string]string
}

// message returns the message, with its ID.
func (r *received[T]) message() Message[T] {
	row := r.Row()
	return Message[T]{ID: row.ID, Body: r.body, Type: row.Type, Headers: r.headers, Priority: Priority(row.Priority),
		Delay: row.Delay, TTL: row.TTL, DedupKey: row.Key, OnDuplicate: row.OnDuplicate, DebounceMax: row.DebounceMax,
		Key: row.OrderKey}
}

// intake receives from C until Close begins.
func (p *Producer[T]) intake() {
	defer func() {
		p.sender.Close()
		close(p.received)
	}()
	in := p.in
	for p.open.Err() == nil {
		select {
		case m, ok := <-in:
			if ok {
				p.handOver(m)
			} else {
				in = nil // closed by its sender
			}
		case <-p.flushIn:
		case <-p.open.Done():
		}
	}
}

// handOver passes a message of C on, together with those whose senders are waiting, up to a limit.
func (p *Producer[T]) handOver(m Message[T]) {
	items, rows := make([]received[T], 0, p.usual), send.Rows(nil)
	size := 0
	for ok := true; ok; {
		item := received[T]{body: m.Body, headers: m.Headers}
		var err error
		item.Item, err = p.prepare(&m, &rows, p.usual-len(items))
		switch {
		case err != nil:
			p.keepUnsent(item, err)
		case size+item.Size > p.cfg.BufferBytes: // never has room for both
			p.pushInTurn(items, size)
			items, size = append([]received[T](nil), item), item.Size
		default:
			items, size = append(items, item), size+item.Size
		}
		if len(items) == mostReceived || p.open.Err() != nil || size >= p.cfg.BufferBytes/4 {
			break
		}
		select {
		case m, ok = <-p.in:
		default:
			ok = false
		}
	}
	p.usual = len(items)
	if len(items) > 0 {
		p.pushInTurn(items, size)
	}
}

func (p *Producer[T]) pushInTurn(items []received[T], size int) {
	for i := range items {
		items[i].Origin = &items[i]
	}
	p.sender.PushInTurn(len(items), func(i int) *send.Item { return &items[i].Item }, size)
}

// keepUnsent keeps a message that cannot be stored. A body above MaxBody counts as MaxBody, so that it does not fill
// the buffer.
func (p *Producer[T]) keepUnsent(item received[T], err error) {
	item.Origin = &item
	p.sender.KeepUnsent(&item.Item, p.queue.table.Policy().MaxBody+rowOverhead, err)
}
