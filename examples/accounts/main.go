// Command accounts books the movements of customers' accounts: eight workers at once, and
// each customer's movements one after the other, in the order in which they came. So a
// withdrawal that is not covered can be refused for good: nothing that came before it is
// still to be booked, not even what had to be tried again.
//
//	printf 'ada 100\nbob 50\nada -70\nada -70\n' | go run ./examples/accounts
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	if err := run(ctx, os.Stdin, os.Stdout, "accounts.db", func(movement) error { return nil }); err != nil {
		log.Fatal(err)
	}
}

// run books what is read, until ctx ends. What it could not book then is booked by the next
// run. allow may say that a movement cannot be booked yet.
func run(ctx context.Context, in io.Reader, out io.Writer, file string, allow func(movement) error) (err error) {
	db, err := embedded.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS accounts (customer TEXT PRIMARY KEY, balance INTEGER NOT NULL)"); err != nil {
		return err
	}
	config := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}, Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, "movements", config); err != nil {
		return err
	}
	movements, err := chanq.Open[movement](ctx, db, "movements", config)
	if err != nil {
		return err
	}
	if err := send(ctx, movements, in); err != nil {
		return err
	}
	consumer, err := movements.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	b := &bank{db, out, allow}
	return consumer.Handle(8, b.book) // until ctx ends, and then what is in hand for 20 s
}

// send stores each line, a customer and an amount, with the customer as its key.
func send(ctx context.Context, movements *chanq.Queue[movement], in io.Reader) error {
	producer, err := movements.Producer(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var m movement
		if _, e := fmt.Sscan(lines.Text(), &m.Customer, &m.Amount); e != nil {
			err = fmt.Errorf("%q is not a customer and an amount: %w", lines.Text(), e)
			break
		}
		producer.C() <- chanq.Message[movement]{Key: m.Customer, Body: m}
	}
	return errors.Join(err, producer.Close(ctx)) // all are stored
}
