package chanqshards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/lease"
)

// Consumer receives from all shards of a queue and delivers their leases on one channel. It is safe for concurrent use. To end it,
// call Stop or end Consume's context, and then call Shutdown.
//
// It has a chanq.Consumer for each shard, whose buffers hold the messages that wait for readers. Its own goroutines, which Shutdown
// joins, are one watcher for each shard, which opens the shard if it did not answer before and ends all other consumers when its
// consumer ends; and, unless only HandleBatches or Pipe read, one mover for each shard, which holds one lease until a reader takes
// it.
type Consumer[T any] struct {
	label   string
	readers []*reader[T]
	takers  lease.Readers        // of out
	out     chan *chanq.Lease[T] // unbuffered: waiting movers are served in turn
	stop    context.Context      // the parent of the shards' consumers
	stopNow context.CancelFunc
	moving  sync.Once
	watches conc.WaitGroup
	ended   chan struct{} // movers and watchers have ended

	mu  sync.Mutex // guards err
	err error
}

// reader is the part of a Consumer for one shard.
type reader[T any] struct {
	place *place[T]
	cfg   chanq.ConsumerConfig
	mover *lease.Mover
	ctx   context.Context    // of shard
	ready chan struct{}      // closed when shard is set
	shard *chanq.Consumer[T] // nil: the shard was never opened
	stuck error              // of await, if it left a goroutine behind
}

// leastPrefetch is the least Prefetch of a shard: smaller claims would cost a statement for few messages.
const leastPrefetch = 16

// Consume starts a consumer, as chanq.Queue.Consume does. The shards divide ConsumerConfig.Prefetch and PrefetchBytes equally. Each
// shard buffers at least 16 messages, or Prefetch if that is less. A body that is larger than a shard's part of PrefetchBytes is
// delivered alone, so n shards may hold n such bodies. With StopWhenIdle each shard stops when it is idle, and the consumer ends after
// the last one: what a handler sends to a shard that has stopped is left for the next consumer. A permanent error in one shard ends the
// consumer.
func (q *Queue[T]) Consume(ctx context.Context, cfg chanq.ConsumerConfig) (*Consumer[T], error) {
	n := len(q.places)
	prefetch := or(cfg.Prefetch, chanq.DefaultPrefetch)
	cfg.Prefetch = max(share(prefetch, n), min(prefetch, leastPrefetch))
	cfg.PrefetchBytes = share(or(cfg.PrefetchBytes, chanq.DefaultPrefetchBytes), n)
	c := &Consumer[T]{label: q.label, out: make(chan *chanq.Lease[T]), ended: make(chan struct{})}
	c.stop, c.stopNow = context.WithCancel(ctx)
	for _, place := range q.places {
		r := &reader[T]{place: place, cfg: cfg, ready: make(chan struct{})}
		r.mover, r.ctx = c.takers.Mover(c.stop)
		if queue := place.queue.Load(); queue != nil {
			var err error
			if r.shard, err = queue.Consume(r.ctx, cfg); err != nil {
				c.stopNow()
				for _, begun := range c.readers {
					if begun.shard != nil {
						_ = begun.shard.Shutdown(c.stop) // nothing was delivered
					}
				}
				return nil, err
			}
			close(r.ready)
		}
		c.readers = append(c.readers, r)
	}
	for _, r := range c.readers {
		c.watches.Go(func() { c.watch(r) })
	}
	return c, nil
}

// watch opens the shard, if it is not open. It ends the consumer when the shard's consumer fails, or is the last one to stop.
func (c *Consumer[T]) watch(r *reader[T]) {
	select {
	case <-r.ready:
	default:
		queue, err := r.place.await(c.stop, "consumer")
		if err == nil {
			r.shard, err = queue.Consume(r.ctx, r.cfg)
		}
		if errors.Is(err, chanq.ErrStopped) {
			r.stuck = err
		}
		close(r.ready)
		if err != nil {
			if c.stop.Err() == nil {
				c.fail(err)
			}
			return
		}
	}
	<-r.shard.Done()
	if err := r.shard.Err(); err != nil {
		c.fail(err)
	}
	for _, r := range c.readers {
		if !r.hasStopped() {
			return
		}
	}
	c.stopNow()
}

// hasStopped reports whether the shard's consumer has begun to stop.
func (r *reader[T]) hasStopped() bool {
	if !r.isReady() || r.shard == nil {
		return r.isReady() // it was never opened
	}
	select {
	case <-r.shard.Done():
		return true
	default:
		return false
	}
}

// fail ends the consumer with a permanent error.
func (c *Consumer[T]) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.stopNow()
}

// move starts the movers.
func (c *Consumer[T]) move() {
	c.moving.Do(func() {
		var movers conc.WaitGroup
		for _, r := range c.readers {
			movers.Go(func() { c.moveAll(r) })
		}
		go func() {
			movers.Wait()
			close(c.out)
			c.watches.Wait()
			close(c.ended)
		}()
	})
}

