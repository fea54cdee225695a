package chanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

// openQueue creates and opens a queue.
func openQueue[T any](ctx context.Context, db *sql.DB, name string) *chanq.Queue[T] {
	check(chanq.Migrate(ctx, db, name, chanq.Config{}))
	q, err := chanq.Open[T](ctx, db, name, chanq.Config{})
	check(err)
	return q
}

// A message is sent in one transaction with the rows that caused it. Either both are committed or neither.
func ExampleQueue_SendTx() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE customers (name TEXT PRIMARY KEY)")
	check(err)
	mails := openQueue[string](ctx, db, "mails") // chanq.Migrate and chanq.Open

	register := func(name string) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := mails.SendTx(ctx, tx, chanq.Msg("Welcome, "+name)); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO customers (name) VALUES (?)", name)
			return err // nil: commit; otherwise no mail is sent
		})
	}
	for _, name := range []string{"Ada", "Grace", "Ada"} {
		fmt.Println(name, "registered:", register(name) == nil)
	}
	admin, err := chanqadmin.Open(ctx, db, "mails", chanq.Config{})
	check(err)
	stats, err := admin.Stats(ctx)
	check(err)
	fmt.Println(stats.Ready, "mails")
	// Output:
	// Ada registered: true
	// Grace registered: true
	// Ada registered: false
	// 2 mails
}

// InTx commits if the function returns nil. Otherwise it rolls back, and returns the error of the function.
func ExampleInTx() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	mails := openQueue[string](ctx, db, "mails")
	for _, err := range []error{errors.New("the address is wrong"), nil} {
		fmt.Println(chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			_, failed := mails.SendTx(ctx, tx, chanq.Msg("Welcome"))
			check(failed)
			return err
		}))
		empty, failed := mails.Empty(ctx)
		check(failed)
		fmt.Println("empty:", empty)
	}
	// Output:
	// the address is wrong
	// empty: true
	// <nil>
	// empty: false
}

// A message is acked in one transaction with the rows that it causes. Their effect happens exactly once,
// whichever process is killed.
func ExampleLease_AckTx() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER); INSERT INTO accounts "+
		"VALUES ('ada', 0)")
	check(err)
	type payment struct {
		Account string
		Cents   int
	}
	payments := openQueue[payment](ctx, db, "payments")
	_, err = payments.Send(ctx, chanq.Msg(payment{"ada", 100}), chanq.Msg(payment{"nobody", 5}),
		chanq.Msg(payment{"ada", 20}))
	check(err)

	consumer, err := payments.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	book := func(ctx context.Context, lease *chanq.Lease[payment]) error {
		if lease.Body.Cents == 20 { // the last one of this example
			consumer.Stop()
		}
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			row := tx.QueryRowContext(ctx, "UPDATE accounts SET cents = cents + ? WHERE name = ? RETURNING cents",
				lease.Body.Cents, lease.Body.Account)
			var cents int
			if err := row.Scan(&cents); errors.Is(err, sql.ErrNoRows) {
				return chanq.DeadLetter(fmt.Errorf("no account %q", lease.Body.Account))
			} else if err != nil {
				return err // rolled back, nacked, and tried again after a pause
			}
			return lease.AckTx(ctx, tx) // chanq.ErrLeaseLost: another consumer books it
		})
	}
	check(consumer.Handle(1, book))

	var cents int
	check(db.QueryRowContext(ctx, "SELECT cents FROM accounts").Scan(&cents))
	fmt.Println("ada has", cents)
	admin, err := chanqadmin.Open(ctx, db, "payments", chanq.Config{})
	check(err)
	dead, err := admin.List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{})
	check(err)
	fmt.Println(len(dead.Entries), "dead:", dead.Entries[0].LastError)
	// Output:
	// ada has 120
	// 1 dead: no account "nobody"
}

// Many messages and the row that they cause, in one transaction and with one
// statement for all acks.
func ExampleAckTx() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE totals (sum INTEGER)")
	check(err)
	numbers := openQueue[int](ctx, db, "numbers")
	producer, err := numbers.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	for n := range 100 {
		producer.C() <- chanq.Msg(n)
	}
	check(producer.Close(ctx))

	consumer, err := numbers.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	total := func(batch []*chanq.Lease[int]) error {
		sum := 0
		for _, lease := range batch {
			sum += lease.Body
		}
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO totals (sum) VALUES (?)", sum); err != nil {
				return err
			}
			return chanq.AckTx(ctx, tx, batch...) // a *chanq.BatchError says which lease was lost
		})
	}
	for seen := 0; seen < 100; {
		batch, err := consumer.Receive(ctx, 1000, 10*time.Millisecond)
		check(err)
		if err := total(batch); err != nil {
			for _, lease := range batch {
				// The outcome does not matter: the message is redelivered
				_ = lease.Nack(chanq.RetryAfter(time.Second, err))
			}
			continue
		}
		seen += len(batch)
	}
	check(consumer.Shutdown(ctx))
	var sum int
	check(db.QueryRowContext(ctx, "SELECT SUM(sum) FROM totals").Scan(&sum))
	fmt.Println(sum)
	// Output: 4950
}
