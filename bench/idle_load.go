package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/chanqadmin"
)

// A load is measured in pairs, with the notifier alternately off and on, so that other load on the
// machine affects both.

// measureEnqueue sends at the full speed of one producer.
func measureEnqueue(ctx context.Context, o options, report func(measure.Result) error) error {
	return measureBesides(ctx, o, []int{0, 1, o.crowd}, report, func(ctx context.Context, queue *chanq.Queue[[]byte]) (int, error) {
		producer, err := queue.Producer(ctx, chanq.ProducerConfig{BatchRows: o.batch})
		if err != nil {
			return 0, err
		}
		body := make([]byte, o.body)
		n := 0
		for end := time.Now().Add(o.burst); n == 0 || time.Now().Before(end) && ctx.Err() == nil; n++ {
			producer.C() <- chanq.Message[[]byte]{Body: body}
		}
		return n, errors.Join(ctx.Err(), producer.Close(context.WithoutCancel(ctx)))
	})
}

// singleSenders is the number of producers that send single messages. Each has its own producer, so
// that no two messages share a statement, as with separate processes.
const singleSenders = 8

// measureSingles sends single messages, each of which waits for its commit.
func measureSingles(ctx context.Context, o options, report func(measure.Result) error) error {
	return measureBesides(ctx, o, []int{0, 1}, report, func(ctx context.Context, queue *chanq.Queue[[]byte]) (int, error) {
		var sent [singleSenders]int
		var group errgroup.Group
		end := time.Now().Add(o.burst)
		for i := range sent {
			producer, err := queue.Producer(ctx, chanq.ProducerConfig{})
			if err != nil {
				return 0, errors.Join(err, group.Wait())
			}
			body := make([]byte, o.body)
			group.Go(func() (err error) {
				for ; sent[i] == 0 || time.Now().Before(end) && err == nil; sent[i]++ {
					_, err = producer.Send(ctx, chanq.Message[[]byte]{Body: body})
				}
				return errors.Join(err, producer.Close(context.WithoutCancel(ctx)))
			})
		}
		err := group.Wait()
		n := 0
		for _, one := range sent {
			n += one
		}
		return n, err
	})
}

// measureBesides measures the throughput of send with idle consumers. The queue is paused, so that
// they stay idle, and each notification wakes them without a message, which is the most expensive
// case.
func measureBesides(ctx context.Context, o options, crowds []int, report func(measure.Result) error, send func(context.Context, *chanq.Queue[[]byte]) (int, error)) error {
	for _, n := range crowds {
		err := onSleepers(ctx, o, n, true, func(s *store, _ *sleepers) (err error) {
			s.db.SetMaxIdleConns(2 * singleSenders)
			waking := [2]waking{s.waking(false), s.waking(true)}
			defer func() { err = errors.Join(err, waking[0].end(), waking[1].end()) }()
			var queues [2]*chanq.Queue[[]byte] // the notifier off, and on
			for i := range queues {
				if queues[i], err = chanq.Open[[]byte](ctx, s.db, s.place.Queue, waking[i].queue); err != nil {
					return err
				}
			}
			admin, err := chanqadmin.Open(ctx, s.db, s.place.Queue, s.config())
			if err != nil {
				return err
			}
			if err := admin.Pause(ctx, chanqadmin.Change{}); err != nil {
				return err
			}
			server := s.about(ctx)
			for pair := range o.rounds*o.pairs + 1 { // the first pair warms up
				for i := range queues {
					notifier := (pair + i) % 2
					r := newResult(o, "chanq")
					r.Server, r.Round, r.Notifier, r.Processes, r.Batch = server, pair, notifier == 1, n+1, o.batch
					c, err := measure.Of(s.counter.Statements, func() (err error) {
						r.N, err = send(ctx, queues[notifier])
						return err
					})
					if err = errors.Join(err, s.empty(ctx)); err != nil {
						return err
					}
					r.EnqueuePerS, r.StatementsPerMessage = float64(r.N)/c.Seconds, c.Statements/float64(r.N)
					if pair == 0 {
						continue
					}
					if err := report(r); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// empty removes all messages.
func (s *store) empty(ctx context.Context) error {
	text := "DELETE FROM "
	if s.place.Engine == postgresEngine.name {
		text = "TRUNCATE "
	}
	_, err := s.db.ExecContext(ctx, text+s.liveTable())
	return err
}

// measureHalf sends to another process at half of full speed, and counts the statements of both.
func measureHalf(ctx context.Context, o options, report func(measure.Result) error) error {
	saturation := o.saturation
	if saturation == 0 {
		var err error
		if saturation, err = measureSaturation(ctx, o); err != nil {
			return err
		}
	}
	for round := range o.rounds {
		for i := range 2 {
			notifier := (round+i)%2 == 1
			r := newResult(o, "chanq")
			r.BodyBytes, r.Round, r.Notifier, r.Processes, r.Batch = o.latencyBody(), round+1, notifier, 2, o.batch
			r.Load, r.RatePerS = 0.5, 0.5*saturation
			err := onSleepers(ctx, o, 1, notifier, func(s *store, sleepers *sleepers) error {
				r.Server = s.about(ctx)
				return sendHalf(ctx, o, s, sleepers, &r)
			})
			if err == nil {
				err = report(r)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func sendHalf(ctx context.Context, o options, s *store, sleepers *sleepers, r *measure.Result) (err error) {
	waking := s.waking(r.Notifier)
	defer func() { err = errors.Join(err, waking.end()) }()
	queue, err := chanq.Open[[]byte](ctx, s.db, s.place.Queue, waking.queue)
	if err != nil {
		return err
	}
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{BatchRows: o.batch})
	if err != nil {
		return err
	}
	n := max(5, int(r.RatePerS*o.latencyFor.Seconds()/2))
	warm := n / 5 // until the consumer is awake, and has received the messages sent before
	r.N = n - warm
	var before int64
	send := stamped(ctx, producer, o.latencyBody(), nil)
	err = measure.AtRate(ctx, r.RatePerS, n, func(i int, due time.Time) (err error) {
		if i == warm {
			if before, err = sleepers.ask(); err != nil {
				return err
			}
			before += s.counter.Statements()
			sleepers.forget()
		}
		return send(i, due)
	})
	if err = errors.Join(err, producer.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	after, err := sleepers.readAll(ctx, n)
	r.StatementsPerMessage = float64(after+s.counter.Statements()-before) / float64(r.N)
	sleepers.read.into(r)
	return err
}
