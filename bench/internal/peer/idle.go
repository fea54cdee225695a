package peer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
)

// asleep receives until stop is closed, and reports as a sustained phase does.
func asleep(ctx context.Context, q Queue, stop <-chan struct{}, tell func(Progress)) error {
	var mu sync.Mutex // guards now
	now := Progress{Ages: measure.Histogram{}}
	receiver, err := q.Receiver(ctx, 0, func(m Message) {
		age := time.Since(time.Unix(0, m.N))
		mu.Lock()
		defer mu.Unlock()
		now.Received++
		now.Ages.Add(age)
		now.Slowest = max(now.Slowest, age)
	})
	if err != nil {
		return err
	}
	tellNow := func() {
		mu.Lock()
		defer mu.Unlock()
		tell(now)
		now.Ages, now.Slowest = measure.Histogram{}, 0
	}
	receiving, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	go func() { failed <- receiver.Wait(receiving) }() // it does not end on its own, unless it fails
	tellNow()
	tick := time.NewTicker(tellIdleEvery)
	defer tick.Stop()
	for err == nil {
		select {
		case <-tick.C:
			tellNow()
			continue
		case err = <-failed:
			err = errors.Join(err, errors.New("receiving ended early"))
		case <-stop:
			end()
			<-failed
		}
		break
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, receiver.Close(bound))
}

// tellIdleEvery is long, so that reports do not keep a process awake.
const tellIdleEvery = 200 * time.Millisecond

// nap sends single messages with gaps to receivers of other processes, or nothing for that time. N
// of a message is the time of its send. It returns when all should have been received.
func nap(ctx context.Context, q Queue, job Job) (o Outcome, err error) {
	if job.Gap == (measure.Gap{}) {
		o.Cost, err = measure.Of(q.Statements, func() error { return measure.Sleep(ctx, job.For) })
		return o, err
	}
	sender, err := q.Sender(ctx)
	if err != nil {
		return o, err
	}
	body := bodyBeside(job.Body)
	var took []time.Duration
	o.Cost, err = measure.Of(q.Statements, func() error {
		n, err := measure.AtGaps(ctx, job.Gap, job.For, func(now time.Time) error {
			err := sender.Send(ctx, Message{N: now.UnixNano(), Body: body})
			took = append(took, time.Since(now))
			return err
		})
		o.Sent = n
		return errors.Join(err, measure.Sleep(ctx, settleFor))
	})
	slices.Sort(took)
	o.P50 = measure.Quantile(took, 0.5)
	return o, errors.Join(err, sender.Close(ctx))
}

// settleFor is longer than any system takes from a message to its next poll and to recording that
// it was handled.
const settleFor = 2 * time.Second
