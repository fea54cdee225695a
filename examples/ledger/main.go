// Command ledger books the movements of customers: eight workers at once, and each customer's movements one after the other,
// in the order in which they came. Therefore a withdrawal that is not covered can be refused permanently: every movement before it is
// booked, or dead.
//
//	printf 'ada 100\nbob 50\nada -70\nada -70\n' | go run ./examples/ledger
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("ledger.db")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := run(ctx, db, os.Stdin, os.Stdout); err != nil {
		log.Print(err)
	}
}

// movement is a message: the amount is to be added to the balance of a customer.
type movement struct {
	Customer string
	Amount   int
}

// run books what is read, and what an earlier run has left, until ctx ends or all is booked.
func run(ctx context.Context, db *sql.DB, in io.Reader, out io.Writer) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL, balance INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS ledger_customer ON ledger (customer, id)`)
	if err != nil {
		return err
	}
	ordered := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}
	if err := chanq.Migrate(ctx, db, "movements", ordered); err != nil {
		return err
	}
	movements, err := chanq.Open[movement](ctx, db, "movements", ordered)
	if err != nil {
		return err
	}
	if err := send(ctx, movements, in); err != nil {
		return err
	}
	consumer, err := movements.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	if err != nil {
		return err
	}
	return consumer.Handle(8, func(ctx context.Context, lease *chanq.Lease[movement]) error {
		m, balance := lease.Body, 0
		err := chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			const book = `INSERT INTO ledger (customer, amount, balance)
SELECT ?1, ?2, ?2 + COALESCE((SELECT balance FROM ledger WHERE customer = ?1 ORDER BY id DESC LIMIT 1), 0) RETURNING balance`
			if err := tx.QueryRowContext(ctx, book, m.Customer, m.Amount).Scan(&balance); err != nil {
				return err // the customer's other movements wait until this one is tried again
			}
			if balance < 0 {
				return chanq.DeadLetter(fmt.Errorf("%s has only %d", m.Customer, balance-m.Amount))
			}
			return lease.AckTx(ctx, tx)
		})
		if err == nil {
			fmt.Fprintf(out, "%s %+d = %d\n", m.Customer, m.Amount, balance)
		}
		return err
	})
}

// send sends each line, a customer and an amount, with the customer as its key.
func send(ctx context.Context, movements *chanq.Queue[movement], in io.Reader) error {
	producer, err := movements.Producer(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var m movement
		if _, err = fmt.Sscan(lines.Text(), &m.Customer, &m.Amount); err != nil {
			err = fmt.Errorf("%q is not a customer and an amount: %w", lines.Text(), err)
			break
		}
		producer.C() <- chanq.Message[movement]{Key: m.Customer, Body: m}
	}
	return errors.Join(err, lines.Err(), producer.Close(ctx)) // all that was read is stored
}
