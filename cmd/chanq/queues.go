package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// look is a queue to be read, in one database.
type look struct {
	*chanqadmin.Queue
	db   *connection
	spec chanq.Spec
	mark chanq.ShardMark
}

// shard returns the queue's shard, for example "0/3", or "".
func (l look) shard() string {
	if l.mark.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", l.mark.Index, l.mark.Count)
}

// label returns the name, with the shard if it has one.
func label(queue, shard string) string {
	if shard == "" {
		return queue
	}
	return queue + " " + shard
}

// queueStats is one line of stats and top.
type queueStats struct {
	name, shard string
	chanqadmin.Stats
	times
}

// times has how long messages waited, and calls of handlers took, in the last minute.
type times struct{ waits, calls chanqadmin.Times }

// allStats returns the stats of the named queues, or of all.
func (a *app) allStats(ctx context.Context, c *connection, names []string) ([]queueStats, error) {
	return eachQueue(ctx, a, c, names, func(ctx context.Context, q look) ([]queueStats, error) {
		s, err := q.Stats(ctx)
		line := queueStats{name: q.Name(), shard: q.shard(), Stats: s}
		if err == nil && a.output == "json" {
			_, line.times, _ = lastMinute(ctx, q.Queue) // the counts are known without it
		}
		return []queueStats{line}, err
	})
}

const (
	// queueTime bounds the reads of one queue, so that a lock on its tables hides no other queue.
	queueTime = 2 * time.Second
	// allTime bounds those of all queues of a database, including the names.
	allTime = 4 * time.Second
	// queuesAtOnce is how many queues of a database are read simultaneously.
	queuesAtOnce = 8
)

// eachQueue calls f for the named queues, or for all, in each database, and returns the results in the order of the names. A queue that fails
// or does not answer in time does not prevent calls for the others.
func eachQueue[T any](ctx context.Context, a *app, c *connection, names []string, f func(context.Context, look) ([]T, error)) ([]T, error) {
	var list []T
	errs := []error{c.missed}
	for _, db := range c.all() {
		found, err := eachQueueOf(ctx, a, db, names, f)
		list = append(list, found...)
		if err != nil && len(c.others) > 0 {
			err = fmt.Errorf("%s: %w", db.name, err)
		}
		errs = append(errs, err)
	}
	return list, errors.Join(errs...)
}

func eachQueueOf[T any](ctx context.Context, a *app, c *connection, names []string, f func(context.Context, look) ([]T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, allTime)
	defer cancel()
	if len(names) == 0 {
		var err error
		if names, err = a.queueNames(ctx, c); err != nil {
			return nil, err
		}
	}
	turns := make(chan struct{}, queuesAtOnce)
	results := make([]<-chan result[[]T], len(names))
	for i, name := range names {
		results[i] = within(ctx, func(ctx context.Context) ([]T, error) {
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-ctx.Done():
				return nil, fmt.Errorf("%s: not read: %w", name, context.Cause(ctx))
			}
			ctx, cancel := context.WithTimeout(ctx, queueTime)
			defer cancel()
			q, err := chanqadmin.Open(ctx, c.DB, name, a.queueConfig(c))
			if err != nil {
				return nil, late(ctx, name, err)
			}
			spec, mark := q.Opened()
			list, err := f(ctx, look{q, c, spec, mark})
			return list, late(ctx, name, err)
		})
	}
	var list []T
	var errs []error
	for i, found := range results {
		r := <-found
		if errs = append(errs, r.err); r.err == nil {
			list = append(list, r.value...)
		} else if errors.Is(r.err, errStuck) {
			errs[i] = fmt.Errorf("%s: %w", names[i], r.err)
		}
	}
	return list, errors.Join(errs...)
}

// queueNames returns the names of all queues of a database, unless ctx, which ends after allTime, ends before.
func (a *app) queueNames(ctx context.Context, c *connection) ([]string, error) {
	found := <-within(ctx, func(ctx context.Context) ([]string, error) { return chanqadmin.Queues(ctx, c.DB, a.queueConfig(c)) })
	if found.err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer within %v: the list of queues may be locked; chanq doctor says by whom (%w)", allTime, found.err)
	}
	return found.value, found.err
}

// late says what the end of queueTime means.
func late(ctx context.Context, name string, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: no answer within %v: its tables may be locked; chanq doctor %s says by whom (%w)", name, queueTime, name, err)
}

// result is what within returns.
type result[T any] struct {
	value T
	err   error
}

// errStuck is the error of a driver that ignores the end of its context.
var errStuck = errors.New("the database does not answer")

// driverGrace is how long a driver may take to notice the end of its context. SQLite waits up to 250 ms for a lock.
const driverGrace = 500 * time.Millisecond

// within calls f in a goroutine, and sends its result, or errStuck if it has not returned soon after the end of ctx. The goroutine ends with
// f, or with the command.
func within[T any](ctx context.Context, f func(context.Context) (T, error)) <-chan result[T] {
	done, sent := make(chan result[T], 1), make(chan result[T], 1)
	go func() { // ends with f
		v, err := f(ctx)
		done <- result[T]{v, err}
	}()
	go func() { // ends driverGrace after ctx
		select {
		case r := <-done:
			sent <- r
			return
		case <-ctx.Done():
		}
		select {
		case r := <-done:
			sent <- r
		case <-time.After(driverGrace):
			sent <- result[T]{err: errStuck}
		}
	}()
	return sent
}
