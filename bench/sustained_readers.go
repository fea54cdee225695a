package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// reading is what some consumers have read since they last told.
type reading struct {
	Received int64             `json:"received"`
	Ages     measure.Histogram `json:"ages"`
}

// readers are the consumers of a sustained run, in this process or in others.
type readers struct {
	received atomic.Int64
	failed   chan error

	mu    sync.Mutex
	seen  measure.Histogram
	stop  []func()
	group sync.WaitGroup
	errs  []error
}

func startReaders(ctx context.Context, o options, s *store) (*readers, error) {
	r := &readers{failed: make(chan error, 1), seen: measure.Histogram{}}
	task := sustainTask{Place: s.place, Consumers: o.consumers, Batch: o.batch}
	if o.processes <= 1 {
		stop := make(chan struct{})
		r.stop = append(r.stop, func() { close(stop) })
		r.group.Go(func() { r.ended(task.read(context.WithoutCancel(ctx), s, stop, r.note)) })
		return r, nil
	}
	for range o.processes {
		if err := r.startProcess(task); err != nil {
			return nil, errors.Join(err, r.end())
		}
	}
	return r, nil
}

func (r *readers) note(n reading) {
	r.received.Add(n.Received)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Merge(n.Ages)
}

// ages are those of what was read since the last call.
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

// end lets all of them end, and waits for that.
func (r *readers) end() error {
	for _, stop := range r.stop {
		stop()
	}
	r.group.Wait()
	return errors.Join(r.errs...)
}

func (r *readers) startProcess(task sustainTask) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	command := exec.Command(self, workerCommand, "sustain", string(text)) // ends with its input
	var complaint bytes.Buffer
	command.Stderr = &complaint
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	r.stop = append(r.stop, func() { _ = input.Close() })
	r.group.Go(func() {
		lines := json.NewDecoder(bufio.NewReader(output))
		for {
			var n reading
			if lines.Decode(&n) != nil {
				break
			}
			r.note(n)
		}
		if err := command.Wait(); err != nil {
			r.ended(fmt.Errorf("sustain process: %w: %s", err, strings.TrimSpace(complaint.String())))
		}
	})
	return nil
}

// sustainTask reads until its standard input ends, and tells on its standard
// output how much.
type sustainTask struct {
	Place            place
	Consumers, Batch int
}

func (t sustainTask) where() place { return t.Place }

func (t sustainTask) run(ctx context.Context, s *store) error {
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the input, which the parent closes
		close(stop)
	}()
	out := json.NewEncoder(os.Stdout)
	return t.read(ctx, s, stop, func(n reading) { _ = out.Encode(n) })
}

// tellEvery is how often readers say how much they have read: often beside the
// time that a backlog lasts.
const tellEvery = 20 * time.Millisecond

// read reads with some consumers of their own until stop, one goroutine each.
func (t sustainTask) read(ctx context.Context, s *store, stop <-chan struct{}, tell func(reading)) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
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
		var mu sync.Mutex
		now := reading{Ages: measure.Histogram{}}
		told := make(chan struct{})
		group.Go(func() {
			tick := time.NewTicker(tellEvery)
			defer tick.Stop()
			for open := true; open; {
				select {
				case <-tick.C:
				case <-told:
					open = false
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
			defer close(told)
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
			errs[i] = errors.Join(errs[i], consumer.Shutdown(ctx), consumer.Err())
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
