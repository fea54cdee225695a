package peer

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq/bench/internal/measure"
)

// Progress is the progress of a sustained phase. It is printed often. The first output means that
// the phase has begun.
type Progress struct {
	Sent, Received int64             // so far
	Ages           measure.Histogram // of messages received since the last report, from send to delivery
	Heap           float64           // bytes
	Slowest        time.Duration     // of these, in a phase with idle receivers
	Version        string            // of the system's module, in the first report
}

const (
	// tellEvery is short compared with the time for which a backlog lasts.
	tellEvery = 20 * time.Millisecond
	// sendRows is the number of messages per SendAll, unless the sender has another number.
	sendRows = 500
)

// sustained sends and receives until stop is closed: at a rate, or at full speed with a constant
// backlog. N of a message is the time when it was to be sent.
func sustained(ctx context.Context, q Queue, job Job, stop <-chan struct{}, tell func(Progress)) error {
	body := bodyBeside(job.Body)
	sender, err := q.Sender(ctx)
	if err != nil {
		return err
	}
	var sent, received atomic.Int64
	var mu sync.Mutex // guards ages
	ages := measure.Histogram{}
	receiver, err := q.Receiver(ctx, 0, func(m Message) {
		age := time.Since(time.Unix(0, m.N))
		received.Add(1)
		mu.Lock()
		ages.Add(age)
		mu.Unlock()
	})
	if err != nil {
		return errors.Join(err, sender.Close(ctx))
	}
	now := func() Progress {
		mu.Lock()
		defer mu.Unlock()
		p := Progress{Sent: sent.Load(), Received: received.Load(), Ages: ages, Heap: measure.Heap()}
		ages = measure.Histogram{}
		return p
	}
	sending, end := context.WithCancel(ctx)
	defer end()
	sides := make(chan error, 2)
	go func() {
		room := func(n int) bool { return sent.Load()+int64(n)-received.Load() <= int64(job.Backlog) }
		send := sendEndless
		if job.Rate > 0 {
			send = sendAtRate
		}
		sides <- send(sending, sender, job, body, room, func(n int) { sent.Add(int64(n)) })
	}()
	go func() { sides <- receiver.Wait(sending) }() // it does not end on its own, unless it fails
	tell(now())
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for left := 2; left > 0; {
		select {
		case <-tick.C:
			tell(now())
		case <-stop:
			end()
			stop = nil
		case failed := <-sides:
			left--
			if sending.Err() == nil {
				err = errors.Join(err, failed, errors.New("a side ended early"))
				end()
			}
		}
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, sender.Close(bound), receiver.Close(bound))
}

// bodyBeside makes messages with a time in N as long as required.
func bodyBeside(size int) string {
	return strings.Repeat("x", max(size-len(`{"n":1700000000000000000,"body":""}`), 0))
}

// sendEndless keeps the backlog filled.
func sendEndless(ctx context.Context, sender Sender, job Job, body string, room func(n int) bool, sent func(n int)) error {
	if hand, ok := sender.(Streamer); ok {
		return measure.KeepBacklog(ctx, func() bool { return room(1) }, func(due time.Time) error {
			err := hand.Hand(ctx, Message{N: due.UnixNano(), Body: body})
			if err == nil {
				sent(1)
			}
			return err
		})
	}
	ms := make([]Message, min(rowsOf(sender), job.Backlog))
	return measure.KeepBacklog(ctx, func() bool { return room(len(ms)) }, func(due time.Time) error {
		for i := range ms {
			ms[i] = Message{N: due.UnixNano(), Body: body}
		}
		err := sender.SendAll(ctx, ms)
		if err == nil {
			sent(len(ms))
		}
		return err
	})
}

func rowsOf(sender Sender) int {
	if b, ok := sender.(interface{ Rows() int }); ok {
		return b.Rows()
	}
	return sendRows
}

// sendAtRate sends one message at a time, independent of earlier messages.
func sendAtRate(ctx context.Context, sender Sender, job Job, body string, _ func(n int) bool, sent func(n int)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sending)
	err := measure.AtRate(ctx, job.Rate, math.MaxInt, func(_ int, due time.Time) error {
		m := Message{N: due.UnixNano(), Body: body}
		if hand, ok := sender.(Streamer); ok {
			sent(1)
			return hand.Hand(ctx, m)
		}
		group.Go(func() error { // waits for one of the sends in progress
			err := sender.Send(ctx, m)
			if err == nil {
				sent(1)
			}
			return err
		})
		return nil
	})
	return errors.Join(err, group.Wait())
}
