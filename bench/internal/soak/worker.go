package soak

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
)

// order is what a worker is told when it starts.
type order struct {
	Engine  string
	Address string
	Name    string
	Rate    int // messages a second
	Faults  float64
	Body    int
	Seed    uint64
	// Freeze is the mean time between two freezes that the worker makes itself; 0
	// where the crew sees to it.
	Freeze time.Duration
}

// leaseFor is short, so that what a killed worker held comes back within the run.
const leaseFor = 5 * time.Second

// worker sends and receives. Its goroutines: the sender and the batches it has
// under way, the reader and the leases it holds for a while, one that waits for each
// outcome, one that weighs the process, one that reads what the crew says.
type worker struct {
	order
	out    io.Writer
	random *rand.Rand // guarded by mu
	faults int64      // guarded by mu
	frozen int64      // guarded by mu
	freeze time.Time  // when the next one is due; guarded by mu

	mu sync.Mutex
}

// Work is the whole life of a worker process: it obeys the first line of in,
// stops sending at the second and receiving at the end of in.
func Work(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	w := &worker{out: out}
	if err := json.Unmarshal(first, &w.order); err != nil {
		return err
	}
	w.random = rand.New(rand.NewPCG(w.Seed, 2))
	w.freeze = time.Now().Add(next(w.random, w.Freeze))
	sendUntil, stopSending := context.WithCancel(context.Background())
	receiveUntil, stopReceiving := context.WithCancel(context.Background())
	defer stopSending()
	defer stopReceiving()
	go func() { // ends with in, or with the process
		_, _ = lines.ReadString('\n')
		stopSending()
		_, _ = io.Copy(io.Discard, lines)
		stopReceiving()
	}()
	return w.run(sendUntil, receiveUntil)
}

func (w *worker) run(sendUntil, receiveUntil context.Context) error {
	e := engines[w.Engine]
	db, err := e.open(w.Address, w.choose)
	if err != nil {
		return err
	}
	defer db.Close()
	cfg := config(e)
	cfg.Hooks.LeaseLost = func(e chanq.LeaseLostEvent) { w.tell(event{kind: lost, id: e.ID, attempt: e.Attempt}) }
	cfg.Hooks.Claimed = func(e chanq.ClaimedEvent) {
		if e.Took > leaseFor/2 {
			w.tell(event{kind: late, took: int64(e.Took)})
		}
	}
	q, err := retried(func() (*chanq.Queue[[]byte], error) { return chanq.Open[[]byte](receiveUntil, db, queueName, cfg) })
	if err != nil {
		return err
	}
	p, err := q.Producer(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	c, err := q.Consume(receiveUntil, chanq.ConsumerConfig{Name: w.Name, LeaseFor: leaseFor, Prefetch: 200})
	if err != nil {
		return err
	}
	w.tell(event{kind: loaded})
	work := pool.New().WithErrors()
	work.Go(func() error { return w.send(sendUntil, p) })
	work.Go(func() error { return w.receive(c) })
	work.Go(func() error { return w.weigh(receiveUntil) })
	return work.Wait()
}

// retried opens through a connection that may break.
func retried[T any](f func() (T, error)) (v T, err error) {
	for range 10 {
		if v, err = f(); err == nil {
			return v, nil
		}
	}
	return v, err
}

// choose breaks one of many operations, before or after it is applied, and freezes
// one now and then.
func (w *worker) choose(faultdb.Op) faultdb.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().After(w.freeze) {
		w.freeze = time.Now().Add(next(w.random, w.Freeze))
		w.frozen++
		thawed := make(chan struct{})
		time.AfterFunc(time.Duration(w.random.Int64N(int64(engines[w.Engine].freezeFor))), func() { close(thawed) })
		return faultdb.Hold(thawed)
	}
	if w.random.Float64() >= w.Faults {
		return faultdb.Fault{}
	}
	w.faults++
	f := faultdb.Cut(engines[w.Engine].broken)
	if w.random.IntN(2) == 0 {
		f = f.Applied()
	}
	return f
}

// tell writes events in one write. A kill may cut the last line short.
func (w *worker) tell(events ...event) {
	var lines []byte
	at := now()
	for _, e := range events {
		e.at = at
		lines = e.append(lines)
	}
	_, _ = w.out.Write(lines) // without a reader, the crew is gone, and stdin ends
}

