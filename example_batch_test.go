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

// numbers returns a database whose queue "numbers" has the messages 1 to 3, and a consumer that ends when nothing is due.
func numbers(ctx context.Context) (*sql.DB, *chanq.Consumer[int], func()) {
	db, err := embedded.Open(":memory:")
	check(err)
	queue := openQueue[int](ctx, db, "numbers")
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	_, err = producer.SendBatch(ctx, chanq.Msg(1), chanq.Msg(2), chanq.Msg(3))
	check(err)
	check(producer.Close(ctx))
	later := chanq.ExponentialBackoff(time.Hour, time.Hour) // so that a failed message is not due again on a slow machine
	consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true, Backoff: later})
	check(err)
	return db, consumer, func() { check(db.Close()) }
}

// A loop that processes the available messages, at most a hundred at once.
func ExampleConsumer_Receive() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	for sum := 0; sum < 6; {
		leases, err := consumer.Receive(ctx, 100, 0) // waits for the first
		check(err)
		for _, lease := range leases {
			sum += lease.Body
		}
		check(chanq.Ack(ctx, leases...)) // nil: all of it is in the database
		if sum == 6 {
			fmt.Println(sum)
		}
	}
	check(consumer.Shutdown(ctx))
	// Output: 6
}

// Rows are written in batches, in one transaction with the acks of their messages. A message whose row is rejected fails alone.
func ExampleConsumer_HandleBatches() {
	ctx := context.Background()
	db, consumer, done := numbers(ctx)
	defer done()
	_, err := db.ExecContext(ctx, "CREATE TABLE odd (number INTEGER CHECK (number % 2 = 1))")
	check(err)
	check(consumer.HandleBatches(2, 500, 10*time.Millisecond, func(ctx context.Context, batch []*chanq.Lease[int]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			for _, lease := range batch {
				if _, err := tx.ExecContext(ctx, "INSERT INTO odd VALUES (?)", lease.Body); err != nil {
					return err
				}
			}
			return chanq.AckTx(ctx, tx, batch...)
		})
	}))
	admin, err := chanqadmin.Open(ctx, db, "numbers", chanq.Config{})
	check(err)
	stats, err := admin.Stats(ctx)
	check(err)
	fmt.Println(stats.Scheduled, "to be tried again")
	// Output: 1 to be tried again
}

// Ack acks many messages and waits for all outcomes, bounded by a context.
func ExampleAck() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	var leases []*chanq.Lease[int]
	for range 3 {
		leases = append(leases, <-consumer.C())
	}
	check(chanq.Ack(ctx, leases...))
	check(consumer.Shutdown(ctx))
	fmt.Println(len(leases), "done")
	// Output: 3 done
}

// A service that answers "too many requests" must not dead-letter a healthy message. Outcome returns what Consumer.Handle does
// with a handler's error, for tests.
func ExampleSnooze() {
	errBusy := errors.New("429")
	handler := func(context.Context, *chanq.Lease[int]) error {
		return chanq.Snooze(time.Minute, errBusy)
	}
	outcome := chanq.Outcome(handler(context.Background(), &chanq.Lease[int]{}))
	fmt.Println(outcome.Kind == chanq.OutcomeSnooze, outcome.Delay, outcome.Reason)
	// Output: true 1m0s 429
}
