package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// hotKeys is the number of keys that have all blocked messages.
const hotKeys = 20

// blocked is an ordered queue with undeliverable messages, because the reader holds the first
// message of each of their keys, and a consumer that continues with other keys.
type blocked struct {
	store    *store
	consumer *chanq.Consumer[[]byte]
	producer *chanq.Producer[[]byte]
	held     []*chanq.Lease[[]byte]
	free     *keys // keys whose slots have no hot key
}

// beginBlocked creates a queue for each size, and keeps the first message of each hot key in
// processing. A measurement sends messages of other keys, which the same consumer reads and acks.
func beginBlocked(ctx context.Context, o options, _ string, sizes []int) (growthRun, error) {
	queues := map[int]*blocked{}
	run := growthRun{end: func() error {
		var errs []error
		for _, b := range queues {
			errs = append(errs, b.end(context.WithoutCancel(ctx)))
		}
		return errors.Join(errs...)
	}}
	for _, size := range sizes {
		s, err := openQueue(ctx, o.ordered(o.keys))
		if err != nil {
			return run, err
		}
		b := &blocked{store: s}
		queues[size] = b
		if err := b.begin(ctx, o, size); err != nil {
			return run, fmt.Errorf("%d blocked messages: %w", size, err)
		}
	}
	run.measure = func(ctx context.Context, size int) ([]measure.Result, error) {
		r, err := queues[size].measure(ctx, o)
		return []measure.Result{r}, err
	}
	return run, nil
}

func (b *blocked) begin(ctx context.Context, o options, size int) error {
	queue, err := b.store.openTimed(ctx)
	if err != nil {
		return err
	}
	if b.producer, err = queue.Producer(ctx, chanq.ProducerConfig{BatchRows: o.batch}); err != nil {
		return err
	}
	hot, body := hotNames(), make([]byte, o.body)
	for i := range size {
		select {
		case b.producer.C() <- chanq.Message[[]byte]{Key: hot[i%hotKeys], Body: body}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := b.producer.Flush(ctx); err != nil {
		return err
	}
	if err := b.store.tidy(ctx); err != nil {
		return err
	}
	b.free = newKeys(o.keys)
	b.free.names = slices.DeleteFunc(b.free.names, besideHot)
	if b.consumer, err = queue.Consume(context.WithoutCancel(ctx), chanq.ConsumerConfig{Prefetch: 2 * o.batch, LeaseFor: leaseFor}); err != nil {
		return err
	}
	for range min(size, hotKeys) {
		select {
		case lease := <-b.consumer.C():
			b.held = append(b.held, lease)
		case <-b.consumer.Done():
			return b.consumer.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tidy does the maintenance that a database does on its own after a table has grown, so that it
// does not happen during a measurement.
func (s *store) tidy(ctx context.Context) (err error) {
	switch s.place.Engine {
	case sqliteEngine.name:
		_, err = s.db.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	case postgresEngine.name:
		_, err = s.db.ExecContext(ctx, `VACUUM ANALYZE `+s.liveTable())
	}
	return err
}

func hotNames() (names []string) {
	for i := range hotKeys {
		names = append(names, fmt.Sprintf("hot %d", i))
	}
	return names
}

// besideHot reports whether a key shares its slot with a hot key, behind which it also waits.
func besideHot(key string) bool {
	slot := func(key string) int { return sqlbatch.SlotOf(key, [16]byte{}, manySlots) }
	return slices.ContainsFunc(hotNames(), func(hot string) bool { return slot(hot) == slot(key) })
}

// measure sends and reads messages of free keys concurrently.
func (b *blocked) measure(ctx context.Context, o options) (measure.Result, error) {
	r := newResult(o, "chanq")
	r.N, r.Batch, r.Server = o.samples, o.batch, b.store.about(ctx)
	b.store.spent.forget()
	c, err := timed(ctx, b.store, "blocked", func(ctx context.Context) error {
		sent := make(chan error, 1)
		go func() { sent <- b.send(ctx, r.N, r.BodyBytes) }()
		err := b.read(ctx, r.N)
		return errors.Join(err, <-sent, b.consumer.Flush(ctx))
	})
	n := float64(r.N)
	r.PipelinePerS, r.WallPerMsg, r.CPUPerMsg, r.StatementsPerMessage = n/c.Seconds, 1e6*c.Seconds/n, 1e6*c.CPU/n, c.Statements/n
	b.store.spent.of(&r)
	return r, err
}

func (b *blocked) send(ctx context.Context, n, size int) error {
	body := make([]byte, size)
	for range n {
		select {
		case b.producer.C() <- chanq.Message[[]byte]{Key: b.free.next(), Body: body}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *blocked) read(ctx context.Context, n int) error {
	for range n {
		select {
		case lease, ok := <-b.consumer.C():
			if !ok {
				return fmt.Errorf("the consumer ended: %w", b.consumer.Err())
			}
			if besideHot(lease.Key) {
				return errors.Join(fmt.Errorf("a message of %q was delivered, which is blocked", lease.Key), lease.Release())
			}
			if err := lease.Ack(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *blocked) end(ctx context.Context) error {
	var errs []error
	if b.producer != nil {
		errs = append(errs, b.producer.Close(ctx))
	}
	if b.consumer != nil {
		b.consumer.Stop()
		for _, lease := range b.held {
			errs = append(errs, lease.Release())
		}
		errs = append(errs, b.consumer.Shutdown(ctx))
	}
	return errors.Join(append(errs, b.store.remove())...)
}

// beginSlots drains a queue with the given number of slots, all of which one consumer owns.
func beginSlots(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	bodies := makeBodies(o.samples, o.body)
	return growthRun{measure: func(ctx context.Context, slots int) ([]measure.Result, error) {
		of := o.ordered(o.keys)
		of.slots = slots
		r, err := measureLife(ctx, of, "chanq", bodies)
		r.WallPerMsg, r.CPUPerMsg = 1e6/r.DrainPerS, r.DrainCPU
		return []measure.Result{r}, err
	}}, nil
}
