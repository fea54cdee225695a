package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb/crew"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// workerPart is the name of the worker's part in a child. Its function is work.
const workerPart = "worker"

// order is the task of a worker.
type order struct {
	storm  // without FreezeEvery if the crew freezes connections
	Number int
	Place  int
	Next   map[string]int // number of the next message of each line; 1 if there is none
	Again  []record.Again // sent first: a former worker might have stored them
}

// worker sends and receives. Its goroutines: the sender and the batches that it has in progress, the hands that
// handle leases, one that measures the process, one that reads orders.
type worker struct {
	order
	queue  *queue
	leases atomic.Int64

	mu     sync.Mutex // guards the following fields
	random *rand.Rand
	faults int64
	frozen int64
	freeze time.Time // when the next one is due
	free   []*line   // no batch of them is in progress
}

// work runs a worker from start to end. It stops sending at the first order, and leaves at the end of the orders.
func work(receive context.Context, o order, orders <-chan string) (err error) {
	w := &worker{order: o, random: rand.New(rand.NewPCG(o.Seed, 2))}
	w.freezeNext()
	record.Tell(record.Event{Kind: record.Started})
	send, stop := crew.Sending(receive, orders)
	defer stop()
	choose := w.choose
	if w.Faults == 0 && w.FreezeEvery == 0 {
		choose = nil
	}
	if w.queue, err = connect(o.storm, choose); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.queue.close()) }()
	if err := w.run(send, receive); receive.Err() == nil || w.queue.shards != nil {
		return err
	}
	return nil // it has to leave before it started
}

func (w *worker) run(send, receive context.Context) error {
	cfg := w.config()
	cfg.StatementTimeout = w.timeout()
	cfg.Hooks.LeaseLost = func(e chanq.LeaseLostEvent) {
		record.Tell(record.Event{Kind: record.Ended, ID: e.ID, Attempt: e.Attempt})
	}
	cfg.Hooks.Claimed = func(e chanq.ClaimedEvent) {
		if e.Took > w.LeaseFor/2 {
			record.Tell(record.Event{Kind: record.Slow, Took: e.Took})
		}
	}
	if _, err := reach(receive, func() (bool, error) { return true, w.queue.open(receive, cfg) }); err != nil {
		w.queue.shards = nil
		return err
	}
	p, err := reach(receive, func() (producer, error) { return w.queue.produce(context.Background()) })
	if err != nil {
		return err
	}
	c, err := reach(receive, func() (consumer, error) {
		return w.queue.consume(receive, chanq.ConsumerConfig{Name: fmt.Sprint(w.Number), LeaseFor: w.LeaseFor, Prefetch: 200})
	})
	if err != nil {
		if receive.Err() != nil { // it has to leave
			err = nil
		}
		return errors.Join(err, p.Close(context.Background()))
	}
	tasks := pool.New().WithErrors()
	tasks.Go(func() error { return w.send(send, p) })
	tasks.Go(func() error { return w.receive(c) })
	tasks.Go(func() error { return w.weigh(receive) })
	return tasks.Wait()
}