func (w *worker) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// send sends in small batches, at its rate whatever the answers take, and waits
// for them at the end.
func (w *worker) send(until context.Context, p *chanq.Producer[[]byte]) error {
	const ticks = 50 // a second
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	under := pool.New().WithMaxGoroutines(64)
	owed := 0.0
	for running := true; running; {
		select {
		case <-until.Done():
			running = false
		case <-tick.C:
			owed += float64(w.Rate) / ticks
			if n := int(owed); n > 0 {
				owed -= float64(n)
				under.Go(func() { w.sendBatch(p, n) })
			}
		}
	}
	under.Wait()
	return p.Close(context.Background())
}

func (w *worker) sendBatch(p *chanq.Producer[[]byte], n int) {
	ms, events := make([]chanq.Message[[]byte], n), make([]event, n)
	for i := range ms {
		ms[i] = w.message()
		events[i] = event{kind: sending, id: ms[i].ID}
	}
	w.tell(events...)
	_, err := p.SendBatch(context.Background(), ms...)
	var batch *chanq.BatchError
	whole := err != nil && !errors.As(err, &batch)
	for i := range events {
		events[i].kind = stored
		if whole || batch != nil && batch.Errs[i] != nil {
			events[i].kind = unsent
		}
	}
	w.tell(events...)
}

// stamp is the length of the time that a body begins with.
const stamp = 8

// message is any of the kinds that a program might send.
func (w *worker) message() chanq.Message[[]byte] {
	m := chanq.Message[[]byte]{ID: chanq.NewID(), Body: make([]byte, stamp+w.roll(w.Body+1))}
	switch w.roll(20) {
	case 0:
		m.Delay = time.Duration(w.roll(2000)) * time.Millisecond
	case 1:
		m.Priority = chanq.PriorityHigh
	case 2:
		m.Headers = map[string]string{"kind": "soak"}
	}
	binary.BigEndian.PutUint64(m.Body, uint64(now()+int64(m.Delay)))
	return m
}

// receive settles every lease in one of the ways there are, and learns each
// outcome.
func (w *worker) receive(c *chanq.Consumer[[]byte]) error {
	outcomes := pool.New() // one that is stuck keeps no other from being told
	held := pool.New().WithMaxGoroutines(32)
	for l := range c.All() {
		e := event{kind: delivered, id: l.ID, attempt: l.Attempt, intent: w.intent(), latency: -1}
		if l.Attempt == 1 && len(l.Body) >= stamp {
			e.latency = now() - int64(binary.BigEndian.Uint64(l.Body))
		}
		w.tell(e)
		if w.roll(100) > 0 {
			w.settle(l, e.intent)
			outcomes.Go(func() { w.outcome(l) })
			continue
		}
		held.Go(func() { // holds it for a while, extending it
			_ = l.Extend(context.Background(), 2*leaseFor) // the outcome of the settle tells
			rest := time.NewTimer(time.Duration(w.roll(3000)) * time.Millisecond)
			defer rest.Stop()
			select {
			case <-rest.C:
			case <-l.Context().Done():
			}
			w.settle(l, e.intent)
			w.outcome(l)
		})
	}
	held.Wait()
	outcomes.Wait()
	return errors.Join(c.Shutdown(context.Background()), c.Err())
}

func (w *worker) intent() intent {
	switch n := w.roll(100); {
	case n < 4:
		return nack
	case n < 6:
		return release
	case n < 7:
		return bury
	default:
		return ack
	}
}

func (w *worker) settle(l *chanq.Lease[[]byte], how intent) {
	switch how { // Wait returns what went wrong
	case nack:
		_ = l.Nack(time.Duration(w.roll(500))*time.Millisecond, errors.New("try again"))
	case release:
		_ = l.Release()
	case bury:
		_ = l.DeadLetter(errors.New("enough"))
	default:
		_ = l.Ack()
	}
}

func (w *worker) outcome(l *chanq.Lease[[]byte]) {
	e := event{kind: confirmed, id: l.ID, attempt: l.Attempt}
	if err := l.Wait(context.Background()); err != nil {
		e.kind = refused
	}
	w.tell(e)
}

// weigh tells the worker's weight once a second.
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
		w.tell(event{kind: weighed, sample: usage{heap: m.HeapAlloc, goroutines: runtime.NumGoroutine(), faults: faults, freezes: frozen}})
	}
}

// WorkerMain ends the process.
func WorkerMain() {
	if err := Work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "soak worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
