package chanqshards

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chanq/chanq"
)

// sender is the part of a Producer for one shard.
type sender[T any] struct {
	p     *Producer[T]
	place *place[T]
	cfg   chanq.ProducerConfig
	in    chan handed[T] // messages of the router for this shard

	opening context.Context // ends when the attempts to open the shard end
	giveUp  context.CancelFunc
	ready   chan struct{}      // closed when shard or err is set
	shard   *chanq.Producer[T] // nil if err is set
	err     error              // why nothing can be sent to this shard
	ordered bool               // the shard's queue is ordered

	ended chan struct{}
	taken chan struct{} // of capacity 1: has a value after unsent was taken

	mu     sync.Mutex        // guards unsent
	unsent []chanq.Unsent[T] // that were passed to no chanq.Producer
}

// handed is a message of C, or a call that waits until all previous messages were forwarded.
type handed[T any] struct {
	message chanq.Message[T]
	reached chan struct{} // nil: a message
}

// start starts the producer of the shard.
func (s *sender[T]) start(shard *chanq.Queue[T], err error) {
	if err == nil {
		s.shard, err = shard.Producer(s.opening, s.cfg)
		s.ordered = shard.Spec().Kind == chanq.KindOrdered
	}
	s.err = err
	close(s.ready)
}

// isReady reports whether the shard's producer was started, or cannot be started.
func (s *sender[T]) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// run opens the shard, if it is not open, and forwards the messages that the router received.
func (s *sender[T]) run() {
	defer close(s.ended)
	if !s.isReady() {
		shard, err := s.place.await(s.opening, "producer")
		if s.opening.Err() != nil {
			err = s.place.fail("send", chanq.ID{}, chanq.ErrClosed)
		}
		s.start(shard, err)
	}
	for {
		select {
		case h := <-s.in:
			s.forward(h)
		case <-s.p.routed:
			for {
				select {
				case h := <-s.in:
					s.forward(h)
				default:
					return
				}
			}
		}
	}
}

func (s *sender[T]) forward(h handed[T]) {
	switch {
	case h.reached != nil:
		close(h.reached)
		return
	case s.shard == nil:
		s.keep(s.unsentOf(h.message, s.err))
		return
	}
	select {
	case s.shard.C() <- h.message:
	case <-s.p.abandoned.Done():
		s.keep(s.unsentOf(h.message, s.place.fail("send", h.message.ID, chanq.ErrClosed)))
	}
}

// keep keeps a message that cannot be stored. Their number is bounded: at the bound C blocks until they are taken or Close begins.
func (s *sender[T]) keep(u chanq.Unsent[T]) {
	for {
		open := s.p.open.Err() == nil
		s.mu.Lock()
		kept := !open || len(s.unsent) < room
		if kept {
			s.unsent = append(s.unsent, u)
		}
		s.mu.Unlock()
		switch {
		case kept && open:
			chanq.JoinHooks(s.place.cfg.Hooks).Unsent(chanq.UnsentEvent{Queue: s.place.cfg.Label, ID: u.Message.ID, Err: u.Err})
			return
		case kept:
			return
		}
		select {
		case <-s.taken:
		case <-s.p.open.Done():
		}
	}
}

// take returns the messages that could not be stored, each to one caller.
func (s *sender[T]) take() []chanq.Unsent[T] {
	s.mu.Lock()
	unsent := s.unsent
	s.unsent = nil
	s.mu.Unlock()
	select {
	case s.taken <- struct{}{}:
	default:
	}
	if s.isReady() && s.shard != nil {
		unsent = append(s.shard.Unsent(), unsent...)
	}
	return unsent
}

// unsentOf returns a message that was passed to no chanq.Producer.
func (s *sender[T]) unsentOf(m chanq.Message[T], err error) chanq.Unsent[T] {
	if m.ID.IsZero() {
		m.ID = chanq.NewID()
	}
	return chanq.Unsent[T]{Message: m, Err: err}
}