// moveAll is a mover. A lease that it holds when the consumer stops is released.
func (c *Consumer[T]) moveAll(r *reader[T]) {
	<-r.ready
	if r.shard == nil {
		return
	}
	for l := range r.shard.All() {
		r.mover.Offer(l.ID)
		select {
		case c.out <- l:
			r.mover.Taken()
		case <-c.stop.Done():
			_ = l.Release() // an error means that the lease has ended
			return
		}
	}
}

// C is the channel of leases, unbuffered. It is closed once: after Stop, the end of Consume's context, a permanent error (see Err) or the
// end of a consumer with StopWhenIdle. Shards with waiting leases are served in turn, so a shard with many messages does not block the
// others.
func (c *Consumer[T]) C() <-chan *chanq.Lease[T] {
	c.move()
	return c.out
}

// All yields leases until the channel closes (see Err). It skips leases that expired before a reader took them. Leaving the loop
// stops the consumer.
func (c *Consumer[T]) All() iter.Seq[*chanq.Lease[T]] {
	return func(yield func(*chanq.Lease[T]) bool) {
		defer c.Stop()
		for l := range c.C() {
			if !skip(l) && !yield(l) {
				return
			}
		}
	}
}

// skip reports whether a lease expired before a reader took it, and releases it.
func skip[T any](l *chanq.Lease[T]) bool {
	if time.Now().Before(l.Deadline()) {
		return false
	}
	_ = l.Release() // an error means that the lease has ended
	return true
}

