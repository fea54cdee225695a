package peer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// sending is how many sends may be under way at once; a system that needs more
// is past its saturation.
const sending = 256

// latency sends one message at a time at a fixed rate. Each message's time runs
// from when it was due to be sent, whatever its sender was busy with then, to
// its handler: a stall is felt by all that it delays.
func latency(ctx context.Context, q Queue, job Job, ms []Message) (o Outcome, err error) {
	sender, err := q.Sender(ctx)
	if err != nil {
		return o, err
	}
	t := newTally(len(ms))
	interval := time.Second / time.Duration(job.Rate)
	var receiver Receiver
	var late time.Duration
	err = timed(q, &o, func() error {
		if receiver, err = q.Receiver(ctx, len(ms), t.deliver); err != nil {
			return err
		}
		t.begin()
		if late, err = sendAtRate(ctx, sender, ms, t.start, interval); err != nil {
			return err
		}
		return receiver.Wait(ctx)
	})
	if err = finish(ctx, q, &o, t, sender, receiver, err); err != nil {
		return o, err
	}
	o.Saturated = late > max(time.Second, time.Duration(len(ms))*interval/20)
	took := make([]time.Duration, 0, len(ms))
	for i := min(job.Warm, len(ms)-1); i < len(ms); i++ {
		took = append(took, time.Duration(t.at[i].Load())-time.Duration(i)*interval)
	}
	slices.Sort(took)
	o.P50, o.P99, o.P999 = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999)
	o.Max = took[len(took)-1].Microseconds()
	return o, nil
}

// sendAtRate sends message i at start + i*interval, and says how late the last
// one was.
func sendAtRate(ctx context.Context, s Sender, ms []Message, start time.Time, interval time.Duration) (time.Duration, error) {
	var late time.Duration
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	slots := make(chan struct{}, sending)
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for i, m := range ms {
		due := start.Add(time.Duration(i) * interval)
		if wait := time.Until(due); wait > 0 {
			pause.Reset(wait)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		late = time.Since(due)
		group.Go(func() {
			defer func() { <-slots }()
			if err := s.Send(ctx, m); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return late, errors.Join(errs...)
}

// quantile is the smallest value that the share of values does not exceed, in
// microseconds.
func quantile(sorted []time.Duration, share float64) int64 {
	rank := int(share*float64(len(sorted)) + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1].Microseconds()
}
