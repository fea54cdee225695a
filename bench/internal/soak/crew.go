package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/netproxy"
)

// crew is the workers of a run, living and dead, and what they told. Each
// process has one goroutine that reads it and then waits for it; end and abandon
// join them.
type crew struct {
	options options
	address string
	died    chan error // of the first worker that ended by itself

	mu      sync.Mutex
	places  []*process        // the living ones
	proxies []*netproxy.Proxy // by place, to the server; none to a file
	freezes int
	all     []*process
	ledger  *ledger
	ended   bool // workers may end now
	readers sync.WaitGroup
}

// process is one life of a worker.
type process struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer

	// Guarded by crew.mu.
	runs   bool
	killed int64 // when, 0 if it was not
	last   usage
}

func startCrew(o options, address string) (*crew, error) {
	c := &crew{options: o, address: address, died: make(chan error, 1), places: make([]*process, o.workers), ledger: newLedger()}
	if server := engines[o.engine].server; server != nil && o.freezeEvery > 0 {
		network, upstream, err := server(address)
		if err != nil {
			return nil, err
		}
		for range c.places {
			p, err := netproxy.Listen(network, upstream)
			if err != nil {
				_ = c.abandon() // see below
				return nil, err
			}
			c.proxies = append(c.proxies, p)
		}
	}
	for i := range c.places {
		if err := c.start(i); err != nil {
			_ = c.abandon() // the first error is what to tell
			return nil, err
		}
	}
	return c, nil
}

// start fills a place with a new process.
func (c *crew) start(place int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	address, freeze := c.address, c.options.freezeEvery
	if c.proxies != nil {
		if address, err = engines[c.options.engine].through(address, c.proxies[place].Addr()); err != nil {
			return err
		}
		freeze = 0
	}
	p := &process{number: len(c.all), cmd: exec.Command(self, WorkerCommand)}
	p.cmd.Env = append(os.Environ(), workerVariable+"=1")
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	c.all = append(c.all, p)
	c.places[place] = p
	c.mu.Unlock()
	c.readers.Go(func() { c.read(p, out) })
	return json.NewEncoder(p.in).Encode(order{
		Engine: c.options.engine, Address: address, Name: fmt.Sprintf("worker %d", p.number),
		Rate: max(1, c.options.rate/c.options.workers), Faults: c.options.faults, Body: c.options.body,
		Seed: c.options.seed + uint64(p.number), Freeze: freeze * time.Duration(c.options.workers),
	})
}

// workerVariable tells a test binary that it is a worker.
const workerVariable = "CHANQ_SOAK_WORKER"

// read takes down what a process tells until it ends.
func (c *crew) read(p *process, out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<16)
	var wrong error
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // a kill may have cut the last line short
		}
		e, err := parseEvent(line[:len(line)-1])
		if err != nil {
			wrong = err
			continue
		}
		c.mu.Lock()
		switch e.kind {
		case loaded:
			p.runs = true
		case weighed:
			p.last = e.sample
		default:
			c.ledger.add(p.number, e)
		}
		c.mu.Unlock()
	}
	err := p.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong == nil && (p.killed != 0 || c.ended && err == nil) {
		return
	}
	select {
	case c.died <- fmt.Errorf("worker %d ended by itself: %v %v: %s", p.number, err, wrong, p.errors.Bytes()):
	default:
	}
}

// killOne kills any worker but the first, and starts another in its place. One
// that does not run yet is spared.
func (c *crew) killOne(random *rand.Rand) error {
	if len(c.places) == 1 {
		return nil
	}
	place := 1 + random.IntN(len(c.places)-1)
	c.mu.Lock()
	p := c.places[place]
	if !p.runs {
		c.mu.Unlock()
		return nil
	}
	p.killed = now()
	c.mu.Unlock()
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	return c.start(place)
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
func (c *crew) froze(process int, s span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.freezes[process] = append(c.ledger.freezes[process], s)
}

func (c *crew) locked(id chanq.ID, s span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.locks[id] = append(c.ledger.locks[id], s)
}

func (c *crew) lockedAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.waits++
}

// drain stops the sending.
func (c *crew) drain() {
	for _, p := range c.places {
		_, _ = io.WriteString(p.in, "drain\n") // one that has died is told by died
	}
}

// end ends all workers and waits for them.
func (c *crew) end(ctx context.Context) error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	for _, p := range c.places {
		_ = p.in.Close() // see drain
	}
	joined := make(chan struct{})
	go func() {
		c.readers.Wait()
		close(joined)
	}()
	select {
	case <-joined:
	case <-ctx.Done():
		return fmt.Errorf("the workers did not end: %w", ctx.Err())
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
func (c *crew) abandon() error {
	c.mu.Lock()
	for _, p := range c.all {
		if p.killed == 0 {
			p.killed = now()
			_ = p.cmd.Process.Kill() // may have ended
		}
	}
	c.mu.Unlock()
	c.readers.Wait()
	c.close()
	return nil
}

// frozen is how many connections were, by the crew or by the workers.
func (c *crew) frozen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.freezes
	for _, p := range c.all {
		n += int(p.last.freezes)
	}
	return n
}

func (c *crew) close() {
	for _, p := range c.proxies {
		p.Close()
	}
}

// steady is what the worker that is never killed weighs.
func (c *crew) steady() usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[0].last
}

// totals are of all processes so far.
func (c *crew) totals() (t totals, faults int64, kills int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all {
		faults += p.last.faults
		if p.killed != 0 {
			kills++
		}
	}
	return c.ledger.totals, faults, kills
}

// judge judges what was told. Every worker has ended.
func (c *crew) judge() verdict {
	killed := make([]int64, len(c.all))
	for i, p := range c.all {
		killed[i] = p.killed
	}
	return c.ledger.judge(killed)
}

func (c *crew) latencies() []int64 {
	slices.Sort(c.ledger.latencies)
	return c.ledger.latencies
}