// Receive waits for a lease, takes the buffered leases of the shards, and then waits at most wait for more, up to maxBatch leases in all:
// see chanq.Consumer.Receive.
func (c *Consumer[T]) Receive(ctx context.Context, maxBatch int, wait time.Duration) ([]*chanq.Lease[T], error) {
	if err := checkBatch(maxBatch, wait); err != nil {
		return nil, fmt.Errorf("chanq: receive %s: %w", c.label, err)
	}
	var batch []*chanq.Lease[T]
	for len(batch) == 0 {
		if ctx.Err() != nil { // also if a lease is buffered
			return nil, fmt.Errorf("chanq: receive %s: %w", c.label, context.Cause(ctx))
		}
		select {
		case l, open := <-c.C():
			if !open {
				return nil, c.ending()
			}
			if !skip(l) {
				batch = c.buffered([]*chanq.Lease[T]{l}, maxBatch)
			}
		case <-ctx.Done():
		}
	}
	if wait == 0 {
		return batch, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for len(batch) < maxBatch {
		select {
		case l, open := <-c.out:
			if !open {
				return batch, nil
			}
			if !skip(l) {
				batch = append(batch, l)
			}
		case <-timer.C:
			return batch, nil
		case <-ctx.Done():
			return batch, nil
		}
	}
	return batch, nil
}

// ending returns the reason why no more leases come.
func (c *Consumer[T]) ending() error {
	if err := c.Err(); err != nil {
		return err
	}
	return &chanq.OpError{Op: "receive", Queue: c.label, Err: chanq.ErrClosed}
}

// buffered adds the leases that the shards have buffered to a batch, without waiting.
func (c *Consumer[T]) buffered(batch []*chanq.Lease[T], maxBatch int) []*chanq.Lease[T] {
	for _, r := range c.readers {
		for more := r.isReady() && r.shard != nil; more && len(batch) < maxBatch; {
			select {
			case l, open := <-r.shard.C():
				if more = open; open && !skip(l) {
					batch = append(batch, l)
				}
			default:
				more = false
			}
		}
	}
	return batch
}

func (r *reader[T]) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// Handle calls fn for each lease, in up to workers goroutines, and ends the consumer, as chanq.Consumer.Handle does. A shard that
// does not answer occupies no worker.
func (c *Consumer[T]) Handle(workers int, fn chanq.Handler[T]) error {
	if err := checkHandler(workers, fn == nil); err != nil {
		return fmt.Errorf("chanq: handle %s: %w", c.label, err)
	}
	return c.serve(func() error { return chanq.Handle(c.C(), workers, fn) })
}

// HandleBatches calls fn for batches, and ends the consumer, as chanq.Consumer.HandleBatches does. The leases of a batch are of one
// shard, Queue.Origin(batch[0]), so that one transaction can ack them all. fn is called in up to workers goroutines for each shard. A
// shard that does not answer delays no other shard.
func (c *Consumer[T]) HandleBatches(workers, maxBatch int, wait time.Duration, fn func(context.Context, []*chanq.Lease[T]) error) error {
	err := cmp.Or(checkHandler(workers, fn == nil), checkBatch(maxBatch, wait))
	if err == nil && len(c.readers[0].cfg.Middleware) > 0 {
		err = errors.New("ConsumerConfig.Middleware is set: must be empty for batches, since it gets one delivery; or use Handle")
	}
	if err != nil {
		return fmt.Errorf("chanq: handle batches %s: %w", c.label, err)
	}
	return c.serve(func() error {
		return c.onEach(func(_ int, shard *chanq.Consumer[T]) error { return shard.HandleBatches(workers, maxBatch, wait, fn) })
	})
}

// checkHandler is the function of package chanq, called before c.serve waits for the consumer to stop.
func checkHandler(workers int, none bool) error {
	switch {
	case workers < 1:
		return fmt.Errorf("workers is %d: must be at least 1", workers)
	case none:
		return errors.New("fn must not be nil")
	}
	return nil
}

// checkBatch is the function of package chanq.
func checkBatch(maxBatch int, wait time.Duration) error {
	switch {
	case maxBatch < 1:
		return fmt.Errorf("maxBatch is %d: must be at least 1", maxBatch)
	case wait < 0:
		return fmt.Errorf("wait is %v: must not be negative", wait)
	}
	return nil
}

// serve runs work, which calls handlers until the consumer stops, and ends the consumer within the bound of chanq.Consumer.Handle.
func (c *Consumer[T]) serve(work func() error) error {
	over := make(chan error, 1)
	go func() { over <- work() }()
	<-c.stop.Done()
	bound, cancel := context.WithTimeoutCause(context.Background(), or(c.readers[0].cfg.DrainFor, chanq.DefaultDrainFor), chanq.ErrStopped)
	defer cancel()
	err := c.Shutdown(bound)
	if err == nil { // every call has returned
		err = <-over
	}
	return cmp.Or(c.Err(), err)
}

// onEach calls f for each shard at the same time, as soon as the shard is open. An error stops the consumer.
func (c *Consumer[T]) onEach(f func(i int, shard *chanq.Consumer[T]) error) error {
	return each(len(c.readers), func(i int) error {
		r := c.readers[i]
		if <-r.ready; r.shard == nil {
			return nil // the consumer has stopped
		}
		err := f(i, r.shard)
		if err != nil {
			c.Stop()
		}
		return err
	})
}

// Stop ends the consumers of all shards and releases the leases that no reader has taken. It returns immediately. Delivered leases
// may still be settled.
func (c *Consumer[T]) Stop() { c.stopNow() }

// Done is closed when the consumer begins to stop. By then Err returns the permanent error, if there is one.
func (c *Consumer[T]) Done() <-chan struct{} { return c.stop.Done() }

// Err returns the permanent error of a shard that ended the consumer, or nil.
func (c *Consumer[T]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readers {
		if c.err == nil && r.isReady() && r.shard != nil {
			c.err = r.shard.Err()
		}
	}
	return c.err
}

// Shutdown ends the consumers of all shards as chanq.Consumer.Shutdown does, within the same time, and joins all goroutines. Its
// error names the shards.
func (c *Consumer[T]) Shutdown(ctx context.Context) error {
	c.Stop()
	c.move() // so that the channel closes
	err := each(len(c.readers), func(i int) error {
		r := c.readers[i]
		select {
		case <-r.ready:
		case <-ctx.Done():
			if !r.isReady() { // a shard that is ready returns its own error
				return r.place.fail("shutdown", chanq.ID{}, context.Cause(ctx))
			}
		}
		if r.shard == nil {
			return r.stuck
		}
		return r.shard.Shutdown(ctx)
	})
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
	return err
}

// Flush waits until every settle that was handed over before is stored or refused, in all shards, or ctx ends.
func (c *Consumer[T]) Flush(ctx context.Context) error {
	return c.ofEach(func(shard *chanq.Consumer[T]) error { return shard.Flush(ctx) })
}

// ofEach calls f for the consumer of each shard that is open.
func (c *Consumer[T]) ofEach(f func(*chanq.Consumer[T]) error) error {
	return each(len(c.readers), func(i int) error {
		if r := c.readers[i]; r.isReady() && r.shard != nil {
			return f(r.shard)
		}
		return nil
	})
}

// Stats returns the sums of the shards' counts. It makes no database call. A lease that waits between its shard's buffer and a reader
// counts as held and not as buffered.
func (c *Consumer[T]) Stats() (sum chanq.ConsumerStats) {
	for _, r := range c.readers {
		if r.isReady() && r.shard != nil {
			add(&sum, r.shard.Stats())
		}
	}
	return sum
}

func add(sum *chanq.ConsumerStats, s chanq.ConsumerStats) {
	sum.Claimed += s.Claimed
	sum.Claims += s.Claims
	sum.EmptyClaims += s.EmptyClaims
	sum.Looks += s.Looks
	sum.Acked += s.Acked
	sum.Nacked += s.Nacked
	sum.Released += s.Released
	sum.Dead += s.Dead
	sum.Lost += s.Lost
	sum.Buffered += s.Buffered
	sum.Waiting += s.Waiting
	sum.Slots += s.Slots
	sum.BlockedKeys += s.BlockedKeys
	sum.Held += s.Held
	sum.Settling += s.Settling
	sum.Isolated += s.Isolated
}
