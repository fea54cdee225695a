// Command hello is the first program with chanq: it sends three messages and handles them. docs/start/getting-started.md explains it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	db, err := embedded.Open("shop.db") // creates the file if it does not exist
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(context.Background(), db), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// Order is the body of a message: anything that encoding/json can write and read.
type Order struct {
	Number int
	Item   string
}

func run(ctx context.Context, db *sql.DB) error {
	// Create the tables of the queue "orders" if they are missing, and open the queue. LogHooks logs what fails.
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, "orders", config); err != nil {
		return err
	}
	orders, err := chanq.Open[Order](ctx, db, "orders", config)
	if err != nil {
		return err
	}

	// When Send has returned nil, the messages are in the database.
	_, err = orders.Send(ctx, chanq.Msg(Order{1, "tea"}), chanq.Msg(Order{2, "coffee"}), chanq.Msg(Order{3, "cake"}))
	if err != nil {
		return err
	}

	// The function is called for each message. A service would continue until its context is cancelled; this one stops when nothing is due.
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	if err != nil {
		return err
	}
	return consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[Order]) error {
		fmt.Printf("order %d: %s, attempt %d\n", lease.Body.Number, lease.Body.Item, lease.Attempt)
		return nil // done: the message leaves the queue
	})
}