// reach opens through a connection that might break, to a server that might be unavailable.
func reach[T any](ctx context.Context, open func() (T, error)) (v T, err error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-again.C {
		if v, err = open(); err == nil || errors.Is(err, chanq.ErrNoSchema) || ctx.Err() != nil || time.Now().After(deadline) {
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
	e := engines[w.At[0].Engine]
	if w.FreezeEvery > 0 && time.Now().After(w.freeze) {
		w.freezeNext()
		w.frozen++
		thawed := make(chan struct{})
		time.AfterFunc(time.Duration(w.random.Int64N(int64(e.freezeFor))), func() { close(thawed) })
		return faultdb.Hold(thawed)
	}
	if w.random.Float64() >= w.Faults {
		return faultdb.Fault{}
	}
	w.faults++
	switch w.random.IntN(8) {
	case 0:
		return faultdb.Fail(e.Errors[sqlbatch.RolledBack]) // a deadlock
	case 1:
		return faultdb.Fail(e.Errors[sqlbatch.Refused]) // a full disk, too many connections
	case 2:
		return faultdb.Hang()
	case 3, 4:
		return faultdb.Cut(e.Errors[sqlbatch.Unknown])
	}
	return faultdb.Cut(e.Errors[sqlbatch.Unknown]).Applied()
}

func (w *worker) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// chance is true with a probability.
func (w *worker) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64() < p
}

// moment returns a random time from 0 to d.
func (w *worker) moment(d time.Duration) time.Duration { return time.Duration(w.roll(int(d) + 1)) }

// receive handles messages until the worker leaves, in either of two ways.
func (w *worker) receive(c consumer) error {
	if w.Number%2 == 0 {
		err := c.Handle(w.Hands, func(_ context.Context, l *chanq.Lease[body]) error {
			w.handle(l)
			return nil // already settled
		})
		return errors.Join(err, c.Shutdown(context.Background()), c.Err())
	}
	hands := pool.New().WithMaxGoroutines(w.Hands)
	for l := range c.All() {
		hands.Go(func() { w.handle(l) })
	}
	err := c.Shutdown(context.Background())
	hands.Wait()
	return errors.Join(err, c.Err())
}

// handle handles a lease, settles it in one of the possible ways, and tells the outcome.
func (w *worker) handle(l *chanq.Lease[body]) {
	e := record.Event{Kind: record.Got, At: record.Now(), Name: nameOf(l.Body), ID: l.ID, Attempt: l.Attempt, Lease: w.leases.Add(1), Deadline: l.Deadline().UnixNano()}
	if l.Attempt == 1 {
		e.Latency = max(1, time.Duration(e.At-l.Body.at()))
	}
	record.Tell(e)
	switch {
	case l.Type == record.Deadly:
		record.Tell(record.Event{Kind: record.Dying})
		select {}
	case w.roll(100) == 0:
		longer := 2 * w.LeaseFor
		if w.Ordered {
			longer = time.Hour // it holds its key at most as long as this process runs
		}
		_ = l.Extend(context.Background(), longer)       // the outcome of the settle is reported
		crew.Rest(l.Context(), w.moment(w.LeaseFor*3/2)) // some of them longer than a lease
	case w.Ordered && hot(l.Key):
		crew.Rest(l.Context(), w.moment(10*w.Work)) // so that some messages wait behind it
	case w.Work > 0:
		crew.Rest(l.Context(), w.moment(w.Work))
	}
	again := func(d time.Duration) time.Duration { return w.moment(d) }
	switch n := w.roll(100); {
	case n < 5:
		w.settle(e, l, record.Nack, func() error { return l.Nack(chanq.RetryAfter(again(500*time.Millisecond), errors.New("try again"))) })
	case n < 7:
		w.settle(e, l, record.Release, l.Release)
	case n < 8:
		w.settle(e, l, record.Snooze, func() error { return l.Nack(chanq.Snooze(again(300*time.Millisecond), nil)) })
	case n < 9 && w.Holds:
		w.settle(e, l, record.Hold, func() error { return l.Nack(chanq.DeadLetter(errors.New("enough"))) })
	case n < 9:
		w.settle(e, l, record.DeadLetter, func() error { return l.Nack(chanq.DeadLetter(errors.New("enough"))) })
	case n < 14 && w.Ordered:
		w.ackTx(e, l)
	default:
		w.settle(e, l, record.Ack, l.Ack)
	}
}

// about tells the outcome of the lease of e.
func about(e record.Event, k record.Kind, err error) {
	e.Kind, e.At, e.Latency, e.Deadline = k, 0, 0, 0
	if k == record.Failed {
		e.Error = err.Error()
	}
	record.Tell(e)
}

// asks tells that the lease is going to be settled: from now on its reader does not handle it.
func asks(e record.Event, l *chanq.Lease[body], how record.How) {
	e.Kind, e.At, e.Latency, e.Deadline, e.How = record.Settling, 0, 0, l.Deadline().UnixNano(), how
	record.Tell(e)
}

func (w *worker) settle(e record.Event, l *chanq.Lease[body], how record.How, ask func() error) {
	asks(e, l, how)
	_ = ask() // Wait returns the error
	err := l.Wait(context.Background())
	about(e, record.OutcomeOf(err), err)
}

// ackTx acks in a transaction that takes some time, and is sometimes rolled back: then the message is released.
func (w *worker) ackTx(e record.Event, l *chanq.Lease[body]) {
	shard := w.queue.origin(l)
	ctx, cancel := w.brief(shard)
	defer cancel()
	tx, err := w.queue.where[shard].DB.BeginTx(ctx, nil)
	if err == nil {
		defer func() { _ = tx.Rollback() }() // perhaps for the second time
		err = l.AckTx(ctx, tx)
	}
	if err == nil {
		crew.Rest(l.Context(), w.moment(min(engines[w.At[shard].Engine].late, 300*time.Millisecond)))
	}
	if err == nil && w.roll(4) > 0 {
		asks(e, l, record.AckTx)
		if err := tx.Commit(); err != nil {
			about(e, record.Unknown, nil)
			return
		}
		about(e, record.Confirmed, nil)
		return
	}
	if tx != nil {
		_ = tx.Rollback()
	}
	asks(e, l, record.Nack)
	if !errors.Is(err, chanq.ErrLeaseLost) {
		if err = l.Nack(chanq.RetryAfter(0, errors.New("rolled back"))); err == nil {
			err = l.Wait(context.Background())
		}
	}
	outcome := record.OutcomeOf(err)
	// After AckTx the consumer did not wait for this lease at its end, and another one might have handled the message.
	if errors.Is(err, chanq.ErrClosed) || errors.Is(err, chanq.ErrSettled) {
		outcome = record.Lost
	}
	about(e, outcome, err)
}

// brief bounds a transaction of a worker, an operation of which might hang, with locks that others wait for.
func (w *worker) brief(shard int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), engines[w.At[shard].Engine].late+w.LeaseFor)
}

