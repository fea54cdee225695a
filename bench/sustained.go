package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

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
	task := readTask{Place: s.place, Consumers: o.consumers, Batch: o.batch}
	others := o.processes
	if others <= 1 {
		others = 0
	}
	readers, err := startReaders(ctx, task, others)
	if err == nil && others == 0 {
		err = readers.readHere(ctx, task, s)
	}
	if err != nil {
		return err
	}
	readers.begin()
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
	producer, err := s.producer(ctx, o.batch)
	if err != nil {
		return err
	}
	one := stamped(ctx, producer, o.latencyBody())
	send := func(i int, due time.Time) error {
		err := one(i, due)
		if err == nil {
			sent.Add(1)
		}
		return err
	}
	if o.rate > 0 {
		err = measure.AtRate(ctx, o.rate, math.MaxInt, send)
	} else {
		err = keepBacklog(ctx, func() bool { return sent.Load()-received.Load() < int64(o.backlog) }, send)
	}
	if ctx.Err() != nil {
		err = nil // that is how a run ends
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, producer.Close(bound))
}

// keepBacklog sends as long as there is room, until ctx ends.
func keepBacklog(ctx context.Context, room func() bool, send func(i int, due time.Time) error) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for i := 0; ; i++ {
		for !room() {
			select {
			case <-look.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := send(i, time.Now()); err != nil {
			return err
		}
	}
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
