package kills

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb/crew"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// order is the task of a worker.
type order struct {
	trial  // without FreezeEvery if the crew freezes connections
	Number int
	Again  []Again // sent first: a former worker might have stored them
}

// worker sends and receives. Its goroutines: the sender and the batches that it has in progress, the reader and the leases
// that it holds for a while, one that waits for each outcome, one that measures the process, one that reads orders.
type worker struct {
	order
	random *rand.Rand // guarded by mu
	faults int64      // guarded by mu
	frozen int64      // guarded by mu
	freeze time.Time  // when the next one is due; guarded by mu
	sent   int        // messages; names them; guarded by mu

	mu sync.Mutex
}

// readers is how many leases a worker processes at once, if Work is set.
const readers = 4

// WorkerPart is the name of the worker's part in a child. Its function is Work: it stops sending at the first order and
// receiving at the end of the orders.
const WorkerPart = "soak worker"

// Work runs a worker process from start to end.
func Work(receive context.Context, o order, orders <-chan string) error {
	w := &worker{order: o, random: rand.New(rand.NewPCG(o.Seed+uint64(o.Number), 2))}
	w.freezeNext()
	Tell(Event{Kind: Started})
	send, stop := crew.Sending(receive, orders)
	defer stop()
	return w.run(send, receive)
}

func (w *worker) run(send, receive context.Context) error {
	e := engines[w.Engine]
	db, err := e.open(w.Address, w.choose)
	if err != nil {
		return err
	}
	defer db.Close()
	cfg := e.config()
	cfg.Hooks.LeaseLost = func(e chanq.LeaseLostEvent) { Tell(Event{Kind: Ended, ID: e.ID, Attempt: e.Attempt}) }
	cfg.Hooks.Claimed = func(e chanq.ClaimedEvent) {
		if e.Took > leaseFor/2 {
			Tell(Event{Kind: Slow, Took: e.Took})
		}
	}
	q, err := reach(func() (*chanq.Queue[body], error) { return chanq.Open[body](receive, db, queueName, cfg) })
	if err != nil {
		return err
	}
	p, err := reach(func() (*chanq.Producer[body], error) { return q.Producer(context.Background(), chanq.ProducerConfig{}) })
	if err != nil {
		return err
	}
	c, err := reach(func() (*chanq.Consumer[body], error) {
		return q.Consume(receive, chanq.ConsumerConfig{Name: fmt.Sprint("worker ", w.Number), LeaseFor: leaseFor, Prefetch: 200})
	})
	if err != nil {
		return err
	}
	work := pool.New().WithErrors()
	work.Go(func() error { return w.send(send, p) })
	work.Go(func() error { return w.receive(c) })
	work.Go(func() error { return w.weigh(receive) })
	return work.Wait()
}

// reach opens through a connection that might break, to a server that might be unavailable.
func reach[T any](open func() (T, error)) (v T, err error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-again.C {
		if v, err = open(); err == nil || errors.Is(err, chanq.ErrNoSchema) || time.Now().After(deadline) {
			return v, err
		}
	}
}

// freezeNext chooses the time of the next freeze.
func (w *worker) freezeNext() {
	if w.FreezeEvery > 0 {
		w.freeze = time.Now().Add(crew.Around(w.random, w.FreezeEvery*time.Duration(w.Workers)))
	}
}

// choose fails a small share of the operations, before or after they are applied, and sometimes freezes one.
func (w *worker) choose(faultdb.Op) faultdb.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.FreezeEvery > 0 && time.Now().After(w.freeze) {
		w.freezeNext()
		w.frozen++
		thawed := make(chan struct{})
		time.AfterFunc(time.Duration(w.random.Int64N(int64(engines[w.Engine].freezeFor))), func() { close(thawed) })
		return faultdb.Hold(thawed)
	}
	if w.random.Float64() >= w.Faults {
		return faultdb.Fault{}
	}
	w.faults++
	errs := engines[w.Engine].Errors
	switch w.random.IntN(8) {
	case 0:
		return faultdb.Fail(errs[sqlbatch.RolledBack]) // a deadlock
	case 1:
		return faultdb.Fail(errs[sqlbatch.Refused]) // a full disk, too many connections
	case 2:
		return faultdb.Hang()
	case 3, 4:
		return faultdb.Cut(errs[sqlbatch.Unknown])
	}
	return faultdb.Cut(errs[sqlbatch.Unknown]).Applied()
}

func (w *worker) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// send sends in small batches, at its rate whatever the duration of the answers, and waits for them at the end.
func (w *worker) send(until context.Context, p *chanq.Producer[body]) error {
	const ticks = 50 // per second
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	under := pool.New().WithMaxGoroutines(64)
	if len(w.Again) > 0 {
		under.Go(func() {
			ms := make([]chanq.Message[body], len(w.Again))
			for i, a := range w.Again {
				ms[i] = w.message(a.Name)
				ms[i].ID = a.ID
			}
			w.sendBatch(p, ms)
		})
	}
	owed := 0.0
	for running := true; running; {
		select {
		case <-until.Done():
			running = false
		case <-tick.C:
			owed += max(1, float64(w.Rate)/float64(w.Workers)) / ticks
			if n := int(owed); n > 0 {
				owed -= float64(n)
				under.Go(func() {
					ms := make([]chanq.Message[body], n)
					for i := range ms {
						ms[i] = w.message(w.name())
					}
					w.sendBatch(p, ms)
				})
			}
		}
	}
	under.Wait()
	err := p.Close(context.Background())
	Tell(Event{Kind: Quiet})
	return err
}