// wait waits until the shard's producer is started.
func (s *sender[T]) wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return s.err
	default:
	}
	select {
	case <-s.ready:
		return s.err
	case <-s.p.open.Done():
		return s.place.fail("send", chanq.ID{}, chanq.ErrClosed)
	case <-ctx.Done():
		return s.place.fail("send", chanq.ID{}, context.Cause(ctx))
	}
}

// send stores messages in the shard.
func (s *sender[T]) send(ctx context.Context, ms []chanq.Message[T]) ([]chanq.Receipt, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	err := s.wait(ctx)
	if err == nil {
		err = s.awaitRouter(ctx)
	}
	if err == nil {
		return s.shard.SendBatch(ctx, ms...)
	}
	receipts, errs := make([]chanq.Receipt, len(ms)), make([]error, len(ms))
	for i, m := range ms {
		u := s.unsentOf(m, err)
		receipts[i].ID, errs[i] = u.Message.ID, u.Err
	}
	return receipts, &chanq.BatchError{Op: "send", Errs: errs}
}

// awaitRouter waits, on an ordered queue, until the shard's producer has the messages that the caller's goroutine sent to this shard on
// C. It does not wait for messages of other shards.
func (s *sender[T]) awaitRouter(ctx context.Context) error {
	if !s.ordered || !s.p.usesC.Load() {
		return nil
	}
	holds, idle := s.p.holds, chan<- struct{}(nil)
	for {
		select {
		case to := <-holds:
			if to != s {
				return s.reach(ctx, "send")
			}
			holds, idle = nil, s.p.flush
		case idle <- struct{}{}:
			return s.reach(ctx, "send")
		case <-s.p.open.Done(): // the message is refused
			return nil
		case <-ctx.Done():
			return s.place.fail("send", chanq.ID{}, context.Cause(ctx))
		}
	}
}

// reach waits until run has forwarded the messages that it received before, or has ended.
func (s *sender[T]) reach(ctx context.Context, op string) error {
	reached := make(chan struct{})
	select {
	case s.in <- handed[T]{reached: reached}:
	case <-s.ended:
	case <-ctx.Done():
		return s.place.fail(op, chanq.ID{}, context.Cause(ctx))
	}
	select {
	case <-reached:
	case <-s.ended:
	case <-ctx.Done():
		return s.place.fail(op, chanq.ID{}, context.Cause(ctx))
	}
	return nil
}

func (s *sender[T]) stats() chanq.ProducerStats {
	waiting := len(s.in)
	if !s.isReady() || s.shard == nil {
		return chanq.ProducerStats{Pending: waiting, Down: true}
	}
	stats := s.shard.Stats()
	stats.Pending += waiting
	return stats
}

// flush waits until the router's messages for the shard are stored. It skips a shard that is not open yet and has no message.
func (s *sender[T]) flush(ctx context.Context) error {
	if !s.isReady() && len(s.in) == 0 {
		return nil
	}
	if err := s.reach(ctx, "flush"); err != nil {
		return err
	}
	if s.shard != nil {
		return s.shard.Flush(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.unsent); n > 0 {
		return fmt.Errorf("chanq: flush %s: messages sent on C that could not be stored: %d, Unsent returns them; first: %w", s.place.cfg.Label, n, s.unsent[0].Err)
	}
	return nil
}

// close ends the shard's producer, and returns the messages that were not stored there, or another error. The router has ended.
func (s *sender[T]) close(ctx context.Context) (unsent []chanq.Unsent[T], err error) {
	<-s.ended // soon after ctx
	s.giveUp()
	if s.shard != nil {
		err = s.shard.Close(ctx)
	}
	if those := (*chanq.UnsentError[T])(nil); errors.As(err, &those) {
		unsent, err = those.Unsent, nil
	}
	return append(unsent, s.take()...), err
}
