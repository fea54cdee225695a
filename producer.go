package chanq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sync/semaphore"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// ProducerConfig tunes a Producer. The zero value is right for most.
type ProducerConfig struct {
	// BatchRows and BatchBytes bound one statement. A body above BatchBytes goes
	// alone. Defaults 500 (at most 512) and 4 MiB.
	BatchRows, BatchBytes int
	// Linger is how long a message waits at most for others to share its
	// statement, while none is under way. A message that comes alone does not
	// wait. Default 5 ms.
	Linger time.Duration
	// InFlight is how many statements may be under way at once. Default 1: what
	// one goroutine sends is claimed in its order. More trades that for
	// throughput. At most 64.
	InFlight int
	// BufferBytes bounds the messages that are handed over and not stored yet,
	// and those that cannot be stored and wait for Close; sends block when it is
	// reached. Default 16 MiB.
	BufferBytes int
	// StatementTimeout is the deadline of every statement: one that takes longer is
	// cancelled and repeated. Default 30 s.
	StatementTimeout time.Duration
}

func (c ProducerConfig) withDefaults(d sqlbatch.Dialect) (ProducerConfig, error) {
	v := validator{}
	v.limit("ProducerConfig.BatchRows", &c.BatchRows, 500, 1, min(512, d.Traits().EnqueueRows))
	v.limit("ProducerConfig.BatchBytes", &c.BatchBytes, 4<<20, 1, 256<<20)
	v.duration("ProducerConfig.Linger", &c.Linger, 5*time.Millisecond, time.Microsecond, time.Minute)
	v.limit("ProducerConfig.InFlight", &c.InFlight, 1, 1, 64)
	v.limit("ProducerConfig.BufferBytes", &c.BufferBytes, 16<<20, 1, 1<<40)
	v.duration("ProducerConfig.StatementTimeout", &c.StatementTimeout, 30*time.Second, time.Millisecond, time.Hour)
	return c, v.err()
}

// Producer stores messages, many to a statement. It is safe for concurrent use:
// one for each queue is enough for a program. End it by Close.
//
// Its goroutines, all joined by Close: the intake, which reads C; InFlight
// storers, each with a connection of its own; and at first one that connects.
type Producer[T any] struct {
	queue    *queue
	cfg      ProducerConfig
	sessions *sessions
	health   health
	in       chan Message[T] // unbuffered: what was sent is in the intake's hands
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

	mu      sync.Mutex
	pending []*pending[T] // handed over, in no statement yet; by seq
	bytes   int           // of pending
	pace    pacer
	since   time.Time       // when the oldest of pending came
	added   uint64          // count of messages ever handed over
	flying  [][]*pending[T] // the groups that are being stored
	urgent  uint64          // store without lingering below this seq
	waiters []flushWaiter
	drained bool // the intake has ended: nothing more will come
	unsent  []Unsent[T]
	work    chan struct{}
	hand    *hand[T] // of the intake, while a codec has what it took from C
}

// hand is what the intake has received and not handed over.
type hand[T any] struct {
	ready []pending[T] // encoded
	now   pending[T]   // at the codec; its origin is the message
	given bool         // Close gave it up
}

