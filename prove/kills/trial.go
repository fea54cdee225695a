// Package kills runs a queue under mixed load, kills its processes at random, and its server once. Meanwhile it breaks and
// freezes connections and locks rows. It checks the events of every process against the guarantees: no message is lost, none
// is delivered after its end was confirmed, no two processes hold one, and no lease is lost unless it was blocked itself.
//
// The process that the user starts is the checker (History.Judge, which other tests with faults also use): it starts workers,
// kills and replaces them, reads events from their standard outputs, and samples the database. A worker both sends and
// receives; its events are in the pipe before it acts on them, so that a kill loses no event.
//
// The tests kill for a short time; bench soak does the same for any time, with further faults.
package kills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
)

const (
	queueName = "soak"
	// leaseFor is short, so that messages of a killed worker are redelivered within the run, and long compared with delays of a
	// loaded machine.
	leaseFor = 5 * time.Second
	// dyingEvery is the interval at which processes that handle a deadly message are searched.
	dyingEvery = 20 * time.Millisecond
	// rest is how long draining the queue may take, nacks of killed workers included.
	rest = 5 * time.Minute
)

// trial is a run of load and faults on a queue. Each mean interval is 0 for none.
type trial struct {
	Engine  string // a name of Engines
	Address string
	For     time.Duration // of the sending
	Rate    int           // messages per second, of all workers together
	Workers int
	Spared  int // the first workers, which are not killed
	Kills   int // the number after which sending ends; 0: no limit

	KillEvery, LockEvery, FreezeEvery, SampleEvery time.Duration

	Faults float64       // share of the operations that fail
	Guilty float64       // share of the messages that are guilty
	Body   int           // most bytes
	Work   time.Duration // on a lease, at most
	Seed   uint64
	// Crash ends the server and restarts it, half-way through the kills.
	Crash func() error `json:"-"`
}

// strict reports whether only recorded faults keep a lease from being extended.
func (s trial) strict() bool { return s.Spared > 0 && s.Crash == nil && s.Guilty == 0 }

// run runs the load and the kills, prints samples, and returns the workers and their events. All of them have ended; the
// caller calls end. The queue must not exist before, and is empty afterwards. The end of ctx ends the sending early.
func (s trial) run(ctx context.Context, out io.Writer) (*workers, error) {
	watch, err := newWatch(ctx, s.Engine, s.Address, s.Guilty > 0)
	if err != nil {
		return nil, err
	}
	w, err := startWorkers(s, watch)
	if err != nil {
		return nil, err
	}
	if err := s.play(ctx, w, out); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

// play runs the load, drains the queue and ends the workers.
func (s trial) play(ctx context.Context, w *workers, out io.Writer) error {
	if s.SampleEvery > 0 {
		fmt.Fprintln(out, sampleHeader)
	}
	if err := s.disturb(ctx, w, out); err != nil {
		return err
	}
	w.drained = now()
	w.Order("drain")
	w.Every(0, dyingEvery, w.killDying)
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	if err := w.quiet(bound, out); err != nil {
		return err
	}
	if err := w.empty(bound); err != nil {
		return err
	}
	if s.SampleEvery > 0 {
		if err := w.sample(out); err != nil {
			return err
		}
	}
	return w.End(bound)
}

// disturb injects the faults of the trial until its time is over, or its kills are done.
func (s trial) disturb(ctx context.Context, w *workers, out io.Writer) error {
	var crash errgroup.Group // joined here; kills continue meanwhile
	kills := 0
	w.Every(s.SampleEvery, s.SampleEvery, func() error { return w.sample(out) })
	w.Every(0, dyingEvery, w.killDying)
	w.Often(s.KillEvery, func() error {
		if s.Crash != nil && kills == s.Kills/2 {
			crash.Go(func() error {
				defer w.history.Outage()()
				return s.Crash()
			})
		}
		kills++
		return w.killOne()
	})
	w.Often(s.LockEvery, w.lock)
	w.Often(s.FreezeEvery, w.freeze)
	end := time.Now().Add(s.For)
	err := w.Run(context.WithoutCancel(ctx), 10*time.Millisecond, func() (bool, error) {
		return ctx.Err() != nil || time.Now().After(end) || s.Kills > 0 && kills == s.Kills, nil
	})
	w.calm()
	return errors.Join(err, crash.Wait())
}

// config returns the queue's configuration. A statement that hangs is given up after the longest freeze: a frozen INSERT that
// arrives later stores its messages again, after the repeated one might have been consumed.
func (e engine) config() chanq.Config {
	return chanq.Config{Codec: codec{}, StatementTimeout: max(leaseFor/2, e.freezeFor+time.Second)}
}
