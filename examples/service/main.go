// Command service handles jobs of three types, which are in one queue, until it gets SIGTERM or Ctrl-C.
//
//	go run ./examples/service
//	go run ./cmd/chanq send --db jobs.db --type welcome jobs '{"Name": "Ada"}'
package main

import (
	"context"
	"database/sql"
	"encoding/json"
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
	defer db.Close()
	if err := run(ctx, db, log.Printf); err != nil {
		log.Print(err)
	}
}

type (
	welcome struct{ Name string }
	invoice struct{ Number, Cents int }
	cleanup struct{ Days int }
)

// run handles jobs until ctx ends.
func run(ctx context.Context, db *sql.DB, print func(format string, args ...any)) error {
	if err := chanq.Migrate(ctx, db, "jobs", chanq.Config{}); err != nil {
		return err
	}
	jobs, err := chanq.Open[json.RawMessage](ctx, db, "jobs", chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)})
	if err != nil {
		return err
	}
	handlers := map[string]chanq.Handler[json.RawMessage]{
		"welcome": handler(func(_ context.Context, w welcome) error {
			print("welcome, %s", w.Name)
			return nil
		}),
		"invoice": handler(func(_ context.Context, i invoice) error {
			if i.Cents <= 0 {
				return chanq.DeadLetter(fmt.Errorf("invoice %d is about nothing", i.Number))
			}
			print("invoice %d: %d cents", i.Number, i.Cents)
			return nil
		}),
		"cleanup": handler(func(_ context.Context, c cleanup) error {
			print("nothing is older than %d days", c.Days)
			return nil
		}),
	}
	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	// It returns when ctx has ended, the calls that have begun have returned, and what they did is stored.
	return consumer.Handle(8, func(ctx context.Context, lease *chanq.Lease[json.RawMessage]) error {
		handle, found := handlers[lease.Type]
		if !found {
			return chanq.DeadLetter(fmt.Errorf("no handler for the type %q", lease.Type))
		}
		return handle(ctx, lease)
	})
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