// Producer starts a producer. It needs InFlight connections of the *sql.DB
// besides those of the application and of what else runs on it (SQLite: one,
// shared by all queues), and is an error where SetMaxOpenConns leaves fewer.
func (q *Queue[T]) Producer(cfg ProducerConfig) (*Producer[T], error) {
	cfg, err := cfg.withDefaults(q.core.dialect)
	var pools []*sessions
	if err == nil {
		pools, err = openSessions(q.core.db, q.core.dialect, q.core.cfg.SessionMaxAge, session.Need{Kind: session.Enqueue, Sessions: cfg.InFlight})
	}
	if err != nil {
		return nil, fmt.Errorf("chanq: producer %s: %w", q.core.name, err)
	}
	p := &Producer[T]{
		queue: q.core, cfg: cfg,
		sessions: pools[0],
		health:   health{queue: q.core, part: "producer"},
		in:       make(chan Message[T]),
		flushIn:  make(chan struct{}),
		buffer:   semaphore.NewWeighted(int64(cfg.BufferBytes)),
		received: make(chan struct{}),
		finished: make(chan struct{}),
		pace:     pacer{full: cfg.BatchRows, linger: cfg.Linger},
		work:     make(chan struct{}, 1),
	}
	p.open, p.shut = context.WithCancel(context.Background())
	p.abandoned, p.abandon = context.WithCancel(context.Background())
	p.workers.Go(p.intake)
	p.workers.Go(p.connect)
	for range cfg.InFlight {
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
	p.mu.Lock()
	w := flushWaiter{target: p.added, done: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.urgent = max(p.urgent, p.added)
	p.wakeFlushers()
	p.mu.Unlock()
	notify(p.work)
	select {
	case <-w.done:
	case <-ctx.Done():
		return fmt.Errorf("chanq: flush %s: %w", p.queue.name, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.unsent); n > 0 {
		return fmt.Errorf("chanq: flush %s: %d messages sent on C could not be stored, Close returns them; first: %w", p.queue.name, n, p.unsent[0].Err)
	}
	return nil
}

// wakeFlushers ends the waits of Flush for what has an outcome. mu is held.
func (p *Producer[T]) wakeFlushers() {
	oldest := p.added
	if len(p.pending) > 0 {
		oldest = p.pending[0].seq
	}
	for _, group := range p.flying {
		oldest = min(oldest, group[0].seq)
	}
	p.waiters = slices.DeleteFunc(p.waiters, func(w flushWaiter) bool {
		if w.target > oldest {
			return false
		}
		close(w.done)
		return true
	})
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
		go func() { // ends when the intake and the storers have
			p.workers.Wait()
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

// intake receives from C until Close begins. A codec that leaves by runtime.Goexit
// takes its goroutine along; another one goes on.
func (p *Producer[T]) intake() {
	through := false
	defer func() {
		if !through {
			p.workers.Go(p.intake)
			return
		}
		p.mu.Lock()
		p.drained = true
		p.mu.Unlock()
		notify(p.work)
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
	through = true
}

// handOver hands a message of C over, and with it, up to a limit, those whose
// senders wait behind it.
func (p *Producer[T]) handOver(m Message[T]) {
	const most = 64
	var items []pending[T]
	size := 0
	defer func() { // a codec may leave by runtime.Goexit
		if len(items) > 0 {
			p.pushInTurn(items, size)
		}
	}()
	for ok := true; ok; {
		item, err := p.encode(m, items)
		switch {
		case err == errGivenUp:
			items = nil
			return
		case err != nil:
			p.keepUnsent(item, err)
		case size+item.size > p.cfg.BufferBytes: // never has room for both
			p.pushInTurn(items, size)
			items, size = append([]pending[T](nil), item), item.size
		default:
			items, size = append(items, item), size+item.size
		}
		if len(items) == most || size >= p.cfg.BufferBytes/4 {
			break
		}
		select {
		case m, ok = <-p.in:
		default:
			ok = false
		}
	}
}

// errGivenUp: Close has answered for what is in the intake's hand.
var errGivenUp = errors.New("given up")

// encode prepares a message of C. Close must not wait for the user's codec: while
// that has the message, it and what was received before it are in p.hand.
func (p *Producer[T]) encode(m Message[T], ready []pending[T]) (item pending[T], err error) {
	if !meetsCodec[T]() {
		item, err = p.prepare(&m)
		item.origin = m
		return item, err
	}
	if m.ID.IsZero() {
		m.ID = NewID() // as it may have to be returned with one
	} else {
		item.given = true
	}
	item.origin, item.size = m, rowOverhead
	h := &hand[T]{ready: ready, now: item}
	p.mu.Lock()
	if p.abandoned.Err() != nil {
		p.mu.Unlock()
		return item, ErrClosed
	}
	p.hand = h
	p.mu.Unlock()
	left := true
	defer func() {
		p.mu.Lock()
		p.hand = nil
		gone := h.given
		p.mu.Unlock()
		switch {
		case gone:
			err = errGivenUp
		case left:
			p.keepUnsent(item, fmt.Errorf("Message.Body: codec %w", errLeft))
		}
	}()
	given := item.given
	item, err = p.prepare(&m)
	item.origin, item.given = m, given
	left = false
	return item, err
}

// giveUpHand answers for what is at the codec, and before it in the intake's hand, if
// there is such. Close has abandoned the producer, so nothing comes to a codec any more.
func (p *Producer[T]) giveUpHand() (unsent []Unsent[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hand
	if h == nil {
		return nil
	}
	h.given = true
	for _, item := range append(h.ready[:len(h.ready):len(h.ready)], h.now) {
		unsent = append(unsent, Unsent[T]{Message: item.origin, Err: p.sendError(item.origin.ID, ErrClosed, false)})
	}
	return unsent
}

// pushInTurn pushes what came through C once the buffer has room. When Close
// begins it waits no more: nothing comes after what is in hand, and messages that
// could not be stored keep their room until Close.
func (p *Producer[T]) pushInTurn(items []pending[T], size int) {
	if p.reserve(p.open, size) != nil {
		for i := range items {
			items[i].size = 0
		}
		size = 0
	}
	p.push(items, size)
}

// keepUnsent keeps a message that cannot be stored until Close; it takes room
// in the buffer like any other. One with too large a body takes that of the
// largest that is allowed, lest it keep all others out.
func (p *Producer[T]) keepUnsent(item pending[T], err error) {
	_ = p.reserve(p.open, min(item.size, p.queue.cfg.MaxBody+rowOverhead)) // kept in any case
	p.mu.Lock()
	p.unsent = append(p.unsent, Unsent[T]{Message: item.origin, Err: p.sendError(item.origin.ID, err, false)})
	p.mu.Unlock()
}
