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
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/kills"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
)

// task is the task of a worker.
type task struct {
	Databases []database     // one, or the shards of the queue
	Number    int            // of the process
	Place     int            // its keys are named after it
	Next      map[string]int // number of the next message of each key; 1 if there is none
	Keys      int
	Rate      float64 // sends per second
	LeaseFor  time.Duration
	Slots     int
	Holds     bool
	Work      time.Duration // on most leases, at most
	Seed      uint64
}

// database is where the queue is, or one of its shards.
type database struct{ Engine, Address string }

// late returns how long a transaction that sends is open at most.
func (d database) late() time.Duration {
	if d.Engine == testdb.SQLite.Name {
		return 5 * time.Millisecond
	}
	return 2 * time.Second
}

// open opens the databases. The processes notify each other with the engine's notifier.
func open(databases []database) (shards []chanqshards.Shard, end func(), err error) {
	end = func() {
		for _, s := range shards {
			if s.Notifier != nil {
				_ = s.Notifier.(*pgnotify.Notifier).Close()
			}
			_ = s.DB.Close() // no statement is open on it
		}
	}
	for _, d := range databases {
		connector, err := engines[d.Engine].Connect(d.Address)
		if err != nil {
			end()
			return nil, nil, err
		}
		shard := chanqshards.Shard{DB: sql.OpenDB(connector)}
		shard.DB.SetMaxOpenConns(12)
		if d.Engine == testdb.Postgres.Name {
			shard.Notifier = pgnotify.New(shard.DB, pgnotify.Config{})
		}
		shards = append(shards, shard)
	}
	return shards, end, nil
}

const queueName = "keys"

func config(slots int, holds bool) chanq.Config {
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: slots, MaxAttempts: 10_000}} // MaxAttempts: processes die
	if holds {
		cfg.DeadKey = chanq.DeadKeyHolds
	}
	return cfg
}

// worker sends and receives. Its goroutines: the senders, each with its own keys, and the handlers.
type worker struct {
	task
	shards []chanqshards.Shard
	queue  *queue
	leases atomic.Int64

	mu     sync.Mutex // guards random
	random *rand.Rand
}

// senders is the number of senders of a worker: a sender that keeps a transaction open does not delay the others.
const senders = 4

// handlers is the number of handlers of a worker.
const handlers = 16

// work runs a worker from start to end. It stops sending at the first order, and leaves at the end of the orders.
func work(ctx context.Context, t task, orders <-chan string) error {
	shards, end, err := open(t.Databases)
	if err != nil {
		return err
	}
	defer end()
	queue, err := openQueue(ctx, shards, config(t.Slots, t.Holds))
	if ctx.Err() != nil { // it has to leave before it started
		return nil
	}
	if err != nil {
		return err
	}
	w := &worker{task: t, shards: shards, queue: queue, random: rand.New(rand.NewPCG(t.Seed, 1))}
	send, stop := crew.Sending(ctx, orders)
	defer stop()
	c, err := queue.consume(ctx, chanq.ConsumerConfig{Name: fmt.Sprint(t.Number), LeaseFor: t.LeaseFor, Prefetch: 200})
	if ctx.Err() != nil && err != nil {
		return nil
	}
	if err != nil {
		return err
	}
	kills.Tell(kills.Event{Kind: kills.Started})
	tasks := pool.New().WithErrors()
	tasks.Go(func() error { return w.send(send) })
	tasks.Go(func() error { return w.receive(c) })
	return tasks.Wait()
}

// receive handles messages until the worker leaves, in either of two ways.
func (w *worker) receive(c consumer) error {
	if w.Number%2 == 0 {
		err := c.Handle(handlers, func(_ context.Context, l *chanq.Lease[string]) error {
			w.handle(l)
			return nil // already settled
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

// moment returns a random time from 0 to d.
func (w *worker) moment(d time.Duration) time.Duration { return time.Duration(w.roll(int(d) + 1)) }
