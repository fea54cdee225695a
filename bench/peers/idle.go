package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

// measureIdle measures each system in each round as `bench latency -idle` measures chanq: a
// receiver in a separate process is idle, and another process sends occasionally. A system that
// fails is skipped in that round, and the whole run fails at the end.
func (b *bench) measureIdle(ctx context.Context, report func(measure.Result)) error {
	var failures []error
	for round := range b.options.rounds {
		for i := range b.options.systems {
			s := b.options.systems[(i+round)%len(b.options.systems)]
			err := b.asleep(ctx, s, round+1, report)
			if ctx.Err() != nil {
				return errors.Join(append(failures, context.Cause(ctx))...)
			}
			if err != nil {
				failures = append(failures, fmt.Errorf("%s, round %d: %w", s.name(), round+1, err))
				fmt.Fprintln(b.messages, "peers:", failures[len(failures)-1])
			}
		}
	}
	return errors.Join(failures...)
}

// fallAsleep is how long a receiver may take until it polls at its lowest rate.
const fallAsleep = 2 * time.Second

// asleep measures one system with both gaps.
func (b *bench) asleep(ctx context.Context, s system, round int, report func(measure.Result)) error {
	o := b.options
	return b.onStore(ctx, s, func(job peer.Job, phase phaseRun) (err error) {
		job.Phase = peer.Sleep
		sleeper, err := b.startSustained(ctx, s, job)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sleeper.end()) }()
		if err := measure.Sleep(ctx, fallAsleep); err != nil {
			return err
		}
		rest, err := phase(peer.Job{Phase: peer.Nap, For: o.idle.rest})
		if err != nil {
			return err
		}
		counted := s.engine == postgres && b.server.counts == nil
		idle := rest.Statements / rest.Seconds
		for _, gap := range []measure.Gap{measure.Warm, measure.Cold} {
			length := o.idle.length
			if gap == measure.Cold {
				length *= 2
			}
			before := sleeper.received.Load()
			sleeper.takeAges()
			sleeper.takeSlowest()
			nap, err := phase(peer.Job{Phase: peer.Nap, Gap: gap, For: length})
			if err != nil {
				return err
			}
			r := measure.Here()
			r.Engine, r.Strategy, r.N, r.BodyBytes, r.Round, r.Command = s.engine, s.strategy, nap.Sent, o.body, round, o.command
			r.Step, r.Gap, r.Processes, r.CommitP50, r.Version = idleArgument, gap.String(), 2, nap.P50, sleeper.version
			if r.Engine == postgres {
				r.Server = b.server.about
			}
			if received := sleeper.received.Load() - before; received < int64(nap.Sent) {
				return fmt.Errorf("%d of %d messages were received", received, nap.Sent)
			}
			r.Ages, r.Max = sleeper.takeAges(), float64(sleeper.takeSlowest().Nanoseconds())/1e3
			r.P50, r.P99 = min(r.Ages.Quantile(0.5), r.Max), min(r.Ages.Quantile(0.99), r.Max)
			if counted {
				r.IdleStatements = idle
				r.StatementsPerMessage = (nap.Statements - idle*nap.Seconds) / float64(nap.Sent)
			}
			report(r)
		}
		return nil
	})
}

// takeSlowest returns the greatest age of a message received since the last call.
func (p *sustainedProcess) takeSlowest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slowest := p.slowest
	p.slowest = 0
	return slowest
}

func idleTable(about string, results []measure.Result) measure.Table {
	return measure.SleptTable("send to delivery in another, idle process; "+about, measure.SleptOf(results))
}
