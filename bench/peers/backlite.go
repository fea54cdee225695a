package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mikestefanello/backlite"
	driver "modernc.org/sqlite"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

const (
	liteWorkers = 100 // with fewer, its pause of 100 ms when all are busy dominates
	liteRows    = 500 // of one transaction
)

// liteTask is a Message in the form that backlite stores.
type liteTask struct{ peer.Message }

// Config keeps no completed tasks, like chanq.
func (liteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "bench", MaxAttempts: 10, Timeout: time.Minute, Backoff: time.Second}
}

type liteQueue struct {
	db      *sql.DB
	counter *measure.Counter
	client  *backlite.Client // one for both sides, which notify each other
}

func openBacklite(ctx context.Context, job peer.Job) (peer.Queue, error) {
	counter := &measure.Counter{}
	db := sql.OpenDB(counter.DSN(&driver.Driver{}, peer.SQLiteDSN(job.Dir)))
	db.SetMaxOpenConns(1) // more connections get SQLITE_BUSY
	if err := peer.CheckSQLite(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	client, err := backlite.NewClient(backlite.ClientConfig{DB: db, NumWorkers: liteWorkers, ReleaseAfter: 10 * time.Minute})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &liteQueue{db, counter, client}, nil
}

func (q *liteQueue) Setup(context.Context) error { return q.client.Install() }

func (q *liteQueue) Sender(context.Context) (peer.Sender, error) { return liteSender{q.client}, nil }

func (q *liteQueue) Receiver(ctx context.Context, n int, deliver func(peer.Message)) (peer.Receiver, error) {
	processed := make(chan struct{}, n)
	q.client.Register(backlite.NewQueue(func(_ context.Context, task liteTask) error {
		deliver(task.Message)
		select {
		case processed <- struct{}{}:
		default: // redelivered
		}
		return nil
	}))
	q.client.Start(ctx)
	return &liteReceiver{q, processed, n}, nil
}

func (q *liteQueue) Left(ctx context.Context) (peer.Left, error) {
	return peer.LeftSQLite(ctx, q.db, "backlite_tasks", "backlite_tasks_completed")
}

func (q *liteQueue) Statements() int64 { return q.counter.Statements() }
func (q *liteQueue) Close() error      { return q.db.Close() }

type liteSender struct{ client *backlite.Client }

func (s liteSender) SendAll(ctx context.Context, ms []peer.Message) error {
	batch := make([]backlite.Task, 0, liteRows)
	for i, m := range ms {
		if batch = append(batch, liteTask{m}); len(batch) == liteRows || i == len(ms)-1 {
			if _, err := s.client.Add(batch...).Ctx(ctx).Save(); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

func (s liteSender) Send(ctx context.Context, m peer.Message) error {
	_, err := s.client.Add(liteTask{m}).Ctx(ctx).Save()
	return err
}

func (s liteSender) Close(context.Context) error { return nil }

type liteReceiver struct {
	queue     *liteQueue
	processed chan struct{}
	n         int
}

// Wait returns when the table is empty: backlite deletes a task after its
// processor has returned, without a notification.
func (r *liteReceiver) Wait(ctx context.Context) error {
	if r.n == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for range r.n {
		select {
		case <-r.processed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return poll(ctx, func() (done bool, err error) {
		var more bool
		err = r.queue.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM backlite_tasks)").Scan(&more)
		return !more, err
	})
}

func (r *liteReceiver) Close(ctx context.Context) error {
	if !r.queue.client.Stop(ctx) {
		return errors.New("backlite did not stop in time")
	}
	return nil
}
