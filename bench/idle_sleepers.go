package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/child"
)

// sleepTask reads in a separate process with one consumer, as most programs do. For each request it
// prints the messages read since the previous request, and the total of its statements.
type sleepTask struct {
	Place    place
	Notifier bool
}

// slept is the output of an idle process.
type slept struct {
	Order      string            `json:"order"`
	Statements int64             `json:"statements"`
	Received   int               `json:"received"`
	Ages       measure.Histogram `json:"ages"`
	Slowest    time.Duration     `json:"slowest"`
}

func (s *slept) note(age time.Duration) {
	s.Received++
	s.Ages.Add(age)
	s.Slowest = max(s.Slowest, age)
}

func (s *slept) merge(other slept) {
	s.Statements += other.Statements
	s.Received += other.Received
	s.Ages.Merge(other.Ages)
	s.Slowest = max(s.Slowest, other.Slowest)
}

func (s slept) into(r *measure.Result) {
	r.Ages, r.Max = s.Ages, float64(s.Slowest.Nanoseconds())/1e3
	r.P50, r.P99 = min(s.Ages.Quantile(0.5), r.Max), min(s.Ages.Quantile(0.99), r.Max)
}

func (t sleepTask) where() place { return t.Place }

func (t sleepTask) run(ctx context.Context, s *store, orders <-chan string) (err error) {
	waking := s.waking(t.Notifier)
	defer func() { err = errors.Join(err, waking.end()) }()
	queue, err := chanq.Open[[]byte](ctx, s.db, s.place.Queue, waking.queue)
	if err != nil {
		return err
	}
	c, err := queue.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards now
	now := slept{Ages: measure.Histogram{}}
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(slept{}) // reports that it is connected
	go func() {             // ends with the process's input
		for order := range orders {
			mu.Lock()
			reported := now
			now = slept{Ages: measure.Histogram{}}
			mu.Unlock()
			reported.Order, reported.Statements = order, s.counter.Statements()
			_ = out.Encode(reported)
		}
	}()
	for l := range c.C() {
		age := time.Since(stampOf(l.Body))
		mu.Lock()
		now.note(age)
		mu.Unlock()
		if err := l.Ack(); err != nil {
			return errors.Join(err, c.Shutdown(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(c.Shutdown(context.WithoutCancel(ctx)), c.Err())
}

// sleepers are the idle processes that read.
type sleepers struct {
	children []*child.Process
	answers  chan slept
	orders   int
	read     slept // so far, except for Statements
}

func startSleepers(ctx context.Context, task sleepTask, n int) (*sleepers, error) {
	s := &sleepers{answers: make(chan slept, n), read: slept{Ages: measure.Histogram{}}}
	connected := make(chan struct{}, n)
	for range n {
		greeted := false
		p, err := child.Start(context.WithoutCancel(ctx), "sleep", task, func(line string) {
			var reported slept
			switch {
			case json.Unmarshal([]byte(line), &reported) != nil:
			case reported.Order != "":
				s.answers <- reported
			case !greeted:
				greeted = true
				connected <- struct{}{}
			}
		})
		if err != nil {
			return nil, errors.Join(err, s.end())
		}
		s.children = append(s.children, p)
	}
	for _, p := range s.children {
		select {
		case <-connected:
		case <-p.Ended():
			return nil, errors.Join(errors.New("an idle consumer ended early"), s.end())
		}
	}
	return s, nil
}

// ask requests a report from each process, and returns the number of their statements.
func (s *sleepers) ask() (statements int64, err error) {
	s.orders++
	order := strconv.Itoa(s.orders)
	for _, p := range s.children {
		p.Order(order)
	}
	for range s.children {
		select {
		case reported := <-s.answers:
			statements += reported.Statements
			s.read.merge(reported)
		case <-time.After(10 * time.Second):
			return 0, errors.New("an idle consumer does not answer")
		}
	}
	return statements, nil
}

// forget resets the ages of the messages that were read.
func (s *sleepers) forget() { s.read.Ages, s.read.Slowest = measure.Histogram{}, 0 }

// readAll requests reports until they have read and settled n messages.
func (s *sleepers) readAll(ctx context.Context, n int) (statements int64, err error) {
	for patience := time.Now().Add(30 * time.Second); ; {
		if err := measure.Sleep(ctx, 300*time.Millisecond); err != nil {
			return 0, err
		}
		before := s.read.Received
		statements, err = s.ask()
		if err != nil || before >= n {
			return statements, err
		}
		if time.Now().After(patience) {
			return 0, errors.New("messages were not read: " + strconv.Itoa(s.read.Received) + " of " + strconv.Itoa(n) + " were")
		}
	}
}

func (s *sleepers) end() error {
	for _, p := range s.children {
		p.Stop()
	}
	var errs []error
	for _, p := range s.children {
		errs = append(errs, p.Wait())
	}
	return errors.Join(errs...)
}
