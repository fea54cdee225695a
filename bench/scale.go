package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// scaleStep is one configuration of many idle consumers.
type scaleStep struct {
	name, about string
	notifier    bool
	pollEvery   time.Duration // 0: the default
	history     chanq.History
}

// scaleSteps has the steps in order. Each can be run alone.
var scaleSteps = []scaleStep{
	{"poll", "no Notifier", false, 0, chanq.HistoryKept},
	{"poll-slowly", "no Notifier, PollEvery 10s", false, 10 * time.Second, chanq.HistoryKept},
	{"notify", "a Notifier", true, 0, chanq.HistoryKept},
	{"notify-slowly", "a Notifier, PollEvery 30s", true, 30 * time.Second, chanq.HistoryKept},
	{"notify-alone", "a Notifier, PollEvery 30s, no history", true, 30 * time.Second, chanq.HistoryOff},
}

func scaleStepNames() []string {
	names := make([]string, len(scaleSteps))
	for i, s := range scaleSteps {
		names[i] = s.name
	}
	return names
}

// scaleOptions are the flags of only this command.
type scaleOptions struct {
	queues, schemas, limit int
	settle                 time.Duration
}

// measureScale measures many idle consumers of many queues in many processes: their statements,
// connections, memory and CPU time, and how soon a message to one of the queues is delivered.
func measureScale(ctx context.Context, o options, report func(measure.Result)) error {
	return onQueues(ctx, o, func(first *store, places []place) error {
		for round := range o.rounds {
			for _, step := range scaleSteps {
				if !slices.Contains(o.steps, step.name) {
					continue
				}
				r, err := measureScaleStep(ctx, o, first, places, step)
				if err != nil {
					return fmt.Errorf("%s: %w", step.name, err)
				}
				r.Round = round + 1
				report(r)
			}
		}
		return nil
	})
}

// onQueues runs f on a number of queues, one of each schema in turn. Each schema begins with the
// queue of its store.
func onQueues(ctx context.Context, o options, f func(first *store, places []place) error) (err error) {
	var stores []*store
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.remove())
		}
	}()
	var places []place
	for i := range o.scale.queues {
		if i < o.scale.schemas {
			s, err := openQueue(ctx, o)
			if err != nil {
				return err
			}
			s.db.SetMaxIdleConns(1)
			stores, places = append(stores, s), append(places, s.place)
			continue
		}
		s := stores[i%o.scale.schemas]
		p := s.place
		p.Queue = fmt.Sprintf("bench_%d", i)
		if err := chanq.Migrate(ctx, s.db, p.Queue, s.config()); err != nil {
			return err
		}
		places = append(places, p)
	}
	return f(stores[0], places)
}

func measureScaleStep(ctx context.Context, o options, first *store, places []place, step scaleStep) (r measure.Result, err error) {
	r = newResult(o, "chanq")
	r.BodyBytes, r.Step, r.Notifier, r.Processes, r.Consumers = o.latencyBody(), step.name, step.notifier, o.processes, o.consumers
	scale := &measure.Scale{Queues: len(places), Schemas: o.scale.schemas, Slots: o.slots, Limit: o.scale.limit, About: step.about}
	r.Scale, r.Server = scale, first.about(ctx)
	all, err := startCrowds(ctx, o, places, step)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, all.end()) }()
	if err := measure.Sleep(ctx, o.scale.settle); err != nil {
		return r, err
	}
	server := findServer(ctx, first)
	before, err := all.ask(ctx)
	if err != nil {
		return r, err
	}
	cpu, connects, began := server.cpuTime(), first.connects(ctx), time.Now()
	for time.Since(began) < o.rest {
		if err := measure.Sleep(ctx, time.Second); err != nil {
			return r, err
		}
		scale.Connections = append(scale.Connections, all.connections(ctx, first))
	}
	seconds := time.Since(began).Seconds()
	scale.ServerCPU = (server.cpuTime() - cpu).Seconds() / seconds
	scale.ConnectsPerS = float64(first.connects(ctx)-connects) / seconds
	scale.ServerBytes, scale.Backends = server.memory()
	after, err := all.ask(ctx)
	if err != nil {
		return r, err
	}
	after.since(before, seconds, o.consumers, scale)
	if err := sendToMany(ctx, o, first, places, step, &r); err != nil {
		return r, err
	}
	heard, err := all.askUntil(ctx, r.N)
	r.Ages, r.Max = heard.Ages, float64(heard.Slowest.Nanoseconds())/1e3
	r.P50, r.P99 = min(r.Ages.Quantile(0.5), r.Max), min(r.Ages.Quantile(0.99), r.Max)
	return r, err
}