// weigh tells the worker's resource usage once per second.
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
		usage := record.Usage{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine(), Faults: w.faults, Freezes: w.frozen}
		w.mu.Unlock()
		record.Tell(record.Event{Kind: record.Weighed, Usage: usage})
	}
}

// line has messages that are sent one after another: in an ordered queue, those of a key.
type line struct {
	key  string
	next int
}

// lines is how many batches a worker sends at once: in an ordered queue, its keys. The first hotLines are hot.
func (w *worker) lines() int {
	if w.Ordered {
		return 12
	}
	return 64
}

const hotLines = 4

// hot reports whether a key is hot: it has more messages, and they take longer.
func hot(key string) bool {
	var place, number int
	_, err := fmt.Sscanf(key, "%d:%d", &place, &number)
	return err == nil && number < hotLines
}

// take returns a line of which no batch is in progress, or nil.
func (w *worker) take() *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.free) == 0 {
		return nil
	}
	i := w.random.IntN(len(w.free))
	if h := slices.IndexFunc(w.free, func(l *line) bool { return hot(l.key) }); h >= 0 && w.random.IntN(3) == 0 {
		i = h
	}
	l := w.free[i]
	w.free = slices.Delete(w.free, i, i+1)
	return l
}

// send sends in small batches, at its rate whatever the duration of the answers, and waits for them at the end.
func (w *worker) send(until context.Context, p producer) error {
	for i := range w.lines() {
		key := fmt.Sprintf("%d:%d", w.Place, i)
		w.free = append(w.free, &line{key, max(1, w.Next[key])})
	}
	const ticks = 50 // per second
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	under := pool.New()
	if len(w.Again) > 0 {
		under.Go(func() {
			ms := make([]chanq.Message[body], len(w.Again))
			for i, a := range w.Again {
				ms[i] = w.message("", a.Name)
				ms[i].ID = a.ID
			}
			w.sendBatch(p, ms)
		})
	}
	owed, longest := 0.0, max(1, float64(w.Rate)/float64(w.Workers))
	for running := true; running; {
		select {
		case <-until.Done():
			running = false
		case <-tick.C:
			owed = min(owed+longest/ticks, longest) // at most a second is made up for
			for owed >= 1 {
				l := w.take()
				if l == nil {
					break
				}
				n := 1 + w.roll(max(3, int(owed)))
				owed -= float64(n)
				under.Go(func() {
					w.sendLine(until, p, l, n)
					w.mu.Lock()
					defer w.mu.Unlock()
					w.free = append(w.free, l)
				})
			}
		}
	}
	under.Wait()
	err := p.Close(context.Background())
	record.Tell(record.Event{Kind: record.Quiet})
	return err
}