func (w *worker) sendBatch(p *chanq.Producer[body], ms []chanq.Message[body]) {
	events := make([]Event, len(ms))
	for i, m := range ms {
		events[i] = Event{Kind: Intended, Name: nameOf(m.Body), ID: m.ID}
	}
	Tell(events...)
	receipts, err := p.SendBatch(context.Background(), ms...)
	var batch *chanq.BatchError
	if err != nil && !errors.As(err, &batch) {
		return // the outcome is unknown
	}
	var answers []Event
	for i, e := range events {
		switch {
		case batch == nil || batch.Errs[i] == nil:
			e.Kind, e.ID = Stored, receipts[i].ID
		case OutcomeOf(batch.Errs[i]) == Failed:
			e.Kind, e.Error = Dropped, batch.Errs[i].Error()
		default:
			continue // the outcome is unknown
		}
		answers = append(answers, e)
	}
	Tell(answers...)
}

// stamp is the length of the time with which a body begins. The message's name follows, a zero and random bytes.
const stamp = 8

func nameOf(body []byte) string {
	name, _, _ := bytes.Cut(body[stamp:], []byte{0})
	return string(name)
}

func (w *worker) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	name := fmt.Sprintf("%d/%d", w.Number, w.sent)
	if w.random.Float64() < w.Guilty {
		name += " " + guilts[w.random.IntN(len(guilts))]
	}
	return name
}

// message returns any of the kinds that a program might send. Every second message has an ID that the sender chose.
func (w *worker) message(name string) chanq.Message[body] {
	m := chanq.Message[body]{Body: make([]byte, stamp+len(name)+1+w.roll(w.Body+1))}
	copy(m.Body[stamp:], name)
	if w.roll(2) == 0 {
		m.ID = chanq.NewID()
	}
	switch w.roll(20) {
	case 0:
		m.Delay = time.Duration(w.roll(2000)) * time.Millisecond
	case 1:
		m.Priority = chanq.PriorityHigh
	case 2:
		m.Headers = map[string]string{"kind": "soak"}
	}
	if m.Type = guiltOf(name); m.Type != unreadable {
		binary.BigEndian.PutUint64(m.Body, uint64(now()+int64(m.Delay)))
	}
	return m
}

// receive settles every lease in one of the possible ways, and gets each outcome.
func (w *worker) receive(c *chanq.Consumer[body]) error {
	outcomes := pool.New() // a stuck settle does not delay the others
	if w.Work > 0 {
		outcomes = outcomes.WithMaxGoroutines(readers)
	}
	held := pool.New().WithMaxGoroutines(32)
	for l := range c.All() {
		e := Event{Kind: Got, Name: nameOf(l.Body), ID: l.ID, Attempt: l.Attempt, How: w.how(), Deadline: l.Deadline().UnixNano()}
		if l.Attempt == 1 {
			e.Latency = max(1, time.Duration(now()-int64(binary.BigEndian.Uint64(l.Body))))
		}
		Tell(e)
		if l.Type == deadly {
			Tell(Event{Kind: Dying})
			select {}
		}
		if w.roll(100) > 0 {
			if w.Work == 0 {
				w.settle(l, e.How)
			}
			outcomes.Go(func() {
				if w.Work > 0 {
					<-time.After(time.Duration(w.roll(int(w.Work)))) // most kills should happen in this time
					w.settle(l, e.How)
				}
				w.outcome(l, e)
			})
			continue
		}
		held.Go(func() { // holds it for a while, extending it
			_ = l.Extend(context.Background(), 2*leaseFor) // the outcome of the settle is reported
			crew.Rest(l.Context(), time.Duration(w.roll(3000))*time.Millisecond)
			w.settle(l, e.How)
			w.outcome(l, e)
		})
	}
	held.Wait()
	outcomes.Wait()
	return errors.Join(c.Shutdown(context.Background()), c.Err())
}

func (w *worker) how() How {
	switch n := w.roll(100); {
	case n < 4:
		return Nack
	case n < 6:
		return Release
	case n < 7:
		return DeadLetter
	}
	return Ack
}

func (w *worker) settle(l *chanq.Lease[body], how How) {
	switch how { // Wait returns the errors
	case Nack:
		_ = l.Nack(chanq.RetryAfter(time.Duration(w.roll(500))*time.Millisecond, errors.New("try again")))
	case Release:
		_ = l.Release()
	case DeadLetter:
		_ = l.Nack(chanq.DeadLetter(errors.New("enough")))
	default:
		_ = l.Ack()
	}
}

func (w *worker) outcome(l *chanq.Lease[body], got Event) {
	err := l.Wait(context.Background())
	e := Event{Kind: OutcomeOf(err), Name: got.Name, ID: got.ID, Attempt: got.Attempt}
	if e.Kind == Failed {
		e.Error = err.Error()
	}
	Tell(e)
}

// OutcomeOf returns the kind of the error that Wait returned for a settle.
func OutcomeOf(err error) Kind {
	var op *chanq.OpError
	switch {
	case err == nil:
		return Confirmed
	case errors.Is(err, chanq.ErrLeaseLost):
		return Lost
	case errors.As(err, &op) && op.Unknown:
		return Unknown
	}
	return Failed
}

// weigh prints the worker's resource usage once per second.
func (w *worker) weigh(until context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-until.Done():
			return nil
		case <-tick.C:
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.mu.Lock()
		faults, frozen := w.faults, w.frozen
		w.mu.Unlock()
		Tell(Event{Kind: Weighed, Usage: usage{m.HeapAlloc, runtime.NumGoroutine(), faults, frozen}})
	}
}
