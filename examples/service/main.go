// Command service handles jobs of three types, which are in one queue, until SIGTERM or Ctrl-C.
//
//	go run ./examples/service
//	go run ./cmd/chanq send --db jobs.db --type welcome jobs '{"Name": "Ada"}'
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/chanq/chanq"
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

type (
	welcome struct{ Name string }
	invoice struct{ Number, Cents int }
	cleanup struct{ Days int }
)

// run handles jobs until ctx is cancelled.
func run(ctx context.Context, db *sql.DB) error {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, "jobs", config); err != nil {
		return err
	}
	jobs, err := chanq.Open[json.RawMessage](ctx, db, "jobs", config)
	if err != nil {
		return err
	}
	handlers := map[string]chanq.Handler[json.RawMessage]{
		"welcome": handler(func(_ context.Context, w welcome) error {
			log.Printf("welcome, %s", w.Name)
			return nil
		}),
		"invoice": handler(func(_ context.Context, i invoice) error {
			if i.Cents <= 0 {
				return chanq.DeadLetter(fmt.Errorf("invoice %d is about nothing", i.Number))
			}
			log.Printf("invoice %d: %d cents", i.Number, i.Cents)
			return nil
		}),
		"cleanup": handler(func(_ context.Context, c cleanup) error {
			log.Printf("nothing is older than %d days", c.Days)
			return nil
		}),
	}
	if err := send(ctx, jobs, "cleanup", cleanup{Days: 30}); err != nil {
		return err
	}
	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	// After ctx is cancelled, Handle returns when all calls have returned and their results are stored.
	return consumer.Handle(8, func(ctx context.Context, lease *chanq.Lease[json.RawMessage]) error {
		handle, found := handlers[lease.Type]
		if !found { // retried: while a new version is rolled out, its processes send jobs of types that older processes do not know
			return fmt.Errorf("no handler for the type %q", lease.Type)
		}
		return handle(ctx, lease)
	})
}

// send sends a job of a type.
func send(ctx context.Context, jobs *chanq.Queue[json.RawMessage], kind string, job any) error {
	body, err := json.Marshal(job)
	if err != nil {
		return err
	}
	_, err = jobs.Send(ctx, chanq.Message[json.RawMessage]{Type: kind, Body: body})
	return err
}

// handler handles messages whose bodies are values of type T.
func handler[T any](do func(context.Context, T) error) chanq.Handler[json.RawMessage] {
	return func(ctx context.Context, lease *chanq.Lease[json.RawMessage]) error {
		var body T
		if err := json.Unmarshal(lease.Body, &body); err != nil {
			return chanq.DeadLetter(err)
		}
		return do(ctx, body)
	}
}