// sendLine sends the next n messages of a line.
func (w *worker) sendLine(until context.Context, p producer, l *line, n int) {
	ms := make([]chanq.Message[body], n)
	for i := range ms {
		name := record.NameOf(l.key, l.next)
		if w.chance(w.Guilty) {
			name += " " + guilts[w.roll(len(guilts))]
		}
		ms[i] = w.message(l.key, name)
		l.next++
	}
	if w.Ordered && w.roll(5) == 0 {
		w.sendTx(until, ms)
		return
	}
	w.sendBatch(p, ms)
}

// tell tells events of messages.
func tell(k record.Kind, ms ...chanq.Message[body]) {
	events := make([]record.Event, len(ms))
	for i, m := range ms {
		events[i] = record.Event{Kind: k, Name: nameOf(m.Body), ID: m.ID}
	}
	record.Tell(events...)
}

// answers returns the outcomes of a send, except those that are unknown.
func answers(ms []chanq.Message[body], receipts []chanq.Receipt, err error) (events []record.Event) {
	errs := slices.Repeat([]error{err}, len(ms))
	var batch *chanq.BatchError
	if errors.As(err, &batch) {
		errs = batch.Errs
	}
	for i, m := range ms {
		switch e, err := (record.Event{Name: nameOf(m.Body)}), errs[i]; {
		case err == nil:
			e.Kind, e.ID = record.Stored, receipts[i].ID
			events = append(events, e)
		case record.OutcomeOf(err) != record.Unknown:
			e.Kind, e.Error = record.Dropped, err.Error()
			events = append(events, e)
		}
	}
	return events
}

func (w *worker) sendBatch(p producer, ms []chanq.Message[body]) {
	tell(record.Intended, ms...)
	receipts, err := p.SendBatch(context.Background(), ms...)
	record.Tell(answers(ms, receipts, err)...)
}

// sendTx sends in a transaction that commits late, or not at all. If the database rolls it back, or it cannot begin,
// the messages are not stored.
func (w *worker) sendTx(until context.Context, ms []chanq.Message[body]) {
	tell(record.Intended, ms...)
	shard := w.queue.shardOf(ms[0]) // they have one key
	ctx, cancel := w.brief(shard)
	defer cancel()
	tx, err := w.queue.where[shard].DB.BeginTx(ctx, nil)
	if err != nil {
		tell(record.Dropped, ms...)
		return
	}
	defer func() { _ = tx.Rollback() }() // perhaps for the second time; after an error of it the connection is gone, and the transaction with it
	receipts, err := w.queue.shards[shard].SendTx(ctx, tx, ms...)
	if err != nil {
		_ = tx.Rollback()
		tell(record.Dropped, ms...)
		return
	}
	crew.Rest(until, w.moment(engines[w.At[shard].Engine].late))
	if w.roll(4) == 0 {
		_ = tx.Rollback()
		tell(record.Dropped, ms...)
		return
	}
	if err := tx.Commit(); err != nil {
		return // the outcome is unknown
	}
	w.queue.shards[shard].Wake()
	for i, r := range receipts {
		ms[i].ID = r.ID
	}
	tell(record.Stored, ms...)
}

// message returns any of the kinds that a program might send. Every second message has an ID that the sender chose.
func (w *worker) message(key, name string) chanq.Message[body] {
	m := chanq.Message[body]{Body: newBody(name, w.roll(w.Body+1))}
	if w.roll(2) == 0 {
		m.ID = chanq.NewID()
	}
	kind := w.roll(20)
	switch {
	case kind == 2:
		m.Headers = map[string]string{"kind": "soak"}
	case w.Ordered:
	case kind == 0:
		m.Delay = time.Duration(w.roll(2000)) * time.Millisecond
	case kind == 1:
		m.Priority = chanq.PriorityHigh
	}
	if w.Ordered {
		m.Key = key
	}
	if m.Type = record.GuiltOf(name); m.Type != record.Unreadable {
		m.Body.stamp(record.Now() + int64(m.Delay))
	}
	return m
}
