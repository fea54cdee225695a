package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
)

// orderedChanq uses chanq as its users do: a Producer's channel, a Consumer's channel, Ack.
type orderedChanq struct {
	queue    *chanq.Queue[string]
	consumer *chanq.Consumer[string]
	held     []*chanq.Lease[string]
	fetching *atomic.Int64
}

func openOrderedChanq(ctx context.Context, db *sql.DB) (orderedQueue, error) {
	q := &orderedChanq{fetching: &atomic.Int64{}}
	config := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}, Hooks: chanq.Hooks{Claimed: func(e chanq.ClaimedEvent) { q.fetching.Add(int64(e.Took)) }}}
	if err := chanq.Migrate(ctx, db, chanqName, config); err != nil {
		return nil, err
	}
	var err error
	q.queue, err = chanq.Open[string](ctx, db, chanqName, config)
	return q, err
}

func (q *orderedChanq) send(ctx context.Context, keys []string, body string) error {
	producer, err := q.queue.Producer(ctx, chanq.ProducerConfig{BatchRows: sendRows})
	if err != nil {
		return err
	}
	for _, key := range keys {
		producer.C() <- chanq.Message[string]{Key: key, Body: body}
	}
	return producer.Close(ctx)
}

// consume starts a consumer, if there is none. A second consumer cannot receive messages that are
// being processed, so a drain continues with the consumer that holds them.
func (q *orderedChanq) consume(ctx context.Context) (err error) {
	if q.consumer == nil {
		q.consumer, err = q.queue.Consume(context.WithoutCancel(ctx), chanq.ConsumerConfig{})
	}
	return err
}

func (q *orderedChanq) hold(ctx context.Context, keys int) error {
	if err := q.consume(ctx); err != nil {
		return err
	}
	for range keys {
		lease, err := q.next(ctx, nil)
		if err != nil {
			return err
		}
		q.held = append(q.held, lease)
	}
	return nil
}

// errLate ends a drain.
var errLate = errors.New("the time is over")

func (q *orderedChanq) next(ctx context.Context, late <-chan time.Time) (*chanq.Lease[string], error) {
	select {
	case lease, ok := <-q.consumer.C():
		if !ok {
			return nil, fmt.Errorf("the consumer ended: %w", q.consumer.Err())
		}
		return lease, nil
	case <-late:
		return nil, errLate
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (q *orderedChanq) drain(ctx context.Context, n int, most time.Duration) (done int, fetching time.Duration, err error) {
	q.fetching.Store(0)
	if err := q.consume(ctx); err != nil {
		return 0, 0, err
	}
	late := time.After(most)
	for done < n {
		lease, err := q.next(ctx, late)
		if errors.Is(err, errLate) {
			break
		}
		if err != nil {
			return done, 0, err
		}
		if err := lease.Ack(); err != nil {
			return done, 0, err
		}
		done++
	}
	err = q.consumer.Flush(ctx)
	return done, time.Duration(q.fetching.Load()), err
}

func (q *orderedChanq) close(ctx context.Context) error {
	if q.consumer == nil {
		return nil
	}
	q.consumer.Stop()
	var errs []error
	for _, lease := range q.held {
		errs = append(errs, lease.Release())
	}
	return errors.Join(append(errs, q.consumer.Shutdown(ctx))...)
}
