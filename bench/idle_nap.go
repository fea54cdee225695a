package main

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// nap is one measurement of idle consumers: the number of processes (0: many), and the gaps between
// messages, for the given number of times -for.
type nap struct {
	sleepers int
	gap      measure.Gap
	times    int
	ordered  bool // the queue is ordered, with a key for each message
}

// fallAsleep is how long an idle consumer takes until it polls only every PollEvery, and a Notifier
// until it receives notifications.
const fallAsleep = 2 * time.Second

func (n nap) measure(ctx context.Context, o options, report func(measure.Result) error) error {
	if n.sleepers == 0 {
		n.sleepers = o.crowd
	}
	plain := o
	if n.ordered {
		o = o.ordered(manyKeys)
	}
	for round := range o.rounds {
		r := newResult(o, "chanq")
		r.BodyBytes, r.Processes, r.Gap, r.Notifier, r.Round = o.latencyBody(), n.sleepers+1, n.gap.String(), o.notifier, round+1
		err := onStore(ctx, plain, "raw", func(s *store, _ strategy) (err error) {
			r.Server = s.about(ctx)
			r.CommitP50, err = commitTime(ctx, s, o.latencyBody())
			return err
		})
		if err != nil {
			return err
		}
		err = onSleepers(ctx, o, n.sleepers, o.notifier, func(s *store, sleepers *sleepers) (err error) {
			waking := s.waking(o.notifier)
			defer func() { err = errors.Join(err, waking.end()) }()
			return n.send(ctx, o, s, waking, sleepers, &r)
		})
		if err == nil {
			err = report(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n nap) send(ctx context.Context, o options, s *store, w waking, sleepers *sleepers, r *measure.Result) (err error) {
	queue, err := chanq.Open[[]byte](ctx, s.db, s.place.Queue, w.queue)
	if err != nil {
		return err
	}
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close(context.WithoutCancel(ctx))) }()
	idle, err := sleepers.idle(ctx, o.rest)
	if err != nil {
		return err
	}
	r.Connections = s.connections(ctx)
	before, err := sleepers.ask()
	if err != nil {
		return err
	}
	before += s.counter.Statements()
	began, keys := time.Now(), newKeys(o.keys)
	r.N, err = measure.AtGaps(ctx, n.gap, time.Duration(n.times)*o.latencyFor, func(now time.Time) error {
		body := make([]byte, o.latencyBody())
		stamp(body, now)
		_, err := producer.Send(ctx, chanq.Message[[]byte]{Body: body, Key: keys.next()})
		return err
	})
	if err != nil {
		return err
	}
	after, err := sleepers.readAll(ctx, r.N)
	if err != nil {
		return err
	}
	after += s.counter.Statements()
	r.StatementsPerMessage = (float64(after-before) - idle*time.Since(began).Seconds()) / float64(r.N)
	r.IdleStatements = idle / float64(n.sleepers)
	sleepers.read.into(r)
	return nil
}

// idle returns the statements per second without messages.
func (s *sleepers) idle(ctx context.Context, rest time.Duration) (perSecond float64, err error) {
	before, err := s.ask()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := measure.Sleep(ctx, rest); err != nil {
		return 0, err
	}
	after, err := s.ask()
	return float64(after-before) / time.Since(began).Seconds(), err
}
