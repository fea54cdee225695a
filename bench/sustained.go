package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// measureSustained runs one producer and some consumers for a long time, at a rate or at full speed
// with a constant backlog, and reports a result for each interval. It shows effects that short runs
// on a new table do not show.
func measureSustained(ctx context.Context, o options, report func(measure.Result)) error {
	s, err := openQueue(ctx, o)
	if err != nil {
		return err
	}
	err = sustain(ctx, o, s, report)
	return errors.Join(err, s.remove())
}

func sustain(ctx context.Context, o options, s *store, report func(measure.Result)) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	task := readTask{Place: s.place, Consumers: o.consumers, Batch: o.batch}
	others := o.processes
	if others <= 1 {
		others = 0
	}
	producer, err := s.producer(ctx, o.batch) // before the measured time
	if err != nil {
		return err
	}
	readers, err := startReaders(ctx, task, others)
	if err == nil && others == 0 {
		err = readers.readHere(ctx, task, s)
	}
	if err != nil {
		return errors.Join(err, producer.Close(ctx))
	}
	readers.begin()
	var sent atomic.Int64
	sender, failed := make(chan error, 1), make(chan error, 2) // of both sides
	go func() {
		sender <- sendSustained(ctx, o, producer, &sent, &readers.received)
		failed <- errors.New("the sender ended early")
	}()
	go func() {
		select {
		case <-readers.failed:
			failed <- errors.New("a reader ended early")
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel()
		err = errors.Join(err, <-sender, readers.end())
	}()
	run := measure.Sustained{
		For: o.sustainedFor, Every: o.every, Base: newResult(o, "chanq"),
		Sent: sent.Load, Received: readers.received.Load, Ages: readers.ages, Heap: measure.Heap,
		Footprint: s.footprint, Failed: failed, Report: report,
	}
	run.Base.Server, run.Base.Batch, run.Base.RatePerS = s.about(ctx), o.batch, o.rate
	run.Base.Consumers, run.Base.Processes = o.consumers, o.processes
	switch {
	case o.hold:
		run.Hold = s.holdSnapshot
	case o.holdSend:
		run.Hold = s.holdSender
	}
	return run.Run(ctx)
}

// sendSustained keeps the backlog filled, or sends at a rate regardless of it, and closes the
// producer. A message contains the time when it was to be sent.
func sendSustained(ctx context.Context, o options, producer *chanq.Producer[[]byte], sent, received *atomic.Int64) (err error) {
	one := stamped(ctx, producer, o.latencyBody(), newKeys(o.keys))
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
		room := func() bool { return sent.Load()-received.Load() < int64(o.backlog) }
		err = measure.KeepBacklog(ctx, room, func(due time.Time) error { return send(0, due) })
	}
	if ctx.Err() != nil {
		err = nil // the normal end of a run
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, producer.Close(bound))
}

func writeSustainedHead(w io.Writer, o options) error {
	rate := "as fast as it goes"
	if o.rate > 0 {
		rate = fmt.Sprintf("%.0f/s", o.rate)
	}
	_, err := fmt.Fprintf(w, "%s, body %d B, %d to a statement, backlog %d, rate %s, %d process(es) of %d consumer(s)\n%s\n",
		o.engine, o.body, o.batch, o.backlog, rate, max(o.processes, 1), o.consumers, measure.SustainedHead)
	return err
}

func writeSustainedLine(w io.Writer, r measure.Result) error {
	_, err := fmt.Fprintln(w, measure.SustainedLine(r))
	return err
}

// writeSustainedEnd writes a summary of the run, and plots it with -plot.
func writeSustainedEnd(w io.Writer, o options, results []measure.Result) error {
	if err := measure.WriteSummary(w, measure.Summarise(results)); err != nil || o.plot == "" {
		return err
	}
	return os.WriteFile(o.plot, sustainedPlot(runsOf(results)).draw(), 0o644)
}
