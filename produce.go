package chanq

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A producer as its user sees it. What stores is in producer.go.

// Producer stores messages, many to a statement. It is safe for concurrent use:
// one for each queue is enough for a program. End it by Close.
//
// Its goroutines, all joined by Close: the intake, which reads C (intake.go), those of its
// producer, and at the end one that waits for these.
//
// Each of its workers uses one session while it stores. While idle a producer holds no connection: see internal/session.
type Producer[T any] struct {
	core    *producer[T]
	in      chan Message[T] // unbuffered: what was sent is in the intake's hands
	usual   int             // how many the intake last received together; of its own
	flushIn chan struct{}   // received by the intake after all that was sent before
	workers sync.WaitGroup  // the intake

	open      context.Context // ends when Close begins
	shut      context.CancelFunc
	abandoned context.Context
	abandon   context.CancelCauseFunc
	received  chan struct{} // the intake has ended
	finished  chan struct{} // every goroutine has ended
	closeOnce sync.Once

	mu   sync.Mutex // guards what follows; taken while the core's is not held
	hand *hand[T]   // of the intake, while a codec has what it took from C
}

// Producer starts a producer. Where the *sql.DB has a limit (SetMaxOpenConns), a
// producer keeps one of its connections, or two if InFlight is above 1, and all producers
// on it together two (SQLite: one, shared by all queues). What InFlight asks for beyond, and
// two for full groups where it is 1, is taken while there is enough to spare, and one for isolated messages. It is an error that says which limit would do if
// that leaves none for the application.
func (q *Queue[T]) Producer(cfg ProducerConfig) (*Producer[T], error) {
	p := &Producer[T]{
		in:       make(chan Message[T]),
		flushIn:  make(chan struct{}),
		received: make(chan struct{}),
		finished: make(chan struct{}),
	}
	p.open, p.shut = context.WithCancel(context.Background())
	p.abandoned, p.abandon = context.WithCancelCause(context.Background())
	own, err := q.core.producerConfig(cfg)
	if err == nil {
		p.core, err = newProducer[T](q.core, own, p.open, p.abandoned)
	}
	if err != nil {
		p.shut()
		p.abandon(nil)
		return nil, q.core.failed("producer", err)
	}
	p.workers.Go(p.intake)
	p.core.start()
	return p, nil
}

// producerConfig completes and checks a config.
func (q *queue) producerConfig(cfg ProducerConfig) (ProducerConfig, error) {
	cfg, err := cfg.withDefaults(q.dialect)
	if err == nil && q.ordered() && cfg.InFlight > 1 {
		err = fmt.Errorf("ProducerConfig.InFlight is %d: must be 1, since the queue is ordered, and statements side by side have no order", cfg.InFlight)
	}
	return cfg, err
}

// C is a channel to send on, unbuffered: a send that went through has handed the
// message over, and Close returns it if it could not be stored. From the
// beginning of Close nobody receives: a sender that may outlive the producer
// selects on Done, too. C is never closed by chanq; closing it is allowed and
// ends nothing but C.
func (p *Producer[T]) C() chan<- Message[T] { return p.in }

// ProducerStats is what a producer has to store.
type ProducerStats struct {
	Pending int // messages that were handed over and are neither stored nor known to be impossible to store
	// Isolated counts the messages that the database does not store while it stores others. Each is repeated by itself, with pauses
	// of up to 5 s, and delays no other, except that on an ordered queue the messages of its key wait behind it. They are among
	// those of Pending. See Hooks.Isolated.
	Isolated int
	Down     bool // the database does not answer
}

// Stats returns what is to be stored. It makes no database call.
func (p *Producer[T]) Stats() ProducerStats {
	s := p.core.writer.Stats()
	return ProducerStats{Pending: s.Open, Isolated: s.Isolated, Down: p.core.health.Away()}
}

// Done is closed when Close begins.
func (p *Producer[T]) Done() <-chan struct{} { return p.open.Done() }

// Send stores one message and waits for it: a nil error means that it is in the
// database. Sends of many goroutines share statements. If ctx ends first, Send
// returns an *OpError whose Unknown says whether the message may be stored yet.
// The Receipt has the message's ID in every case: sent again with that ID, it is
// not stored twice while it is in the queue. On SQLite a goroutine that holds a
// transaction must not call it: see Queue.
func (p *Producer[T]) Send(ctx context.Context, m Message[T]) (Receipt, error) {
	receipts, err := p.core.send(ctx, []Message[T]{m})
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
	return p.core.send(ctx, ms)
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
		return p.core.queue.failed("flush", context.Cause(ctx))
	}
	return p.core.queue.failed("flush", p.core.flushed(ctx))
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
		p.core.writer.Drain()
		go p.end()
	})
	if !first {
		return p.closed(ctx)
	}
	var unsent []Unsent[T]
	select {
	case <-p.finished:
	case <-ctx.Done():
		p.abandon(context.Cause(ctx))
		hand := p.giveUpHand()
		if hand == nil {
			<-p.received // soon: nothing is encoded any more, and nothing waited for
		}
		p.core.giveUp()
		unsent = hand
	}
	unsent = append(p.core.takeUnsent(), unsent...)
	if len(unsent) == 0 {
		return nil
	}
	return &UnsentError[T]{Unsent: unsent}
}

// end waits for the intake and the writer, and ends the rest.
func (p *Producer[T]) end() {
	p.workers.Wait()
	p.core.workers.Wait()
	p.abandon(nil)
	p.core.end()
	close(p.finished)
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
		return p.core.queue.failed("close", context.Cause(ctx))
	}
}
