package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/child"
)

// crowdTask runs a consumer of each of these queues in one process, on one *sql.DB. For each
// request it prints its counts.
type crowdTask struct {
	Place     place   // of its connections
	Places    []place // of its consumers' queues
	Notifier  bool
	PollEvery time.Duration
	History   chanq.History
	Limit     int
}

// crowd is the output of the process.
type crowd struct {
	Order      string            `json:"order"`
	Asked      map[string]int64  `json:"asked"` // statements by kind
	CPU        time.Duration     `json:"cpu"`
	Heap, RSS  int64             // now, after a garbage collection
	Heap0      int64             // before its first consumer
	RSS0       int64             //
	Goroutines int               `json:"goroutines"`
	Received   int               `json:"received"`
	Ages       measure.Histogram `json:"ages"`
	Slowest    time.Duration     `json:"slowest"`
}

func (t crowdTask) where() place { return t.Place }

func (t crowdTask) run(ctx context.Context, s *store, orders <-chan string) (err error) {
	var mu sync.Mutex // guards reported
	reported := crowd{Ages: measure.Histogram{}, Asked: map[string]int64{}, Heap0: int64(heap()), RSS0: resident()}
	kinds := statementKinds(s, t.Places)
	s.counter.Heard(func(text string) {
		kind := kindOfStatement(kinds, text)
		mu.Lock()
		reported.Asked[kind]++
		mu.Unlock()
	})
	s.db.SetMaxOpenConns(t.Limit)
	waking := s.waking(t.Notifier)
	defer func() { err = errors.Join(err, waking.end()) }()
	var consumers []*chanq.Consumer[[]byte]
	var readers sync.WaitGroup
	defer func() { err = errors.Join(err, shutdownAll(consumers)); readers.Wait() }()
	cfg := chanq.ConsumerConfig{PollEvery: t.PollEvery}
	for _, p := range t.Places {
		config := waking.queue
		config.Schema, config.History, config.Kind, config.Slots = p.Schema, t.History, s.config().Kind, s.config().Slots
		queue, err := chanq.Open[[]byte](ctx, s.db, p.Queue, config)
		if err != nil {
			return err
		}
		c, err := queue.Consume(ctx, cfg)
		if err != nil {
			return err
		}
		consumers = append(consumers, c)
		readers.Go(func() {
			for l := range c.C() {
				age := time.Since(stampOf(l.Body))
				mu.Lock()
				reported.Received++
				reported.Ages.Add(age)
				reported.Slowest = max(reported.Slowest, age)
				mu.Unlock()
				_ = l.Ack() // a failure changes the counts
			}
		})
	}
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(crowd{}) // reports that it has started
	for order := range orders {
		heap, rss, goroutines, cpu := int64(heap()), resident(), runtime.NumGoroutine(), measure.CPUTime()
		mu.Lock()
		reported.Order, reported.Heap, reported.RSS, reported.Goroutines, reported.CPU = order, heap, rss, goroutines, cpu
		_ = out.Encode(reported)
		mu.Unlock()
	}
	return nil
}

// shutdownAll stops them concurrently.
func shutdownAll(consumers []*chanq.Consumer[[]byte]) error {
	errs := make([]error, len(consumers))
	var all sync.WaitGroup
	for i, c := range consumers {
		all.Go(func() { errs[i] = c.Shutdown(context.Background()) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// resident returns the resident memory of this process, or 0 if unknown.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// crowds are the processes.
type crowds struct {
	children []*child.Process
	answers  chan crowd
	orders   int
}

// startCrowds starts the processes. Consumers take the queues in turn, so that the consumers of one
// queue are spread over as many processes as possible.
func startCrowds(ctx context.Context, o options, places []place, step scaleStep) (*crowds, error) {
	all := &crowds{answers: make(chan crowd, o.processes)}
	there := make(chan struct{}, o.processes)
	next := 0
	for i := range o.processes {
		task := crowdTask{Place: places[0], Notifier: step.notifier, PollEvery: step.pollEvery, History: step.history, Limit: o.scale.limit}
		for range (o.consumers + i) / o.processes {
			task.Places = append(task.Places, places[next%len(places)])
			next++
		}
		greeted := false
		p, err := child.Start(context.WithoutCancel(ctx), "crowd", task, func(line string) {
			var reported crowd
			switch {
			case json.Unmarshal([]byte(line), &reported) != nil:
			case reported.Order != "":
				all.answers <- reported
			case !greeted:
				greeted = true
				there <- struct{}{}
			}
		})
		if err != nil {
			return nil, errors.Join(err, all.end())
		}
		all.children = append(all.children, p)
	}
	for _, p := range all.children {
		select {
		case <-there:
		case <-p.Ended():
			return nil, errors.Join(errors.New("a process ended early"), all.end())
		}
	}
	return all, nil
}

// ask requests a report from each process.
func (c *crowds) ask(ctx context.Context) (sum crowd, err error) {
	c.orders++
	for _, p := range c.children {
		p.Order(strconv.Itoa(c.orders))
	}
	sum = crowd{Asked: map[string]int64{}, Ages: measure.Histogram{}}
	for range c.children {
		select {
		case reported := <-c.answers:
			sum.add(reported)
		case <-ctx.Done():
			return sum, context.Cause(ctx)
		case <-time.After(30 * time.Second):
			return sum, errors.New("a process does not answer")
		}
	}
	return sum, nil
}

// askUntil requests reports until they have read n messages.
func (c *crowds) askUntil(ctx context.Context, n int) (sum crowd, err error) {
	for patience := time.Now().Add(time.Minute); ; {
		if err := measure.Sleep(ctx, 300*time.Millisecond); err != nil {
			return sum, err
		}
		if sum, err = c.ask(ctx); err != nil || sum.Received >= n {
			return sum, err
		}
		if time.Now().After(patience) {
			return sum, fmt.Errorf("messages were not read: %d of %d were", sum.Received, n)
		}
	}
}

func (c *crowds) end() error {
	for _, p := range c.children {
		p.Stop()
	}
	var errs []error
	for _, p := range c.children {
		errs = append(errs, p.Wait())
	}
	return errors.Join(errs...)
}

// connections returns the number of connections of the processes, without the measuring process.
func (c *crowds) connections(ctx context.Context, s *store) int { return max(0, s.connections(ctx)-1) }

func (c *crowd) add(other crowd) {
	for kind, n := range other.Asked {
		c.Asked[kind] += n
	}
	c.CPU += other.CPU
	c.Heap, c.RSS, c.Heap0, c.RSS0 = c.Heap+other.Heap, c.RSS+other.RSS, c.Heap0+other.Heap0, c.RSS0+other.RSS0
	c.Goroutines += other.Goroutines
	c.Received += other.Received
	c.Ages.Merge(other.Ages)
	c.Slowest = max(c.Slowest, other.Slowest)
}

// since computes the activity of the processes in the given number of seconds.
func (c *crowd) since(before crowd, seconds float64, consumers int, r *measure.Scale) {
	r.AskedPerS = map[string]float64{}
	for kind, n := range c.Asked {
		if n -= before.Asked[kind]; n > 0 {
			r.AskedPerS[kind] = float64(n) / seconds
		}
	}
	r.ClientCPU = (c.CPU - before.CPU).Seconds() / seconds
	each := func(now, then int64) float64 { return float64(now-then) / float64(consumers) }
	r.HeapPerConsumer, r.RSSPerConsumer = each(c.Heap, c.Heap0), each(c.RSS, c.RSS0)
	r.RSS, r.Goroutines = c.RSS, float64(c.Goroutines)/float64(consumers)
}
