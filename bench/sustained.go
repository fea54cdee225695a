package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// measureSustained runs one producer and some consumers for a long time, at a rate
// or as fast as they go, with a backlog that stays as it is, and reports a result
// for each interval: what short runs on a fresh table do not show.
func measureSustained(ctx context.Context, o options, report func(measure.Result)) error {
	s, err := openQueue(ctx, o)
	if err != nil {
		return err
	}
	err = sustain(ctx, o, s, report)
	return errors.Join(err, s.remove())
}

func sustain(ctx context.Context, o options, s *store, report func(measure.Result)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.sustainedFor)
	defer cancel()
	readers, err := startReaders(ctx, o, s)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	sender := make(chan error, 1)
	go func() {
		defer cancel() // without a sender there is nothing to measure
		sender <- sendSustained(ctx, o, s, &sent, &readers.received)
	}()
	defer func() {
		cancel()
		err = errors.Join(err, <-sender, readers.end())
	}()
	server := s.about(context.WithoutCancel(ctx))
	var held *snapshot
	defer func() { err = errors.Join(err, held.release()) }()

	start, tick := time.Now(), time.NewTicker(o.every)
	defer tick.Stop()
	last, lastSent, lastReceived := start, int64(0), int64(0)
	for {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case err := <-readers.failed:
			return err
		case <-tick.C:
		}
		if o.hold && held == nil && time.Since(start) >= holdAfter {
			if held, err = s.holdSnapshot(ctx); err != nil {
				return err
			}
		}
		now, nowSent, nowReceived := time.Now(), sent.Load(), readers.received.Load()
		seconds := now.Sub(last).Seconds()
		r := newResult(o, "chanq")
		r.Server, r.N, r.Batch = server, int(nowReceived-lastReceived), o.batch
		r.AtS, r.Held, r.Processes = now.Sub(start).Seconds(), held != nil, o.processes
		r.EnqueuePerS, r.DrainPerS = float64(nowSent-lastSent)/seconds, float64(nowReceived-lastReceived)/seconds
		ages := readers.ages()
		r.P50, r.P99 = ages.Quantile(0.5), ages.Quantile(0.99)
		r.Backlog = int(nowSent - nowReceived)
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		r.HeapBytes = float64(memory.HeapAlloc)
		if r.Footprint, err = s.footprint(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("size of the tables: %w", err)
		}
		report(r)
		last, lastSent, lastReceived = now, nowSent, nowReceived
	}
}

// sendSustained keeps the backlog filled, or sends at a rate whatever becomes of
// it. A message carries the time at which it was to be sent.
func sendSustained(ctx context.Context, o options, s *store, sent, received *atomic.Int64) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
	producer, err := queue.Producer(chanq.ProducerConfig{BatchRows: o.batch})
	if err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := func(d time.Duration) {
		timer.Reset(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	start := time.Now()
	for i := int64(0); ctx.Err() == nil; i++ {
		var due time.Time
		if o.rate > 0 {
			due = start.Add(time.Duration(float64(i) / o.rate * float64(time.Second)))
			if wait := time.Until(due); wait > 0 {
				pause(wait)
			}
		} else {
			for i-received.Load() >= int64(o.backlog) && ctx.Err() == nil {
				pause(time.Millisecond)
			}
			if ctx.Err() != nil {
				break
			}
			due = time.Now()
		}
		body := make([]byte, o.latencyBody())
		stamp(body, due)
		select {
		case producer.C() <- chanq.Message[[]byte]{Body: body}:
			sent.Add(1)
		case <-ctx.Done():
		}
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return producer.Close(bound)
}

// plotSustained writes throughput over time, where -plot asks for it.
func plotSustained(o options, results []measure.Result) error {
	if o.plot == "" {
		return nil
	}
	c := lines{
		title: fmt.Sprintf("%s, %d-byte bodies, backlog %d: messages a second over time", o.engine, o.body, o.backlog),
		x:     "seconds", y: "messages a second, and MiB of table and indexes",
		names: []string{"sent", "received", "MiB"}, series: make([][]float64, 3),
	}
	for _, r := range results {
		c.sizes = append(c.sizes, int(r.AtS+0.5))
		for i, v := range []float64{r.EnqueuePerS, r.DrainPerS, float64(r.TableBytes+r.IndexBytes) / (1 << 20)} {
			c.series[i] = append(c.series[i], v)
		}
	}
	return os.WriteFile(o.plot, c.draw(), 0o644)
}
