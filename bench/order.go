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

// The defaults of the measurement of an ordered queue.
const (
	manyKeys  = 10_000
	manySlots = 64 // Spec.Slots's default
)

// The steps of order, each of which can be run alone.
const (
	keysStep    = "keys"
	blockedStep = "blocked"
	heldStep    = "held"
	slotsStep   = "slots"
	idleOrder   = "idle"
)

var orderSteps = []string{keysStep, blockedStep, heldStep, slotsStep, idleOrder}

// orderAxes are the quantities that can grow in an ordered queue.
var orderAxes = []growthAxis{
	{blockedStep, "0,10000,100000,1000000", 0, 1e8, "messages that wait behind those in work of their keys", beginBlocked},
	{heldStep, "1000,10000,100000,200000", 1, 1e8, "messages of one key, the first of which is held, in front of those of others", beginHeld},
	{slotsStep, "1,8,64", 1, 1024, "slots of the queue, all of one consumer", beginSlots},
}

// measureOrder measures an ordered queue: compared with a plain one in each round, and compared with itself
// for each axis of growth.
func measureOrder(ctx context.Context, o options, report func(measure.Result)) error {
	asked := func(step string) bool { return slices.Contains(o.steps, step) }
	if asked(keysStep) {
		if err := measureKeys(ctx, o, report); err != nil {
			return fmt.Errorf("%s: %w", keysStep, err)
		}
	}
	for _, axis := range orderAxes {
		if sizes := o.growth[axis.name]; asked(axis.name) && len(sizes) > 0 {
			if err := measureAxis(ctx, o, axis, sizes, report); err != nil {
				return fmt.Errorf("%s: %w", axis.name, err)
			}
		}
	}
	if asked(idleOrder) {
		if err := measureIdleKinds(ctx, o, report); err != nil {
			return fmt.Errorf("%s: %w", idleOrder, err)
		}
	}
	return nil
}

// measureKeys measures the throughput of a plain queue, of an ordered one with many keys, and of one with a
// single key, where each message waits for the ack of the previous one.
func measureKeys(ctx context.Context, o options, report func(measure.Result)) error {
	bodies := makeBodies(o.n, o.body)
	kinds := []options{o.plain(), o.ordered(o.keys), o.ordered(1)}
	for round := range o.rounds + 1 {
		for i := range kinds {
			kind := kinds[(i+round)%len(kinds)]
			n := o.n
			if kind.keys == 1 {
				n = min(n, o.single)
			}
			r, err := measureStrategy(ctx, kind, "chanq", bodies[:n])
			if err != nil {
				return fmt.Errorf("%d keys, round %d: %w", kind.keys, round, err)
			}
			if round > 0 {
				r.Round, r.Step = round, keysStep
				report(r)
			}
		}
	}
	return nil
}

func (o options) plain() options {
	o.slots, o.keys = 0, 0
	return o
}

func (o options) ordered(keys int) options {
	o.slots, o.keys = manySlots, keys
	return o
}

// settleDown is how long a consumer may take until it is idle: after consumers have joined or left, it
// reads their list more often for a while.
const settleDown = 6 * time.Second

// measureIdleKinds counts the statements of a consumer of a queue without messages, including its
// heartbeat.
func measureIdleKinds(ctx context.Context, o options, report func(measure.Result)) error {
	for round := range o.rounds {
		for _, kind := range []options{o.plain(), o.ordered(o.keys)} {
			r := newResult(kind, "chanq")
			r.Round, r.Step = round+1, idleOrder
			err := onStore(ctx, kind, "chanq", func(s *store, _ strategy) error {
				r.Server = s.about(ctx)
				queue, err := s.open(ctx)
				if err != nil {
					return err
				}
				consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{LeaseFor: leaseFor})
				if err != nil {
					return err
				}
				err = measure.Sleep(ctx, min(settleDown, o.rest))
				began, before := time.Now(), s.counter.Statements()
				err = errors.Join(err, measure.Sleep(ctx, o.rest))
				r.IdleStatements = float64(s.counter.Statements()-before) / time.Since(began).Seconds()
				return errors.Join(err, consumer.Shutdown(context.WithoutCancel(ctx)), consumer.Err())
			})
			if err != nil {
				return err
			}
			report(r)
		}
	}
	return nil
}

func (o *options) declareOrder(f *flag.FlagSet, steps *string, lists map[string]*string) {
	o.order, o.articleBatch = true, 1
	f.StringVar(steps, "steps", strings.Join(orderSteps, ","), "comma-separated: "+strings.Join(orderSteps, ", "))
	f.IntVar(&o.n, "n", 50_000, "messages of keys")
	f.IntVar(&o.single, "single-n", 1_000, "at most this many messages of a single key, each of which waits for the one before it")
	f.IntVar(&o.keys, "keys", manyKeys, "keys of the messages")
	f.IntVar(&o.samples, "samples", 20_000, "messages of one measurement of what grows")
	f.DurationVar(&o.rest, "rest", 10*time.Second, "how long nothing is sent, to count what a consumer asks")
	for _, axis := range orderAxes {
		lists[axis.name] = f.String(axis.name, axis.sizes, "comma-separated: "+axis.about)
	}
}

// keys assigns each message a random key, the same in every run. nil assigns none.
type keys struct {
	names  []string
	random *rand.Rand
}

func newKeys(n int) *keys {
	if n == 0 {
		return nil
	}
	k := &keys{make([]string, n), rand.New(rand.NewPCG(1, 2))}
	for i := range k.names {
		k.names[i] = fmt.Sprintf("customer %d", i)
	}
	return k
}

func (k *keys) next() string {
	if k == nil {
		return ""
	}
	return k.names[k.random.IntN(len(k.names))]
}
