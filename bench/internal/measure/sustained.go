package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// HoldAfter is when a sustained run opens the transaction to hold, if requested.
const HoldAfter = 10 * time.Second

// Sustained observes a queue under load for a long time, and reports a result for each interval. It
// does not send or receive.
type Sustained struct {
	For, Every time.Duration // the last interval ends with the first multiple of Every at or above For
	Base       Result        // the fields that all results share

	Sent, Received func() int64     // so far
	Ages           func() Histogram // of messages received since the last call
	Heap           func() float64   // of the sending process
	Footprint      func(context.Context) (Footprint, error)
	// Hold opens a transaction in a separate session, after HoldAfter, and returns
	// a function that closes it. nil: none.
	Hold   func(context.Context) (release func() error, err error)
	Failed <-chan error // the first error of the senders and receivers
	Report func(Result)
}

// Run observes until the time is over, a side fails or ctx ends.
func (s Sustained) Run(ctx context.Context) (err error) {
	before, err := s.Footprint(ctx)
	if err != nil {
		return fmt.Errorf("size of the tables: %w", err)
	}
	held := false
	var release func() error
	defer func() {
		if release != nil {
			err = errors.Join(err, release())
		}
	}()
	start, tick := time.Now(), time.NewTicker(s.Every)
	defer tick.Stop()
	last, lastSent, lastReceived := start, s.Sent(), s.Received()
	for last.Sub(start) < s.For-s.Every/2 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-s.Failed:
			return err
		case <-tick.C:
		}
		now, sent, received := time.Now(), s.Sent(), s.Received()
		seconds := now.Sub(last).Seconds()
		r := s.Base
		r.N, r.AtS, r.Held = int(received-lastReceived), now.Sub(start).Seconds(), held
		r.EnqueuePerS, r.DrainPerS = float64(sent-lastSent)/seconds, float64(received-lastReceived)/seconds
		r.Ages = s.Ages()
		r.P50, r.P99 = r.Ages.Quantile(0.5), r.Ages.Quantile(0.99)
		r.Backlog = int(sent - received)
		r.HeapBytes = s.Heap()
		if r.Footprint, err = s.Footprint(ctx); err != nil {
			return fmt.Errorf("size of the tables: %w", err)
		}
		r.since(before)
		s.Report(r)
		last, lastSent, lastReceived, before = now, sent, received, r.Footprint
		// Between two intervals, so that each interval is entirely with or without it.
		if s.Hold != nil && !held && now.Sub(start) > HoldAfter-s.Every/2 {
			if release, err = s.Hold(ctx); err != nil {
				return fmt.Errorf("opening the transaction that is held: %w", err)
			}
			held = true
		}
	}
	return nil
}

// since computes figures of an interval from the server's counters at its ends.
func (r *Result) since(before Footprint) {
	if r.WAL > before.WAL && r.N > 0 {
		r.WALPerMsg = float64(r.WAL-before.WAL) / float64(r.N)
	}
	if updates := r.Updates - before.Updates; updates > 0 {
		r.HotShare = float64(r.HotUpdates-before.HotUpdates) / float64(updates)
	}
}

// KeepBacklog calls send as long as there is room, until ctx ends.
func KeepBacklog(ctx context.Context, room func() bool, send func(due time.Time) error) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		for !room() {
			select {
			case <-look.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := send(time.Now()); err != nil {
			return err
		}
	}
}

// Heap returns the bytes that this process has allocated and not yet collected.
func Heap() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
