package keystorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/pgbell"
)

// task is what a worker is told when it starts.
type task struct {
	Engine, Address string
	Number          int            // of the process
	Place           int            // its keys are named for it
	Next            map[string]int // number of the next message of each key; 1 where there is none
	Keys            int
	Rate            float64 // sends a second
	LeaseFor        time.Duration
	Slots           int
	Holds           bool
	Late            time.Duration // a transaction that sends is open for so long at most
	Work            time.Duration // on a lease, at most, with most leases
	Seed            uint64
}

const queueName = "keys"

func config(slots int, holds bool) chanq.Config {
	cfg := chanq.Config{Kind: chanq.KindOrdered, Slots: slots, MaxAttempts: 10_000} // of processes that die
	if holds {
		cfg.DeadKey = chanq.DeadKeyHolds
	}
	return cfg
}

// open opens the database and the queue. The processes wake each other by what the engine has.
func open(ctx context.Context, e testdb.Engine, address string, cfg chanq.Config) (*sql.DB, *chanq.Queue[string], func(), error) {
	connector, err := e.Connect(address)
	if err != nil {
		return nil, nil, nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(12)
	end := func() { _ = db.Close() } // nothing is open on it
	if e.Name == testdb.Postgres.Name {
		bell := pgbell.New(db, pgbell.Config{})
		cfg.Bell = bell
		end = func() { _, _ = bell.Close(), db.Close() }
	}
	q, err := chanq.Open[string](ctx, db, queueName, cfg)
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	return db, q, end, nil
}

// worker sends and receives. Its goroutines: the senders, each with keys of its own, and the
// handlers.
type worker struct {
	task
	db     *sql.DB
	queue  *chanq.Queue[string]
	leases atomic.Int64

	mu     sync.Mutex // guards random
	random *rand.Rand
}

// senders of a worker: one that holds a transaction open keeps the others from nothing.
const senders = 4

// handlers of a worker.
const handlers = 16

// work is the whole life of a worker. It stops sending at the first order, and leaves at the
// end of them.
func work(ctx context.Context, t task, orders <-chan string) error {
	w := &worker{task: t, random: rand.New(rand.NewPCG(t.Seed, 1))}
	db, queue, end, err := open(ctx, engines[t.Engine], t.Address, config(t.Slots, t.Holds))
	if ctx.Err() != nil { // it is to leave before it was there
		return nil
	}
	if err != nil {
		return err
	}
	defer end()
	w.db, w.queue = db, queue
	send, stopSending := context.WithCancel(ctx)
	defer stopSending()
	go func() { // ends with the orders
		<-orders
		stopSending()
	}()
	c, err := queue.Consume(ctx, chanq.ConsumerConfig{Name: fmt.Sprint(t.Number), LeaseFor: t.LeaseFor, Prefetch: 200})
	if ctx.Err() != nil && err != nil {
		return nil
	}
	if err != nil {
		return err
	}
	tell(event{Kind: joined})
	tasks := pool.New().WithErrors()
	tasks.Go(func() error { return w.send(send) })
	tasks.Go(func() error { return w.receive(c) })
	return tasks.Wait()
}

// receive handles what comes until the worker leaves, in either of two ways.
func (w *worker) receive(c *chanq.Consumer[string]) error {
	if w.Number%2 == 0 {
		err := c.Handle(handlers, func(_ context.Context, l *chanq.Lease[string]) error {
			w.handle(l)
			return nil // it is settled
		})
		return errors.Join(err, c.Shutdown(context.Background()), c.Err())
	}
	hands := pool.New().WithMaxGoroutines(handlers)
	for l := range c.All() {
		hands.Go(func() { w.handle(l) })
	}
	err := c.Shutdown(context.Background())
	hands.Wait()
	return errors.Join(err, c.Err())
}

func (w *worker) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// moment is a time from nothing to d.
func (w *worker) moment(d time.Duration) time.Duration { return time.Duration(w.roll(int(d) + 1)) }

// rest works on something, or waits for somebody.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
