package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

const (
	queueName = "soak"
	slots     = 16
	// rest is how long the workers may take to start, how long draining the queue may take, nacks of killed workers
	// included, and how long the measurement of handovers may take.
	rest = 5 * time.Minute
	// look is the interval between two checks of a condition, and dyingEvery the one at which processes that handle a
	// deadly message are searched.
	look, dyingEvery = 10 * time.Millisecond, 20 * time.Millisecond
)

// storm is a run of load and faults on a queue. Each interval is 0 for none.
type storm struct {
	Name string
	At   []testdb.Place // of the queue, or of its shards
	// Ordered: every place of a worker has its own keys, whose numbers continue those of the former worker, so the
	// sends of a key always follow one after another.
	Ordered bool
	Holds   bool // dead messages keep their keys closed, and are redriven

	For      time.Duration // of the sending, if Kills is 0
	Kills    int           // after which sending ends
	Rate     int           // messages per second, of all workers together
	Workers  int
	Spared   int           // the first workers, which are not disturbed
	Gap      time.Duration // for which the place of a worker stays empty, at most
	LeaseFor time.Duration

	// LeaveEvery: a worker ends in order. StopEvery: one is stopped by a signal for two leases. FreezeEvery: a
	// connection is frozen. LockEvery: rows, or a whole database, are locked. HoldEvery: transactions stay open.
	KillEvery, LeaveEvery, StopEvery, FreezeEvery, LockEvery, HoldEvery, SampleEvery time.Duration

	Faults float64       // share of the operations that fail
	Guilty float64       // share of the messages that are guilty
	Body   int           // most random bytes
	Hands  int           // leases that a worker handles at once
	Work   time.Duration // on most leases, at most
	Seed   uint64
	Crash  func() error `json:"-"` // ends the server and restarts it, half-way through the kills
}

// storms are the storms of the command and the tests.
var storms = []storm{
	{ // for any time, with faults of every kind
		Name: "soak", For: 10 * time.Minute, Rate: 1000, Workers: 4, Spared: 1, Body: 1024, Faults: 0.001, Hands: 1000,
		KillEvery: 5 * time.Second, LockEvery: 2 * time.Second, FreezeEvery: 5 * time.Second,
	},
	// Any process is killed, while it handles some messages and has others in its buffer.
	{Name: "kills", Kills: 100, Rate: 400, Workers: 8, Body: 200, Hands: 8,
		Work: 120 * time.Millisecond, KillEvery: 275 * time.Millisecond},
	{ // messages that end their processes, while processes are killed that handle innocent ones
		Name: "guilty", For: 90 * time.Second, Rate: 12, Workers: 4, Body: 200, Guilty: 0.1, Hands: 8,
		Work: 2 * time.Second, KillEvery: 5 * time.Second,
	},
	{ // an ordered queue
		Name: "keys", Ordered: true, Kills: 100, Rate: 200, Workers: 8, Faults: 0.005, Hands: 16, Work: 20 * time.Millisecond,
		LeaseFor: 1500 * time.Millisecond, Gap: 1500 * time.Millisecond, KillEvery: time.Second, LeaveEvery: 750 * time.Millisecond,
		StopEvery: 2250 * time.Millisecond, LockEvery: 7500 * time.Millisecond, HoldEvery: 2500 * time.Millisecond,
	},
	// How soon the slots of an ordered queue change hands: a measurement (handovers.go).
	{Name: "handovers", Ordered: true, Rate: 40, Workers: 4, Hands: 16, Work: 20 * time.Millisecond, LeaseFor: 5 * time.Second},
}

// stormOf returns a storm by its name.
func stormOf(name string) (s storm, err error) {
	for _, s := range storms {
		if s.Name == name {
			// LeaseFor is short, so that messages of a killed worker are redelivered within the run, and long
			// compared with delays of a loaded machine.
			s.LeaseFor = max(s.LeaseFor, time.Second)
			if !s.Ordered {
				s.LeaseFor = 5 * time.Second
			}
			s.Seed = uint64(time.Now().UnixNano())
			return s, nil
		}
	}
	return s, fmt.Errorf("unknown storm %q", name)
}

// strict reports whether only recorded faults keep a lease from being extended.
func (s storm) strict() bool { return s.Spared > 0 && s.Crash == nil && s.Guilty == 0 }

// check reports what a storm cannot do.
func (s storm) check() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, p := range s.At {
		e, known := engines[p.Engine]
		wrong(!known, "engine %q is unknown: it is one of %s", p.Engine, engineNames())
		wrong(known && p.Address == "", "engine %s needs an address", p.Engine)
		wrong(known && s.Guilty > 0 && e.triggers == nil, "-guilty: %s has no triggers for guilty messages", p.Engine)
	}
	wrong(len(s.At) > 1 && !s.Ordered, "-at: only an ordered queue is tested over several databases")
	wrong(s.For < time.Second && s.Kills == 0 && s.Name != handovers, "-for is %v: at least 1s", s.For)
	wrong(s.Rate < 1 || s.Rate > 100_000, "-rate is %d: from 1 to 100000", s.Rate)
	wrong(s.Workers < 1 || s.Workers > 64, "-workers is %d: from 1 to 64", s.Workers)
	wrong(min(s.KillEvery, s.LockEvery, s.FreezeEvery, s.LeaveEvery, s.StopEvery, s.HoldEvery) < 0, "an interval is negative")
	wrong(s.Kills > 0 && s.KillEvery == 0, "-kills needs -kill-every")
	wrong(s.Spared < 0, "-spared is %d", s.Spared)
	wrong(max(s.KillEvery, s.LeaveEvery, s.StopEvery) > 0 && s.Workers-s.Spared < 2,
		"-workers is %d, %d of them spared: with one other worker, none is killed, stopped or replaced", s.Workers, s.Spared)
	wrong(s.Ordered && s.FreezeEvery > 0, "-freeze-every: connections of an ordered queue are not frozen")
	wrong(s.Faults < 0 || s.Faults > 0.1, "-faults is %v: from 0 to 0.1", s.Faults)
	wrong(s.Guilty < 0 || s.Guilty > 0.1, "-guilty is %v: from 0 to 0.1", s.Guilty)
	wrong(s.Body < 0 || s.Body > 1<<20, "-body is %d: from 0 to 1 MiB", s.Body)
	wrong(s.LeaseFor < time.Second, "-lease is %v: at least 1s", s.LeaseFor)
	return errors.Join(errs...)
}

// config returns the queue's configuration.
func (s storm) config() chanq.Config {
	cfg := chanq.Config{Codec: codec{}}
	if s.Ordered {
		cfg.Spec = chanq.Spec{Kind: chanq.KindOrdered, Slots: slots, MaxAttempts: 10_000} // processes die
	}
	if s.Holds {
		cfg.DeadKey = chanq.DeadKeyHolds
	}
	return cfg
}

// timeout returns the StatementTimeout of workers. A statement that hangs is given up after the longest freeze: a
// frozen INSERT that arrives later stores its messages again, after the repeated one might have been consumed. An
// ordered queue without faults has the default.
func (s storm) timeout() time.Duration {
	if s.Ordered && s.Faults == 0 {
		return 0
	}
	return max(s.LeaseFor/2, engines[s.At[0].Engine].freezeFor+time.Second)
}
