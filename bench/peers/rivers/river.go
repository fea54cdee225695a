// Package rivers drives River through any of its drivers. River's drivers are published for
// different versions of River, which one program cannot link together. This package is built with
// the version that its program's module requires, v0.25.0 or later.
package rivers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

// Settings are the relevant settings of River. The zero value of each duration is River's default.
type Settings struct {
	Workers                          int
	FetchCooldown, FetchPollInterval time.Duration
}

// The measured settings.
var (
	// Tuned is similar to River's own benchmark.
	Tuned = Settings{Workers: 1000, FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond}
	// Default is the example in River's documentation. A client must set MaxWorkers.
	Default = Settings{Workers: 100}
)

// insertRows is the batch of River's own benchmark.
const insertRows = 5000

// Queue is River on one driver.
type Queue[TTx any] struct {
	Driver   riverdriver.Driver[TTx]
	Settings Settings
	// InsertAll inserts jobs; nil means Client.InsertMany. One statement has up to 5,000 jobs.
	InsertAll func(context.Context, *river.Client[TTx], []river.InsertManyParams) error
	// LeftJobs counts the rows and bytes of the table river_job.
	LeftJobs func(context.Context) (peer.Left, error)
	Counter  *measure.Counter // nil if the server counts
	CloseAll func() error
}

// Setup runs River's migrations.
func (q *Queue[TTx]) Setup(ctx context.Context) error {
	migrator, err := rivermigrate.New(q.Driver, &rivermigrate.Config{Logger: logger()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Sender returns a client that only inserts.
func (q *Queue[TTx]) Sender(context.Context) (peer.Sender, error) {
	client, err := river.NewClient(q.Driver, &river.Config{Logger: logger()})
	if err != nil {
		return nil, err
	}
	return &sender[TTx]{client, q.InsertAll}, nil
}

// Left returns the contents of the job table.
func (q *Queue[TTx]) Left(ctx context.Context) (peer.Left, error) { return q.LeftJobs(ctx) }

// Statements returns the number of statements that the driver has run.
func (q *Queue[TTx]) Statements() int64 { return q.Counter.Statements() }

// Close closes the database.
func (q *Queue[TTx]) Close() error { return q.CloseAll() }

type sender[TTx any] struct {
	client    *river.Client[TTx]
	insertAll func(context.Context, *river.Client[TTx], []river.InsertManyParams) error
}

func (s *sender[TTx]) SendAll(ctx context.Context, ms []peer.Message) error {
	insert := s.insertAll
	if insert == nil {
		insert = func(ctx context.Context, c *river.Client[TTx], jobs []river.InsertManyParams) error {
			_, err := c.InsertMany(ctx, jobs)
			return err
		}
	}
	jobs := make([]river.InsertManyParams, 0, insertRows)
	for len(ms) > 0 {
		n := min(insertRows, len(ms))
		jobs = jobs[:0]
		for _, m := range ms[:n] {
			jobs = append(jobs, river.InsertManyParams{Args: m})
		}
		if err := insert(ctx, s.client, jobs); err != nil {
			return err
		}
		ms = ms[n:]
	}
	return nil
}

// Rows returns how many messages SendAll sends at once.
func (s *sender[TTx]) Rows() int { return insertRows }

func (s *sender[TTx]) Send(ctx context.Context, m peer.Message) error {
	_, err := s.client.Insert(ctx, m, nil)
	return err
}

func (s *sender[TTx]) Close(context.Context) error { return nil } // was never started

// Receiver starts a client that works jobs.
func (q *Queue[TTx]) Receiver(ctx context.Context, n int, deliver func(peer.Message)) (peer.Receiver, error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, river.WorkFunc(func(_ context.Context, job *river.Job[peer.Message]) error {
		deliver(job.Args)
		return nil
	})); err != nil {
		return nil, err
	}
	client, err := river.NewClient(q.Driver, &river.Config{
		FetchCooldown: q.Settings.FetchCooldown, FetchPollInterval: q.Settings.FetchPollInterval,
		Logger:  logger(),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: q.Settings.Workers}},
		Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	// River reports a completion after it has written it. An event is dropped if the channel is
	// full, so the channel must have room for all. A run without end does not count them.
	var events <-chan *river.Event
	cancel := func() {}
	if n > 0 {
		events, cancel = client.SubscribeConfig(&river.SubscribeConfig{
			ChanSize: n + 1000, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed},
		})
	}
	if err := client.Start(ctx); err != nil {
		cancel()
		return nil, err
	}
	return &receiver[TTx]{client, events, cancel, n}, nil
}

type receiver[TTx any] struct {
	client *river.Client[TTx]
	events <-chan *river.Event
	cancel func()
	n      int
}

func (r *receiver[TTx]) Wait(ctx context.Context) error {
	for done := 0; done < r.n || r.n == 0; done++ {
		select {
		case event := <-r.events:
			if event == nil || event.Kind != river.EventKindJobCompleted {
				return errors.New("a job failed, or the client stopped")
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *receiver[TTx]) Close(ctx context.Context) error {
	r.cancel()
	return r.client.Stop(ctx)
}

// logger logs only problems.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
