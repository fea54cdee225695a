// Command ledger books the movements of customers with eight workers, and each customer's movements one after the other, in the order
// in which they were sent. A withdrawal that is not covered is recorded as refused. A movement that cannot be booked blocks the later
// ones of its customer: they wait while it is retried, and while it is dead, until an operator has redriven or purged it.
//
//	go run ./examples/ledger ada=100 bob=50 ada=-70 ada=-70
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
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
	if err := errors.Join(run(ctx, db, os.Args[1:]), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// run sends the movements, and books the messages of the queue, until ctx is cancelled or nothing is due.
func run(ctx context.Context, db *sql.DB, args []string) error {
	config := chanq.Config{
		Spec:  chanq.Spec{Kind: chanq.KindOrdered, DeadKey: chanq.DeadKeyHolds},
		Hooks: chanq.LogHooks(nil, slog.LevelWarn),
	}
	if err := chanq.Migrate(ctx, db, "movements", config); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS ledger (
  id INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL, refused BOOLEAN NOT NULL, balance INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS ledger_customer ON ledger (customer, id)`)
	if err != nil {
		return err
	}
	movements, err := chanq.Open[int](ctx, db, "movements", config)
	if err != nil {
		return err
	}
	var ms []chanq.Message[int]
	for _, arg := range args {
		customer, text, _ := strings.Cut(arg, "=")
		amount, err := strconv.Atoi(text)
		if customer == "" || err != nil {
			return fmt.Errorf("%q is not customer=amount", arg)
		}
		ms = append(ms, chanq.Message[int]{Key: customer, Body: amount})
	}
	if _, err := movements.Send(ctx, ms...); err != nil { // all of them, or none
		return err
	}
	consumer, err := movements.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	if err != nil {
		return err
	}
	return consumer.Handle(8, func(ctx context.Context, lease *chanq.Lease[int]) error {
		var balance int
		var refused bool
		err := chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error { // no other movement of the customer is booked at the same time
			const last = "SELECT COALESCE((SELECT balance FROM ledger WHERE customer = ? ORDER BY id DESC LIMIT 1), 0)"
			if err := tx.QueryRowContext(ctx, last, lease.Key).Scan(&balance); err != nil {
				return err
			}
			if refused = balance+lease.Body < 0; !refused {
				balance += lease.Body
			}
			const row = "INSERT INTO ledger (customer, amount, refused, balance) VALUES (?, ?, ?, ?)"
			if _, err := tx.ExecContext(ctx, row, lease.Key, lease.Body, refused, balance); err != nil {
				return err
			}
			return lease.AckTx(ctx, tx)
		})
		if err == nil {
			fmt.Printf("%s %+d: balance %d, refused %t\n", lease.Key, lease.Body, balance, refused)
		}
		return err
	})
}
