package keystorm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chanq/chanq/prove/testdb/child"
)

// crew is the workers of a run, living and dead, and what they told. One goroutine uses it;
// each process has one that waits for it, and end or abandon joins them.
type crew struct {
	task    task       // of all of them
	died    chan error // of the first worker that ended by itself
	waiters sync.WaitGroup
	places  []*process // nil: nobody is there
	all     []*process

	mu      sync.Mutex // guards what processes tell: history, and each one's joined and quiet
	history *history
}

// process is one life of a worker.
type process struct {
	*child.Process
	number, place int
	frozen        bool
	leaves        bool
	joined, quiet chan struct{} // closed when it told so
}

func newCrew(t task, places int) *crew {
	return &crew{task: t, died: make(chan error, 1), places: make([]*process, places), history: newHistory()}
}

// start fills a place with a new process.
func (c *crew) start(place int) error {
	p := &process{number: len(c.all), place: place, joined: make(chan struct{}), quiet: make(chan struct{})}
	t := c.task
	t.Number, t.Place, t.Seed = p.number, place, t.Seed+uint64(p.number)
	c.mu.Lock()
	t.Next = c.history.next()
	c.mu.Unlock()
	var err error
	p.Process, err = child.Start(context.Background(), workerPart, t, func(line string) { c.hear(p, line) })
	if err != nil {
		return err
	}
	c.all = append(c.all, p)
	c.places[place] = p
	c.waiters.Go(func() {
		err := p.Wait()
		c.mu.Lock()
		leaves := p.leaves
		c.mu.Unlock()
		if !p.Killed() && (!leaves || err != nil) {
			c.fail(fmt.Errorf("worker %d ended by itself: %w", p.number, err))
		}
	})
	return nil
}

func (c *crew) fail(err error) {
	select {
	case c.died <- err:
	default: // the first is told
	}
}

// hear takes down what a process tells.
func (c *crew) hear(p *process, line string) {
	e, err := parseEvent(line)
	if err != nil {
		c.fail(err)
		return
	}
	switch e.Kind {
	case joined:
		close(p.joined)
	case quiet:
		close(p.quiet)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(p.number, e)
}

// living are the places of workers that run.
func (c *crew) living() (places []int) {
	for i, p := range c.places {
		if p != nil && !p.frozen {
			places = append(places, i)
		}
	}
	return places
}

// kill empties a place without warning.
func (c *crew) kill(place int) (*process, error) {
	p := c.places[place]
	c.places[place] = nil
	if err := p.Kill(); err != nil {
		return nil, fmt.Errorf("worker %d: %w", p.number, err)
	}
	return p, nil
}

// leave empties a place: its worker goes in peace, when it has done what it has in hand.
func (c *crew) leave(place int) *process {
	p := c.places[place]
	c.places[place] = nil
	c.mu.Lock()
	p.leaves = true
	c.mu.Unlock()
	p.Stop()
	return p
}

func (c *crew) await(ctx context.Context, p *process, what <-chan struct{}, word string) error {
	select {
	case <-what:
		return nil
	case err := <-c.died:
		return err
	case <-ctx.Done():
		return fmt.Errorf("worker %d does not %s: %w", p.number, word, context.Cause(ctx))
	}
}

// freeze stops a worker where it stands.
func (c *crew) freeze(place int) (thawed func() error, err error) {
	p := c.places[place]
	if err := freeze(p.PID()); err != nil {
		return nil, err
	}
	p.frozen = true
	return func() error {
		p.frozen = false
		return thaw(p.PID())
	}, nil
}

// drain has all workers send no more, and waits until nothing is under way.
func (c *crew) drain(ctx context.Context) error {
	for _, p := range c.places {
		if p != nil {
			p.Order("drain")
		}
	}
	for _, p := range c.places {
		if p != nil {
			if err := c.await(ctx, p, p.quiet, "stop sending"); err != nil {
				return err
			}
		}
	}
	return nil
}

// end has all workers leave at once, and waits for them.
func (c *crew) end(ctx context.Context) error {
	var leaving []*process
	for i, p := range c.places {
		if p != nil {
			leaving = append(leaving, c.leave(i))
		}
	}
	for _, p := range leaving {
		if err := c.await(ctx, p, p.Ended(), "end"); err != nil {
			return err
		}
	}
	c.waiters.Wait()
	select {
	case err := <-c.died:
		return err
	default:
		return nil
	}
}

// abandon kills what lives, and waits. After end nothing does.
func (c *crew) abandon() {
	for _, p := range c.all {
		_ = p.Kill() // may have ended
	}
	c.waiters.Wait()
}

// took is what the processes did so far.
func (c *crew) took() (messages, deliveries int, latencies []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history.messages, len(c.history.deliveries), c.history.latencies
}

var errTooLong = errors.New("it took too long")
