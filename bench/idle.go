package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
)

// idleStep is one step of -idle.
type idleStep struct {
	name, about string
	measure     func(context.Context, options, func(measure.Result) error) error
}

// idleSteps has the steps in order. Each can be run alone.
var idleSteps = []idleStep{
	{"gaps", "one idle consumer, gaps of 100 to 500 ms", nap{1, measure.Warm, 1, false}.measure},
	{"cold", "one idle consumer, gaps of 2 to 4 s, twice as long", nap{1, measure.Cold, 2, false}.measure},
	{"crowd", "many idle consumers, gaps of 100 to 500 ms", nap{0, measure.Warm, 1, false}.measure},
	{"owners", "four idle consumers that own the slots of an ordered queue, gaps of 100 to 500 ms", nap{4, measure.Warm, 1, true}.measure},
	{"enqueue", "a producer at full speed with no, one and many idle consumers, its notifier off and on", measureEnqueue},
	{"singles", "eight producers of single messages with no and one idle consumer, their notifier off and on", measureSingles},
	{"half", "sent and received at half of full speed, the notifier off and on", measureHalf},
}

func idleStepNames() []string {
	names := make([]string, len(idleSteps))
	for i, s := range idleSteps {
		names[i] = s.name
	}
	return names
}

// measureIdle measures idle consumers of other processes: how fast they wake, and the cost of that.
// The statements of all processes are counted.
func measureIdle(ctx context.Context, o options, report func(measure.Result)) error {
	log, err := watchLog(ctx, o)
	if err != nil {
		return err
	}
	for _, step := range idleSteps {
		if !slices.Contains(o.steps, step.name) {
			continue
		}
		err := step.measure(ctx, o, func(r measure.Result) (err error) {
			r.Step = step.name
			if r.LockWaits, err = log.waits(); err == nil {
				report(r)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func watchLog(ctx context.Context, o options) (log *serverLog, err error) {
	if o.log == "" {
		return &serverLog{}, nil
	}
	err = onStore(ctx, o, "raw", func(s *store, _ strategy) (err error) {
		log, err = openLog(ctx, s, o.log)
		return err
	})
	return log, err
}

// onSleepers runs f on an empty queue with n idle processes.
func onSleepers(ctx context.Context, o options, n int, notifier bool, f func(*store, *sleepers) error) error {
	return onStore(ctx, o, "raw", func(s *store, _ strategy) error {
		sleepers, err := startSleepers(ctx, sleepTask{Place: s.place, Notifier: notifier}, n)
		if err != nil {
			return err
		}
		settle := fallAsleep
		if o.slots > 0 { // the slots are distributed
			settle = settleDown
		}
		err = measure.Sleep(ctx, min(settle, o.rest))
		if err == nil {
			err = f(s, sleepers)
		}
		return errors.Join(err, sleepers.end())
	})
}

func (o *options) declareIdle(f *flag.FlagSet, steps *string) {
	about := "with -idle, comma-separated:"
	for _, s := range idleSteps {
		about += "\n" + s.name + ": " + s.about
	}
	f.BoolVar(&o.idle, "idle", false, "measure idle consumers of other processes instead, in -steps")
	f.StringVar(steps, "steps", strings.Join(idleStepNames(), ","), about)
	f.BoolVar(&o.notifier, "notify", true, "with -idle: wake idle consumers with the Notifier of the engine; without, they poll")
	f.IntVar(&o.crowd, "crowd", 48, "with -idle: how many idle consumers are many")
	f.DurationVar(&o.rest, "rest", 10*time.Second, "with -idle: how long nothing is sent, to count the statements of idle consumers")
	f.DurationVar(&o.burst, "burst", 2*time.Second, "with -idle: how long is sent at full speed each time")
	f.IntVar(&o.pairs, "pairs", 3, "with -idle: times of a round that the notifier is off and on")
	f.StringVar(&o.log, "log", "", "with -idle: the server's log file, to count waits for the lock of notifications; it needs log_lock_waits=on deadlock_timeout=10ms")
}
