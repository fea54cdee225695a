package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// measureLatency sends at a fixed rate and measures how long each message takes to its reader.
// First the sender is in the reader's process, where its producer wakes the consumer. Then it is in
// a separate process, where only the consumer's polls find messages.
func measureLatency(ctx context.Context, o options, report func(measure.Result)) error {
	if o.idle {
		return measureIdle(ctx, o, report)
	}
	rates := make([]float64, 0, len(o.loads))
	saturation := o.saturation
	switch {
	case o.rate > 0:
		rates = append(rates, o.rate)
	case saturation == 0:
		var err error
		if saturation, err = measureSaturation(ctx, o); err != nil {
			return err
		}
		fallthrough
	default:
		for _, load := range o.loads {
			rates = append(rates, load*saturation)
		}
	}
	for round := range o.rounds {
		for _, rate := range rates {
			for processes := 1; processes <= 2; processes++ {
				r, err := measureRate(ctx, o, rate, processes)
				if err != nil {
					return fmt.Errorf("latency at %.0f/s, %d processes: %w", rate, processes, err)
				}
				r.Round = round + 1
				if o.rate == 0 {
					r.Load = rate / saturation
				}
				report(r)
			}
		}
	}
	return nil
}

// measureSaturation returns the least pipeline rate of three: a rate that the machine cannot
// sustain has only the latency of its backlog.
func measureSaturation(ctx context.Context, o options) (float64, error) {
	least := math.Inf(1)
	bodies := makeBodies(20_000, o.latencyBody())
	for range 3 {
		err := onStore(ctx, o, "chanq", func(s *store, way strategy) error {
			c, err := timed(ctx, s, "saturation", func(ctx context.Context) error { return way.pipeline(ctx, bodies) })
			least = min(least, float64(len(bodies))/c.Seconds)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return least, nil
}

// latencyBody is at least the size of the send time.
func (o options) latencyBody() int { return max(o.body, stampBytes) }

func measureRate(ctx context.Context, o options, rate float64, processes int) (measure.Result, error) {
	warm := int(math.Ceil(rate * o.latencyFor.Seconds() / 10))
	n := int(math.Ceil(rate * o.latencyFor.Seconds()))
	r := newResult(o, "chanq")
	r.N, r.BodyBytes, r.Batch, r.RatePerS, r.Processes = n, o.latencyBody(), o.batch, rate, processes
	err := onStore(ctx, o, "chanq", func(s *store, _ strategy) error {
		r.Server = s.about(ctx)
		var err error
		if r.CommitP50, err = commitTime(ctx, s, o.latencyBody()); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx) // ends the reader if the sender fails
		defer cancel()
		send := senderTask{Place: s.place, Rate: rate, N: warm + n, Body: o.latencyBody(), Batch: o.batch}
		sent := make(chan error, 1)
		go func() {
			var err error
			if processes == 1 {
				err = send.run(ctx, s, nil)
			} else {
				err = send.runApart(ctx)
			}
			if err != nil {
				cancel()
			}
			sent <- err
		}()
		latencies, err := readStamped(ctx, s, o, warm+n)
		if err = errors.Join(<-sent, err); err != nil {
			return err
		}
		latencies = latencies[warm:]
		slices.Sort(latencies)
		r.P50, r.P99, r.P999 = measure.Quantile(latencies, 0.5), measure.Quantile(latencies, 0.99), measure.Quantile(latencies, 0.999)
		return nil
	})
	return r, err
}

// commitTime returns the median, in µs, of enqueues of one message by one statement. The messages
// are removed afterwards.
func commitTime(ctx context.Context, s *store, body int) (float64, error) {
	const n = 100
	times := make([]time.Duration, 0, n)
	bodies := makeBodies(1, body)
	err := s.session(ctx, func(session *bareSession) error {
		for range n {
			start := time.Now()
			if err := session.enqueue(bodies); err != nil {
				return err
			}
			times = append(times, time.Since(start))
		}
		_, err := session.claimAndAck(n)
		return err
	})
	slices.Sort(times)
	return measure.Quantile(times, 0.5), err
}

// stampBytes is the size of the due time in a body, in Unix nanoseconds. Both processes run on one
// machine and read one clock.
const stampBytes = 8

func stamp(body []byte, due time.Time) {
	binary.BigEndian.PutUint64(body, uint64(due.UnixNano()))
}

// stamped sends bodies with their due times on a producer's channel.
func stamped(ctx context.Context, producer *chanq.Producer[[]byte], size int, keys *keys) func(int, time.Time) error {
	return func(_ int, due time.Time) error {
		body := make([]byte, size)
		stamp(body, due)
		select {
		case producer.C() <- chanq.Message[[]byte]{Key: keys.next(), Body: body}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func stampOf(body []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(body))) }

// readStamped reads n messages as chanq's users do and returns the age of each, in the order of
// reading.
func readStamped(ctx context.Context, s *store, o options, n int) ([]time.Duration, error) {
	queue, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	ages := make([]time.Duration, 0, n)
	err = readAll(ctx, single{queue}, o.batch, n, func(l *chanq.Lease[[]byte]) { ages = append(ages, time.Since(stampOf(l.Body))) })
	return ages, errors.Join(err, ctx.Err())
}
