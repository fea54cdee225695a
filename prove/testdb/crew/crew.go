// Package crew runs worker processes that a test or a measurement disturbs: it starts them, kills them, stops them with
// a signal, replaces them, and ends them. A Crew also has a schedule, which does all this at random times.
//
// A worker is a part of the running program (package child). It writes one line for each event to its standard output
// before it acts on it, so that a kill loses no event.
package crew

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/prove/testdb/child"
)

// Crew has the workers of a run. Each worker has a place, where another worker can replace it. One goroutine uses a
// Crew. Each process has one goroutine that waits for it and one that passes its lines to hear; End and Abandon join
// them.
type Crew struct {
	Places []*Process // nil: no worker
	All    []*Process // including those that have ended, by number
	Random *rand.Rand

	part    string
	hear    func(process int, line string) error
	failed  chan error // the first failure
	waiters sync.WaitGroup
	acts    []act
}

// Process is one worker process.
type Process struct {
	*child.Process
	Number, Place int

	stopped bool        // by Freeze
	leaving atomic.Bool // it may end now
}

// HasEnded reports whether the process has ended and all its lines have been read.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// New returns a crew without workers. hear is called with each line of each process, by one
// goroutine for each process. Random chooses times and workers.
func New(part string, places int, random *rand.Rand, hear func(process int, line string) error) *Crew {
	return &Crew{Places: make([]*Process, places), Random: random, part: part, hear: hear, failed: make(chan error, 1)}
}

// Start starts a worker with a task. Its number is the length of All.
func (c *Crew) Start(place int, task any) error {
	p := &Process{Number: len(c.All), Place: place}
	var err error
	p.Process, err = child.Start(context.Background(), c.part, task, func(line string) {
		if err := c.hear(p.Number, line); err != nil {
			c.Fail(err)
		}
	})
	if err != nil {
		return err
	}
	c.All = append(c.All, p)
	c.Places[place] = p
	c.waiters.Go(func() {
		if err := p.Wait(); !p.Killed() && (err != nil || !p.leaving.Load()) {
			c.Fail(fmt.Errorf("worker %d ended by itself: %w", p.Number, err))
		}
	})
	return nil
}

// Fail ends Run with an error. Any goroutine may call it.
func (c *Crew) Fail(err error) {
	select {
	case c.failed <- err:
	default: // only the first failure is returned
	}
}

// Running returns the workers that are in their places and are not stopped.
func (c *Crew) Running() []*Process {
	return slices.DeleteFunc(slices.Clone(c.Places), func(p *Process) bool { return p == nil || p.stopped })
}

// Kill kills a worker, which leaves its place, and waits until all its lines have been read.
func (c *Crew) Kill(p *Process) error {
	c.Places[p.Place] = nil
	if err := p.Process.Kill(); err != nil {
		return fmt.Errorf("worker %d: %w", p.Number, err)
	}
	return nil
}

// Fill starts a worker with the task in each empty place.
func (c *Crew) Fill(task any) error {
	for place, p := range c.Places {
		if p == nil {
			if err := c.Start(place, task); err != nil {
				return err
			}
		}
	}
	return nil
}

// KillOften kills any worker at random times, and starts another with the task in its place, until most are killed or
// Calm.
func (c *Crew) KillOften(mean time.Duration, most int, task any) {
	c.Often(mean, func() error {
		if c.Killed() >= most {
			return nil
		}
		if err := c.Kill(c.Places[c.Random.IntN(len(c.Places))]); err != nil {
			return err
		}
		return c.Fill(task)
	})
}

// Killed returns how many workers were killed.
func (c *Crew) Killed() (n int) {
	for _, p := range c.All {
		if p.Killed() {
			n++
		}
	}
	return n
}

// Leave removes a worker from its place. It ends when it has finished its current work.
func (c *Crew) Leave(p *Process) {
	c.Places[p.Place] = nil
	p.leaving.Store(true)
	p.Stop()
}

// Freeze stops a worker with a signal, and lets it continue after d.
func (c *Crew) Freeze(p *Process, d time.Duration) error {
	if err := p.Pause(); err != nil {
		return err
	}
	p.stopped = true
	c.After(d, func() error {
		p.stopped = false
		return p.Resume()
	})
	return nil
}

// Order writes a line to the input of every worker.
func (c *Crew) Order(line string) {
	for _, p := range c.Places {
		if p != nil {
			p.Order(line)
		}
	}
}

// End makes all workers leave, and waits for them.
func (c *Crew) End(ctx context.Context) error {
	for _, p := range c.Places {
		if p != nil {
			c.Leave(p)
		}
	}
	for _, p := range c.All {
		if err := c.Run(ctx, tick, func() (bool, error) { return p.HasEnded(), nil }); err != nil {
			return fmt.Errorf("waiting for the end of worker %d: %w", p.Number, err)
		}
	}
	c.waiters.Wait()
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

// Abandon kills all workers that have not ended, and waits.
func (c *Crew) Abandon() {
	for _, p := range c.All {
		_ = p.Process.Kill() // it might have ended
	}
	c.waiters.Wait()
}

// Sending returns a context that ends with ctx, or when the worker receives its first order.
func Sending(ctx context.Context, orders <-chan string) (context.Context, context.CancelFunc) {
	send, stop := context.WithCancel(ctx)
	go func() { // ends with the orders
		<-orders
		stop()
	}()
	return send, stop
}

// Rest waits for d, or until ctx ends.
func Rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
