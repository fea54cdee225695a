// Command service handles jobs of two kinds, which are in one queue, until SIGTERM or Ctrl-C.
//
//	go run ./examples/service
//	go run ./cmd/chanq send --db jobs.db --type welcome jobs '{"Name": "Ada"}'
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("jobs.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db), db.Close()); err != nil {
		log.Fatal(err)
	}
}

type mail struct{ Name string }

var (
	welcome = chanqjobs.Define[mail]("welcome")
	cleanup = chanqjobs.Define[int]("cleanup") // the days that are kept
)

// run handles jobs until ctx is cancelled.
func run(ctx context.Context, db *sql.DB) error {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, "jobs", config); err != nil {
		return err
	}
	jobs, err := chanqjobs.Open(ctx, db, "jobs", config)
	if err != nil {
		return err
	}
	if _, err := jobs.Send(ctx, cleanup.New(30)); err != nil {
		return err
	}
	mux := chanqjobs.NewMux()
	chanqjobs.Handle(mux, welcome, func(_ context.Context, lease *chanq.Lease[mail]) error {
		log.Printf("welcome, %s", lease.Body.Name)
		return nil
	}, chanqjobs.Options{})
	chanqjobs.Handle(mux, cleanup, func(_ context.Context, lease *chanq.Lease[int]) error {
		log.Printf("nothing is older than %d days", lease.Body)
		return nil
	}, chanqjobs.Options{})
	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	// After ctx is cancelled, Handle returns when all calls have returned and their results are stored.
	return consumer.Handle(8, mux.Handle)
}
