package peer

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq/bench/internal/measure"
)

// sending is the most sends in progress at once. A system that needs more is beyond saturation.
const sending = 256

// latency sends one message at a time at a fixed rate. Each message's time runs from when it was
// due to be sent, even if its sender was busy then, to its handler: a stall counts for every
// message that it delays.
func latency(ctx context.Context, q Queue, job Job, ms []Message) (o Outcome, err error) {
	sender, err := q.Sender(ctx)
	if err != nil {
		return o, err
	}
	t := newTally(len(ms))
	due := make([]time.Time, len(ms))
	var receiver Receiver
	var late time.Duration // of the last one
	o.Cost, err = measure.Of(q.Statements, func() error {
		if receiver, err = q.Receiver(ctx, len(ms), t.deliver); err != nil {
			return err
		}
		t.begin()
		var group errgroup.Group
		group.SetLimit(sending)
		err := measure.AtRate(ctx, job.Rate, len(ms), func(i int, at time.Time) error {
			due[i] = at
			group.Go(func() error { return sender.Send(ctx, ms[i]) }) // waits for one of the sends in progress
			late = time.Since(at)
			return nil
		})
		if err = errors.Join(err, group.Wait()); err != nil {
			return err
		}
		return receiver.Wait(ctx)
	})
	if err = finish(ctx, q, &o, t, sender, receiver, err); err != nil {
		return o, err
	}
	o.Saturated = late > max(time.Second, due[len(due)-1].Sub(due[0])/20)
	took := make([]time.Duration, 0, len(ms))
	for i := min(job.Warm, len(ms)-1); i < len(ms); i++ {
		took = append(took, t.start.Add(time.Duration(t.at[i].Load())).Sub(due[i]))
	}
	slices.Sort(took)
	o.P50, o.P99, o.P999 = measure.Quantile(took, 0.5), measure.Quantile(took, 0.99), measure.Quantile(took, 0.999)
	o.Max = measure.Quantile(took, 1)
	return o, nil
}
