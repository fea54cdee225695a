// Command start is the first program with chanq: it sends three messages, and receives
// them. docs/getting-started.md goes through it.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	db, err := embedded.Open("shop.db") // the file is made if it is not there
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := shop(context.Background(), db, os.Stdout); err != nil {
		log.Print(err)
	}
}

// Order is the body of a message: anything that encoding/json can write and read.
type Order struct {
	Number int
	Item   string
}

func shop(ctx context.Context, db *sql.DB, out io.Writer) error {
	// The tables of the queue "orders", if they are not there yet; then the queue itself.
	if err := chanq.Migrate(ctx, db, "orders", chanq.Config{}); err != nil {
		return err
	}
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	if err != nil {
		return err
	}

	// Send. When Send has returned nil, the message is in the database.
	for n, item := range []string{"tea", "coffee", "cake"} {
		if _, err := orders.Send(ctx, chanq.Msg(Order{Number: n + 1, Item: item})); err != nil {
			return err
		}
	}

	// Receive. A message is ours for a while, by its lease; Ack says that it is done.
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	for lease := range consumer.All() {
		fmt.Fprintf(out, "order %d: %s, attempt %d\n", lease.Body.Number, lease.Body.Item, lease.Attempt)
		if err := lease.Ack(); err != nil {
			log.Print(err) // the message comes again
		}
		if lease.Body.Item == "cake" {
			break // a service would go on until it is told to stop
		}
	}
	return consumer.Shutdown(ctx) // every ack is in the database now
}
