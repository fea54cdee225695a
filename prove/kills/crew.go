package kills

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// crew is the workers of a run, living and dead, and what they told. Each process
// has one goroutine that waits for it; end and abandon join them.
type crew struct {
	storm   storm
	engine  engine
	died    chan error // of the first worker that ended by itself
	waiters sync.WaitGroup

	mu      sync.Mutex
	places  []*process        // the living ones
	proxies []*netproxy.Proxy // by place, to the server; none to a file
	freezes int
	waits   int // times that every writer was kept waiting
	all     []*process
	history *History
	ended   bool // workers may end now
}

// process is one life of a worker.
type process struct {
	*child.Process
	number int
	last   usage // guarded by crew.mu
}

func startCrew(s storm, e engine) (*crew, error) {
	c := &crew{storm: s, engine: e, died: make(chan error, 1), places: make([]*process, s.Workers), history: NewHistory(leaseFor)}
	c.history.Strict, c.history.Broken = s.strict(), s.Faults > 0
	network, upstream, err := e.Server(s.Address)
	if err != nil {
		return nil, err
	}
	if network != "" && s.FreezeEvery > 0 {
		for range c.places {
			p, err := netproxy.Listen(network, upstream)
			if err != nil {
				c.abandon()
				return nil, err
			}
			c.proxies = append(c.proxies, p)
		}
	}
	for i := range c.places {
		if err := c.start(i, nil); err != nil {
			c.abandon()
			return nil, err
		}
	}
	return c, nil
}

// start fills a place with a new process, which sends first what a former one may
// not have stored.
func (c *crew) start(place int, again []Again) error {
	address, freeze := c.storm.Address, c.storm.FreezeEvery
	if c.proxies != nil {
		var err error
		if address, err = c.engine.Through(address, c.proxies[place].Addr()); err != nil {
			return err
		}
		freeze = 0
	}
	p := &process{number: len(c.all)}
	var err error
	p.Process, err = child.Start(context.Background(), WorkerPart, order{
		Engine: c.storm.Engine, Address: address, Number: p.number, Again: again,
		Rate: max(1, c.storm.Rate/c.storm.Workers), Faults: c.storm.Faults, Body: c.storm.Body, Work: c.storm.Work,
		Seed: c.storm.Seed + uint64(p.number), Freeze: freeze * time.Duration(c.storm.Workers),
	}, func(line string) { c.hear(p, line) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, p)
	c.places[place] = p
	c.waiters.Go(func() {
		err := p.Wait()
		c.mu.Lock()
		ended := c.ended
		c.mu.Unlock()
		if !p.Killed() && (!ended || err != nil) {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Kind == Weighed {
		p.last = e.Usage
		return
	}
	c.history.Add(p.number, e)
}

// killOne kills any worker but those that are spared, and starts another in its
// place.
func (c *crew) killOne(random *rand.Rand) error {
	if len(c.places) <= c.storm.Spared {
		return nil
	}
	place := c.storm.Spared + random.IntN(len(c.places)-c.storm.Spared)
	p := c.places[place]
	c.mu.Lock()
	c.history.Kill(p.number)
	c.mu.Unlock()
	if err := p.Kill(); err != nil {
		return fmt.Errorf("worker %d: %w", p.number, err)
	}
	c.mu.Lock()
	again := c.history.Unfinished(p.number)
	c.mu.Unlock()
	return c.start(place, again)
}

// outage takes down one that begins now and is over when f returns.
func (c *crew) outage(f func() error) error {
	from := now()
	c.mu.Lock()
	n := len(c.history.Outages)
	c.history.Outages = append(c.history.Outages, Span{from, 1 << 62})
	c.mu.Unlock()
	err := f()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Outages[n].To = now()
	return err
}

// freeze freezes a connection of any worker, and returns what thaws it, nil if
// there is none, and the worker's process.
func (c *crew) freeze(random *rand.Rand) (thaw func(), process int) {
	place, n := random.IntN(len(c.proxies)), random.IntN(1000)
	c.mu.Lock()
	defer c.mu.Unlock()
	thaw, ok := c.proxies[place].Freeze(n)
	if ok {
		c.freezes++
	}
	return thaw, c.places[place].number
}

// froze, locked and lockedAll take down what is over.
func (c *crew) froze(process int, s Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Freezes[process] = append(c.history.Freezes[process], s)
}

func (c *crew) locked(id chanq.ID, s Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Locks[id] = append(c.history.Locks[id], s)
}

func (c *crew) lockedAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits++
}

// drain stops the sending.
func (c *crew) drain() {
	for _, p := range c.places {
		p.Order("drain")
	}
}

// end ends all workers and waits for them.
func (c *crew) end(ctx context.Context) error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	for _, p := range c.places {
		p.Stop()
	}
	for _, p := range c.places {
		select {
		case <-p.Ended():
		case <-ctx.Done():
			return fmt.Errorf("worker %d does not end: %w", p.number, ctx.Err())
		}
	}
	c.close()
	select {
	case err := <-c.died:
		return err
	default:
		return nil
	}
}

// abandon kills what lives, and waits.
func (c *crew) abandon() {
	for _, p := range c.all {
		_ = p.Kill() // may have ended
	}
	c.close()
}

func (c *crew) close() {
	c.waiters.Wait()
	for _, p := range c.proxies {
		p.Close()
	}
}

// steady is what the worker in the first place weighs.
func (c *crew) steady() usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[0].last
}

// totals are what all processes did so far, and what was done to them.
type totals struct {
	sent, stored, delivered, settled int
	kills, frozen, locked            int
	faults                           int64
}

func (c *crew) totals() totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history
	t := totals{sent: h.Sent, stored: h.Stored, delivered: h.Received, settled: h.Settled, kills: h.Kills(), frozen: c.freezes, locked: c.waits}
	for _, p := range c.all {
		t.faults += p.last.Faults
		t.frozen += int(p.last.Freezes)
	}
	for _, spans := range h.Locks {
		t.locked += len(spans)
	}
	return t
}

// judge judges what was told. Every worker has ended.
func (c *crew) judge() Verdict { return c.history.Judge() }

func (c *crew) latencies() ([]time.Duration, error) {
	if len(c.history.Latencies) == 0 {
		return nil, errors.New("nothing was delivered")
	}
	return slices.Sorted(slices.Values(c.history.Latencies)), nil
}
