package chanqshards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
)

// Producer stores messages in the shards where they belong. It is safe for concurrent use: a program needs only one for each queue. End
// it with Close.
//
// It has a chanq.Producer for each shard. Close joins all its own goroutines: the router, which receives from C, and one sender for
// each shard. A sender opens the shard if it did not answer before, and forwards the messages of C to its chanq.Producer.
type Producer[T any] struct {
	label   string
	rows    int           // BatchRows
	linger  time.Duration // Linger
	senders []*sender[T]
	spread  spread
	in      chan chanq.Message[T]
	flush   chan struct{}   // received by the router after all that was sent before
	holds   chan *sender[T] // from the router: the sender for the message that it holds, or nil
	usesC   atomic.Bool     // C was called

	open      context.Context // ends when Close begins
	shut      context.CancelFunc
	abandoned context.Context // ends when messages that are not stored yet are given up
	abandon   context.CancelFunc
	routed    chan struct{}     // the router has ended
	unsent    []chanq.Unsent[T] // of the router, until it has ended
	closing   sync.Once
	closed    chan struct{} // closed when the first Close has determined what is stored
	left      error         // of the first Close, for Flush; valid when closed is closed
}

// room is the number of messages of C that wait for each shard's chanq.Producer, and of unstorable messages that a sender keeps.
const room = 64

// Producer starts a producer. The shards divide ProducerConfig.BufferBytes equally; the other fields are for each shard. Its errors
// are those of chanq.Queue.Producer, and ctx is as there.
func (q *Queue[T]) Producer(ctx context.Context, cfg chanq.ProducerConfig) (*Producer[T], error) {
	if ctx.Err() != nil {
		return nil, q.places[0].fail("producer", chanq.ID{}, context.Cause(ctx))
	}
	p := &Producer[T]{
		label:  q.label,
		rows:   or(cfg.BatchRows, chanq.DefaultBatchRows),
		linger: or(cfg.Linger, chanq.DefaultLinger),
		in:     make(chan chanq.Message[T]),
		flush:  make(chan struct{}),
		holds:  make(chan *sender[T]),
		routed: make(chan struct{}),
		closed: make(chan struct{}),
	}
	cfg.BufferBytes = share(or(cfg.BufferBytes, chanq.DefaultBufferBytes), len(q.places))
	p.open, p.shut = context.WithCancel(context.Background())
	p.abandoned, p.abandon = context.WithCancel(context.Background())
	for _, place := range q.places {
		s := &sender[T]{p: p, place: place, cfg: cfg, in: make(chan handed[T], room), ready: make(chan struct{}), ended: make(chan struct{}), taken: make(chan struct{}, 1)}
		s.opening, s.giveUp = context.WithCancel(p.abandoned)
		if shard := place.queue.Load(); shard != nil {
			if s.start(shard, nil); s.err != nil {
				p.shut()
				p.abandon()
				for _, begun := range p.senders {
					if begun.shard != nil {
						_ = begun.shard.Close(context.Background()) // immediately: nothing was sent
					}
				}
				return nil, s.err
			}
		}
		p.senders = append(p.senders, s)
	}
	for _, s := range p.senders {
		go s.run()
	}
	go p.route()
	return p, nil
}

// or returns value, or standard if value is zero.
func or[N int | time.Duration](value, standard N) N {
	if value == 0 {
		return standard
	}
	return value
}

// share returns the part of a limit that each of n shards gets. An invalid value stays invalid.
func share(limit, n int) int {
	if limit < 0 {
		return limit
	}
	return max(1, limit/n)
}

// C is a channel to send on, as chanq.Producer.C is: Unsent or Close returns messages that could not be stored. When the messages for
// one shard fill its part of the buffer, C blocks for all messages. Use Send to avoid that.
func (p *Producer[T]) C() chan<- chanq.Message[T] {
	if !p.usesC.Load() {
		p.usesC.Store(true)
	}
	return p.in
}

// Done is closed when Close begins.
func (p *Producer[T]) Done() <-chan struct{} { return p.open.Done() }

// Stats returns the counts of messages that the shards' producers have to store, and whether the database of a shard does not answer. It
// makes no database call.
func (p *Producer[T]) Stats() (sum chanq.ProducerStats) {
	for _, s := range p.senders {
		stats := s.stats()
		sum.Pending += stats.Pending
		sum.Isolated += stats.Isolated
		sum.Down = sum.Down || stats.Down
	}
	return sum
}

// load returns how many messages a shard has to store. A shard that does not answer is chosen last, unless it has no message whose send
// would detect that it answers again.
func (s *sender[T]) load() int {
	stats := s.stats()
	if stats.Down && (stats.Pending > 0 || !s.isReady() || s.shard == nil) {
		return math.MaxInt
	}
	return stats.Pending
}

// leastLoaded returns the shard with the least load. parts are the messages that a batch adds to each shard, or nil.
func (p *Producer[T]) leastLoaded(parts [][]int) int {
	loads := make([]int, len(p.senders))
	for i, s := range p.senders {
		loads[i] = s.load()
		if parts != nil && loads[i] < math.MaxInt {
			loads[i] += len(parts[i])
		}
	}
	return p.spread.least(loads)
}

// senderOf returns the shard of a single message.
func (p *Producer[T]) senderOf(m chanq.Message[T]) *sender[T] {
	if i := chanq.ShardOf(m, len(p.senders)); i >= 0 {
		return p.senders[i]
	}
	now := time.Now()
	if i, ok := p.spread.again(now); ok {
		return p.senders[i]
	}
	i := p.leastLoaded(nil)
	p.spread.begin(p.rows-1, now.Add(p.linger))
	return p.senders[i]
}

