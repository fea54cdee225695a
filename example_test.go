package chanq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

type Order struct{ Number int }

// A producer and a consumer are Go channels, with a table between them.
func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:") // or sql.Open("sqlserver", …)
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	check(err)

	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	for n := range 3 {
		producer.C() <- chanq.Msg(Order{Number: n})
	}
	check(producer.Close(ctx)) // nil: all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	for lease := range consumer.C() { // until the queue is empty
		fmt.Println("order", lease.Body.Number)
		check(lease.Ack()) // joins the next batch
	}
	check(consumer.Shutdown(ctx)) // nil: all acks are stored
	// Output:
	// order 0
	// order 1
	// order 2
}

// The same with a pool of workers.
func Example_handler() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	cfg := chanq.Config{Hooks: chanq.LogHooks(slog.Default(), slog.LevelWarn)} // failures are logged
	check(chanq.Migrate(ctx, db, "orders", cfg))
	orders, err := chanq.Open[Order](ctx, db, "orders", cfg)
	check(err)

	_, err = orders.Send(ctx, chanq.Msg(Order{Number: 0}), chanq.Msg(Order{Number: 1}), chanq.Msg(Order{Number: 2}))
	check(err) // nil: all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true}) // until nothing is due
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[Order]) error {
		fmt.Println("order", lease.Body.Number)
		return nil // acked; after an error the message is delivered again
	})) // returns when all acks are stored
	// Output:
	// order 0
	// order 1
	// order 2
}

// A deployment calls Migrate before its programs start. Spec has the settings that all programs share.
func ExampleMigrate() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{Spec: chanq.Spec{MaxAttempts: 5, Retain: 24 * time.Hour}}))
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{}) // adopts what is stored
	check(err)
	fmt.Println(orders.Spec().MaxAttempts, "attempts")
	// Output: 5 attempts
}

// Open changes nothing. It refuses a queue that does not match the program's Config.
func ExampleOpen() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	_, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	fmt.Println(errors.Is(err, chanq.ErrNoSchema))
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	_, err = chanq.Open[Order](ctx, db, "orders", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	fmt.Println(errors.Is(err, chanq.ErrSpec))
	// Output:
	// true
	// true
}

// Send stores all of its messages or none. A message with a DedupKey that is in the queue is not stored again.
func ExampleQueue_Send() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	for range 2 {
		receipts, err := orders.Send(ctx,
			chanq.Message[Order]{Body: Order{1}, DedupKey: "order 1"},
			chanq.Message[Order]{Body: Order{2}, Delay: time.Minute, Type: "reminder"},
		)
		check(err)
		fmt.Println(receipts[0].Duplicate, receipts[1].Duplicate)
	}
	// Output:
	// false false
	// true false
}

// A reader of the channel settles each lease, and shuts the consumer down when it has enough.
func ExampleQueue_Consume() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	_, err := orders.Send(ctx, chanq.Msg(Order{Number: 1}), chanq.Msg(Order{Number: 2}))
	check(err)
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{Prefetch: 10})
	check(err)
	lease := <-consumer.C()
	fmt.Println("order", lease.Body.Number)
	check(lease.Ack())
	check(consumer.Shutdown(ctx)) // the ack is stored, and order 2 is released
	// Output: order 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
