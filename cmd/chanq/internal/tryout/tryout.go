// Package tryout measures one queue in a short time, for a first impression of a server. The folder
// bench at the root compares designs and measures precisely.
package tryout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Config selects what to measure.
type Config struct {
	For     time.Duration // in all
	Body    int           // bytes
	Workers int
	Begin   func(part string) // called when a part begins; may be nil
}

// Result has the measurements. Rates are messages per second, times are seconds.
type Result struct {
	RoundTrip float64 `json:"round_trip_seconds"` // the least
	Stored    float64 `json:"stored_per_second"`  // by Send
	Bulk      float64 `json:"stored_in_bulk_per_second"`
	Consumed  float64 `json:"consumed_per_second"`
	Paced     float64 `json:"paced_per_second"` // the rate at which the times were measured
	Median    float64 `json:"under_way_median_seconds"`
	P99       float64 `json:"under_way_p99_seconds"`
}

// Run measures an empty queue, and leaves it empty unless it fails.
func Run(ctx context.Context, q *chanq.Queue[[]byte], admin *chanqadmin.Queue, cfg Config) (r Result, err error) {
	begin := func(part string) {
		if cfg.Begin != nil {
			cfg.Begin(part)
		}
	}
	part := cfg.For / 4
	body := make([]byte, cfg.Body)
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	begin("round trips")
	if r.RoundTrip, err = roundTrip(ctx, admin); err != nil {
		return r, err
	}
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return r, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = p.Close(ctx) // nothing was sent on its channel
	}()
	begin("storing, one by one")
	sent, took, err := store(ctx, part, cfg.Workers, 1, p, body)
	if err != nil {
		return r, err
	}
	r.Stored = float64(sent) / took.Seconds()
	begin("storing in bulk")
	bulk, took, err := store(ctx, part, 1, 500, p, body)
	if err != nil {
		return r, err
	}
	r.Bulk = float64(bulk) / took.Seconds()
	begin("consuming")
	if r.Consumed, err = consume(ctx, part, cfg.Workers, q, sent+bulk); err != nil {
		return r, err
	}
	if _, err := admin.Purge(ctx, chanqadmin.Select{State: chanqadmin.StateReady, All: true}, chanqadmin.Change{}); err != nil {
		return r, err
	}
	begin("times under way")
	// A quarter of the rate of sequential messages, so that no backlog builds up.
	r.Paced = min(100, max(1, 0.25/max(r.RoundTrip*4, 1e-3)))
	times, err := underWay(ctx, part, r.Paced, q, p, body)
	if err != nil {
		return r, err
	}
	slices.Sort(times)
	r.Median, r.P99 = times[len(times)/2].Seconds(), times[len(times)*99/100].Seconds()
	return r, nil
}

// roundTrip returns the least time of several reads of the consumers of a queue without consumers.
func roundTrip(ctx context.Context, q *chanqadmin.Queue) (float64, error) {
	least := time.Hour
	for range 20 {
		start := time.Now()
		if _, err := q.Consumers(ctx); err != nil {
			return 0, err
		}
		least = min(least, time.Since(start))
	}
	return least.Seconds(), nil
}

// store sends for a time, from several goroutines, each of which waits for n messages at a time.
func store(ctx context.Context, d time.Duration, workers, n int, p *chanq.Producer[[]byte], body []byte) (int, time.Duration, error) {
	var sent atomic.Int64
	start := time.Now()
	goroutines := pool.New().WithContext(ctx).WithCancelOnError()
	for range workers {
		goroutines.Go(func(ctx context.Context) error {
			batch := make([]chanq.Message[[]byte], n)
			for time.Since(start) < d {
				for i := range batch {
					batch[i] = chanq.Message[[]byte]{Body: body}
				}
				if _, err := p.SendBatch(ctx, batch...); err != nil {
					return err
				}
				sent.Add(int64(n))
			}
			return nil
		})
	}
	err := goroutines.Wait()
	return int(sent.Load()), time.Since(start), err
}

// consume receives messages for a time, or until all are received, and returns the rate per second.
func consume(ctx context.Context, d time.Duration, workers int, q *chanq.Queue[[]byte], all int) (float64, error) {
	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return 0, err
	}
	var taken atomic.Int64
	enough := make(chan struct{})
	var once sync.Once
	handled := make(chan error, 1)
	start := time.Now()
	go func() { // ends when the consumer has stopped
		handled <- c.Handle(workers, func(context.Context, *chanq.Lease[[]byte]) error {
			if taken.Add(1) == int64(all) {
				once.Do(func() { close(enough) })
			}
			return nil
		})
	}()
	select {
	case <-enough:
	case <-time.After(d):
	case <-c.Done():
	}
	flush := c.Flush(ctx)
	acked, took := c.Stats().Acked, time.Since(start)
	down := c.Shutdown(ctx)
	for _, err := range []error{<-handled, flush, down} {
		if err != nil {
			return 0, err
		}
	}
	return float64(acked) / took.Seconds(), ctx.Err()
}

// underWay sends a message at intervals, and returns each message's time from send to delivery.
func underWay(ctx context.Context, d time.Duration, perSecond float64, q *chanq.Queue[[]byte], p *chanq.Producer[[]byte], body []byte) ([]time.Duration, error) {
	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return nil, err
	}
	arrivals := arrivals{at: map[chanq.ID]time.Time{}}
	handled := make(chan error, 1)
	go func() { // ends when the consumer has stopped
		handled <- c.Handle(1, func(_ context.Context, l *chanq.Lease[[]byte]) error {
			arrivals.note(l.ID)
			return nil
		})
	}()
	tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer tick.Stop()
	sent := map[chanq.ID]time.Time{}
	for start := time.Now(); time.Since(start) < d && err == nil; wait(ctx, tick) {
		begun := time.Now()
		var r chanq.Receipt
		if r, err = p.Send(ctx, chanq.Message[[]byte]{Body: body}); err == nil {
			sent[r.ID] = begun
		}
	}
	for err == nil && ctx.Err() == nil && c.Err() == nil && arrivals.count() < len(sent) { // for the last messages
		wait(ctx, tick)
	}
	down := c.Shutdown(context.WithoutCancel(ctx))
	for _, e := range []error{err, <-handled, down, ctx.Err()} {
		if e != nil {
			return nil, e
		}
	}
	var times []time.Duration
	for id, begun := range sent {
		times = append(times, arrivals.at[id].Sub(begun))
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("no message was sent within %v", d)
	}
	return times, nil
}

// wait waits for the next tick, or for the end of ctx.
func wait(ctx context.Context, tick *time.Ticker) {
	select {
	case <-tick.C:
	case <-ctx.Done():
	}
}

// arrivals are the times when messages first reached a handler.
type arrivals struct {
	mu sync.Mutex // guards the fields below
	at map[chanq.ID]time.Time
}

func (a *arrivals) note(id chanq.ID) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.at[id]; !again {
		a.at[id] = now
	}
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}