// Send stores one message in the shard where it belongs, as chanq.Producer.Send does. If that shard does not answer, Send waits until
// it answers or ctx ends.
func (p *Producer[T]) Send(ctx context.Context, m chanq.Message[T]) (chanq.Receipt, error) {
	receipts, err := p.senderOf(m).send(ctx, []chanq.Message[T]{m})
	if batch := (*chanq.BatchError)(nil); errors.As(err, &batch) {
		err = batch.Errs[0]
	}
	return receipts[0], err
}

// SendBatch stores messages as chanq.Producer.SendBatch does, each in the shard where it belongs, and in all shards at the same time.
func (p *Producer[T]) SendBatch(ctx context.Context, ms ...chanq.Message[T]) ([]chanq.Receipt, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	parts := p.divide(ms)
	receipts, errs := make([]chanq.Receipt, len(ms)), make([]error, len(ms))
	failed := each(len(parts), func(i int) error {
		those := make([]chanq.Message[T], len(parts[i]))
		for j, at := range parts[i] {
			those[j] = ms[at]
		}
		got, err := p.senders[i].send(ctx, those)
		batch := (*chanq.BatchError)(nil)
		errors.As(err, &batch)
		for j, at := range parts[i] {
			if receipts[at] = got[j]; batch != nil {
				errs[at] = batch.Errs[j]
			}
		}
		return err
	})
	if failed == nil {
		return receipts, nil
	}
	return receipts, &chanq.BatchError{Op: "send", Errs: errs}
}

// divide returns the indexes in ms of the messages for each shard. Messages that may go to any shard are divided in units of a statement.
func (p *Producer[T]) divide(ms []chanq.Message[T]) [][]int {
	parts := make([][]int, len(p.senders))
	any, left := 0, 0
	for at, m := range ms {
		i := chanq.ShardOf(m, len(p.senders))
		if i < 0 {
			if left == 0 {
				any, left = p.leastLoaded(parts), p.rows
			}
			left--
			i = any
		}
		parts[i] = append(parts[i], at)
	}
	return parts
}

// route receives from C until Close begins.
func (p *Producer[T]) route() {
	defer func() {
		for _, s := range p.senders {
			if len(s.in) == 0 {
				s.giveUp() // no message waits for the shard
			}
		}
		close(p.routed)
	}()
	in := p.in
	for p.open.Err() == nil {
		select {
		case m, ok := <-in:
			if !ok {
				in = nil // closed by its sender
				continue
			}
			s := p.senderOf(m)
			for held := true; held; {
				select {
				case s.in <- handed[T]{message: m}:
					held = false
				case p.holds <- s: // calls for other shards need not wait
				case <-p.abandoned.Done():
					p.unsent = append(p.unsent, s.unsentOf(m, s.place.fail("send", m.ID, chanq.ErrClosed)))
					held = false
				}
			}
		case <-p.flush:
		case p.holds <- nil:
		case <-p.open.Done():
		}
	}
}

// Unsent returns the messages of all shards that came through C and could not be stored, as chanq.Producer.Unsent does.
func (p *Producer[T]) Unsent() (all []chanq.Unsent[T]) {
	for _, s := range p.senders {
		all = append(all, s.take()...)
	}
	return all
}

// Flush waits until every message handed over before, even through C, is stored or known to be impossible to store, or ctx ends: see
// chanq.Producer.Flush. It waits for shards that do not answer. Once Close has begun, Flush waits for Close, and returns an error if
// Close could not store everything.
func (p *Producer[T]) Flush(ctx context.Context) error {
	failed := func(err error) error { return fmt.Errorf("chanq: flush %s: %w", p.label, err) }
	select {
	case p.flush <- struct{}{}:
		err := each(len(p.senders), func(i int) error { return p.senders[i].flush(ctx) })
		if err != nil || p.open.Err() == nil {
			return err
		}
	case <-p.open.Done():
	case <-ctx.Done():
		return failed(context.Cause(ctx))
	}
	select {
	case <-p.closed:
	case <-ctx.Done():
		return failed(context.Cause(ctx))
	}
	if p.left != nil {
		return failed(p.left)
	}
	return nil
}

// Close stores everything that was handed over and ends the producer, as chanq.Producer.Close does. It waits for shards that do not
// answer until ctx ends. Its error has a *chanq.UnsentError with the messages that came through C and are not known to be stored, and the
// errors of shards that Close gave up.
func (p *Producer[T]) Close(ctx context.Context) error {
	first := false
	p.closing.Do(func() { first = true })
	if !first {
		select {
		case <-p.closed:
		case <-ctx.Done():
			return fmt.Errorf("chanq: close %s: %w", p.label, context.Cause(ctx))
		}
		return each(len(p.senders), func(i int) error {
			if s := p.senders[i]; s.shard != nil {
				return s.shard.Close(ctx) // waits for its goroutines
			}
			return nil
		})
	}
	defer close(p.closed)
	p.shut()
	defer context.AfterFunc(ctx, p.abandon)()
	<-p.routed
	unsent := make([][]chanq.Unsent[T], len(p.senders))
	p.left = each(len(p.senders), func(i int) (err error) {
		unsent[i], err = p.senders[i].close(ctx)
		return err
	})
	p.abandon()
	var all []chanq.Unsent[T]
	for _, some := range append(unsent, p.unsent) {
		all = append(all, some...)
	}
	err := p.left
	if len(all) > 0 {
		err = errors.Join(&chanq.UnsentError[T]{Unsent: all}, err)
		p.left = fmt.Errorf("messages sent on C that could not be stored: %d, Close returns them; first: %w", len(all), all[0].Err)
	}
	return err
}