// scaleGap is the gap between two messages, each to a random queue. No queue has more than one
// message at a time.
var scaleGap = measure.Gap{Low: 20 * time.Millisecond, High: 100 * time.Millisecond}

// sendToMany sends single messages to idle queues.
func sendToMany(ctx context.Context, o options, first *store, places []place, step scaleStep, r *measure.Result) (err error) {
	waking := first.waking(step.notifier)
	defer func() { err = errors.Join(err, waking.end()) }()
	producers := make([]*chanq.Producer[[]byte], len(places))
	defer func() {
		for _, p := range producers {
			if p != nil {
				err = errors.Join(err, p.Close(context.WithoutCancel(ctx)))
			}
		}
	}()
	random := rand.New(rand.NewPCG(1, 2))
	r.N, err = measure.AtGaps(ctx, scaleGap, o.latencyFor, func(time.Time) error {
		i := random.IntN(len(places))
		if producers[i] == nil {
			config := waking.queue
			config.Schema, config.History = places[i].Schema, chanq.HistoryOff
			queue, err := chanq.Open[[]byte](ctx, first.db, places[i].Queue, config)
			if err != nil {
				return err
			}
			if producers[i], err = queue.Producer(ctx, chanq.ProducerConfig{}); err != nil {
				return err
			}
		}
		body := make([]byte, o.latencyBody())
		stamp(body, time.Now()) // after the queue was opened
		_, err := producers[i].Send(ctx, chanq.Message[[]byte]{Body: body, Key: "a key"[:min(5, 5*o.slots)]})
		return err
	})
	return err
}

func (o *options) declareScale(f *flag.FlagSet, steps *string) {
	about := "comma-separated:"
	for _, s := range scaleSteps {
		about += "\n" + s.name + ": " + s.about
	}
	f.StringVar(steps, "steps", strings.Join(scaleStepNames(), ","), about)
	f.IntVar(&o.scale.queues, "queues", 200, "queues")
	f.IntVar(&o.scale.schemas, "schemas", 1, "schemas that they lie in; on Citus they are distributed")
	f.IntVar(&o.slots, "slots", 0, "slots of each queue; 0: plain ones")
	f.IntVar(&o.consumers, "consumers", 1000, "consumers of all processes, each of one queue")
	f.IntVar(&o.processes, "processes", 20, "processes, with one *sql.DB each")
	f.IntVar(&o.scale.limit, "connections", 0, "SetMaxOpenConns of each process; 0: no limit")
	f.DurationVar(&o.scale.settle, "settle", 8*time.Second, "how long nothing is counted after the start")
	f.DurationVar(&o.rest, "rest", 20*time.Second, "how long nothing is sent, to count what consumers ask")
	f.DurationVar(&o.latencyFor, "for", 10*time.Second, "how long single messages are sent after that, each to a queue at random")
}

func (o options) checkScale(within func(name string, value, low, high int)) error {
	within("-queues", o.scale.queues, 1, 10_000)
	within("-schemas", o.scale.schemas, 1, o.scale.queues)
	within("-slots", o.slots, 0, 1024)
	within("-processes", o.processes, 1, 1000)
	within("-consumers", o.consumers, o.processes, 100_000)
	within("-connections", o.scale.limit, 0, 10_000)
	for _, step := range o.steps {
		if !slices.Contains(scaleStepNames(), step) {
			return fmt.Errorf("-steps %q is unknown; known: %s", step, strings.Join(scaleStepNames(), ", "))
		}
	}
	if o.engine != postgresEngine.name {
		return errors.New("-engine must be postgres")
	}
	if o.rest <= 0 {
		return fmt.Errorf("-rest is %v: must be positive", o.rest)
	}
	return nil
}
