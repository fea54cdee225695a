// Package kills runs a queue under mixed load, kills its processes at random, and
// its server once, breaks and freezes connections and locks rows meanwhile, and
// holds what every process told against what chanq promises: no message is lost,
// none is delivered after its end was confirmed, no two hold one, and no lease is
// lost but those that were stuck themselves.
//
// The process that the user starts is the judge (History.Judge, which other tests
// that break things use as well): it starts workers, kills and replaces them,
// reads what they tell on their standard outputs, and samples the database. A
// worker both sends and receives; what it tells is in the pipe before it acts on
// it, so that a kill takes nothing back.
//
// The tests are storms of kills; bench soak is the same for as long as one likes,
// with everything else besides.
package kills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq"
)

const (
	queueName = "soak"
	// leaseFor is short, so that what a killed worker held comes back within the run,
	// and long beside what a loaded machine keeps a process waiting.
	leaseFor = 5 * time.Second
	// rest is how long the rest of the queue may take, nacks of killed workers included.
	rest = 5 * time.Minute
)

// storm is what happens to a queue. The mean time between two of anything is 0
// for none.
type storm struct {
	Engine  string // a name of Engines
	Address string
	For     time.Duration // of the sending
	Rate    int           // messages a second, of all workers together
	Workers int
	Spared  int // of the workers, the first, which nobody kills
	Kills   int // that end the sending, too; 0: as many as there are

	KillEvery, LockEvery, FreezeEvery, SampleEvery time.Duration

	Faults float64       // share of the operations that break their connection
	Body   int           // most bytes
	Work   time.Duration // on a lease, at most
	Seed   uint64
	// Crash ends the server and brings it back, half-way through the kills.
	Crash func() error
}

// strict: nothing but what is written down keeps a lease from being extended.
func (s storm) strict() bool { return s.Spared > 0 && s.Crash == nil }

// run runs a storm, prints samples, and returns what its crew has written down, all
// of whom have ended. The queue must not be there before, and is empty then. The
// end of ctx ends the sending early.
func (s storm) run(ctx context.Context, out io.Writer) (*crew, *watch, error) {
	watch, err := newWatch(s.Engine, s.Address)
	if err != nil {
		return nil, nil, err
	}
	if err := watch.create(ctx); err != nil {
		watch.close()
		return nil, nil, err
	}
	crew, err := startCrew(s, watch.engine)
	if err != nil {
		watch.close()
		return nil, nil, err
	}
	if err := s.play(ctx, crew, watch, out); err != nil {
		crew.abandon()
		watch.close()
		return nil, nil, err
	}
	return crew, watch, nil
}

// play lets the crew work, drains the queue and lets the crew end.
func (s storm) play(ctx context.Context, crew *crew, watch *watch, out io.Writer) error {
	random := rand.New(rand.NewPCG(s.Seed, 1))
	disturber, err := newDisturber(watch.engine, s.Address, crew, random)
	if err != nil {
		return err
	}
	defer disturber.end()
	if s.SampleEvery > 0 {
		fmt.Fprintln(out, sampleHeader)
	}
	if err := s.disturb(ctx, crew, watch, disturber, out); err != nil {
		return err
	}
	disturber.end()
	crew.drain()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	if err := watch.empty(bound, crew); err != nil {
		return err
	}
	if s.SampleEvery > 0 {
		if err := watch.sample(crew, out); err != nil {
			return err
		}
	}
	return crew.end(bound)
}

// disturb does what a storm does until its time is over, or its kills are done.
func (s storm) disturb(ctx context.Context, crew *crew, watch *watch, disturber *disturber, out io.Writer) (err error) {
	random := disturber.random
	end := time.NewTimer(s.For)
	defer end.Stop()
	sample := time.NewTimer(never(s.SampleEvery))
	defer sample.Stop()
	killing := time.NewTimer(next(random, s.KillEvery))
	defer killing.Stop()
	locking := time.NewTimer(next(random, s.LockEvery))
	defer locking.Stop()
	freezing := time.NewTimer(next(random, s.FreezeEvery))
	defer freezing.Stop()
	recovered := make(chan error, 1)
	crashed := false
	defer func() {
		if crashed {
			err = errors.Join(err, <-recovered)
		}
	}()
	for kills := 0; s.Kills == 0 || kills < s.Kills; {
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case err := <-crew.died:
			return err
		case err := <-disturber.failed:
			return err
		case <-sample.C:
			if err := watch.sample(crew, out); err != nil {
				return err
			}
			sample.Reset(s.SampleEvery)
		case <-killing.C:
			if s.Crash != nil && kills == s.Kills/2 {
				crashed = true
				go func() { recovered <- crew.outage(s.Crash) }() // joined above; kills go on meanwhile
			}
			if err := crew.killOne(random); err != nil {
				return err
			}
			kills++
			killing.Reset(next(random, s.KillEvery))
		case <-locking.C:
			disturber.lock()
			locking.Reset(next(random, s.LockEvery))
		case <-freezing.C:
			if crew.proxies != nil { // else each worker does it
				disturber.freeze()
			}
			freezing.Reset(next(random, s.FreezeEvery))
		}
	}
	return nil
}

// next is when the next disturbance is due: after half to one and a half times the
// mean, or never.
func next(random *rand.Rand, mean time.Duration) time.Duration {
	if mean == 0 {
		return never(0)
	}
	return mean/2 + time.Duration(random.Int64N(int64(mean)))
}

// never is d, or longer than any run if that is 0.
func never(d time.Duration) time.Duration {
	if d == 0 {
		return 1000 * time.Hour
	}
	return d
}

// config is the queue's: a message may be claimed as often as workers die.
func config(e engine) chanq.Config { return chanq.Config{Dialect: e.Dialect, MaxAttempts: 10_000} }
