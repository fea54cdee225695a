package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/child"
)

// readTask reads with some consumers, and reports the number of messages periodically. In a
// separate process it begins on request and ends with its input.
type readTask struct {
	Place            place
	Consumers, Batch int
}

// reading is what some consumers have read since their last report.
type reading struct {
	Received int64             `json:"received"`
	Ages     measure.Histogram `json:"ages"`
}

// tellEvery is the interval of readers' reports. It is short compared with the time for which a
// backlog lasts.
const tellEvery = 20 * time.Millisecond

func (t readTask) where() place { return t.Place }

func (t readTask) run(ctx context.Context, s *store, orders <-chan string) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	tell := func(n reading) { _ = out.Encode(n) }
	tell(reading{}) // reports that it is connected
	<-orders
	return t.read(context.WithoutCancel(ctx), queue, ctx.Done(), tell)
}

// read reads until stop, one goroutine for each consumer.
func (t readTask) read(ctx context.Context, queue *chanq.Queue[[]byte], stop <-chan struct{}, tell func(reading)) error {
	var group sync.WaitGroup
	errs := make([]error, t.Consumers)
	for i := range errs {
		consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{Prefetch: 2 * t.Batch, LeaseFor: leaseFor})
		if err != nil {
			errs[i] = err
			break
		}
		go func() {
			<-stop
			consumer.Stop()
		}()
		var mu sync.Mutex // guards now
		now := reading{Ages: measure.Histogram{}}
		read := make(chan struct{})
		group.Go(func() {
			tick := time.NewTicker(tellEvery)
			defer tick.Stop()
			for more := true; more; {
				select {
				case <-tick.C:
				case <-read:
					more = false
				}
				mu.Lock()
				n := now
				now = reading{Ages: measure.Histogram{}}
				mu.Unlock()
				if n.Received > 0 {
					tell(n)
				}
			}
		})
		group.Go(func() {
			defer close(read)
			for lease := range consumer.C() {
				age := time.Since(stampOf(lease.Body))
				mu.Lock()
				now.Received++
				now.Ages.Add(age)
				mu.Unlock()
				if err := lease.Ack(); err != nil {
					errs[i] = err
					consumer.Stop()
				}
			}
			errs[i] = errors.Join(errs[i], consumer.Shutdown(ctx))
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// readers are the consumers of a measurement, in this process or in others.
type readers struct {
	received atomic.Int64
	failed   chan error // the first error

	mu       sync.Mutex // guards seen, errs
	seen     measure.Histogram
	errs     []error
	children []*child.Process
	stop     chan struct{}
	group    sync.WaitGroup
}

// startReaders starts a number of other processes.
func startReaders(ctx context.Context, task readTask, processes int) (*readers, error) {
	r := &readers{failed: make(chan error, 1), seen: measure.Histogram{}, stop: make(chan struct{})}
	for range processes {
		connected := make(chan struct{})
		var once sync.Once
		p, err := child.Start(context.WithoutCancel(ctx), "read", task, func(line string) {
			once.Do(func() { close(connected) })
			var n reading
			if json.Unmarshal([]byte(line), &n) == nil {
				r.note(n)
			}
		})
		if err != nil {
			return nil, errors.Join(err, r.end())
		}
		r.children = append(r.children, p)
		r.group.Go(func() { r.ended(p.Wait()) })
		select {
		case <-connected:
		case <-p.Ended():
		}
	}
	return r, nil
}

// readHere reads in this process.
func (r *readers) readHere(ctx context.Context, task readTask, s *store) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
	r.group.Go(func() { r.ended(task.read(context.WithoutCancel(ctx), queue, r.stop, r.note)) })
	return nil
}

// begin starts the processes.
func (r *readers) begin() {
	for _, p := range r.children {
		p.Order("read")
	}
}

func (r *readers) note(n reading) {
	r.received.Add(n.Received)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Merge(n.Ages)
}

// ages returns the ages of the messages read since the last call.
func (r *readers) ages() measure.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = measure.Histogram{}
	return seen
}

func (r *readers) ended(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	r.errs = append(r.errs, err)
	r.mu.Unlock()
	select {
	case r.failed <- err:
	default:
	}
}

// end ends all of them, and waits for that.
func (r *readers) end() error {
	close(r.stop)
	for _, p := range r.children {
		p.Stop()
	}
	r.group.Wait()
	return errors.Join(r.errs...)
}
