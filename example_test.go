package chanq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

type Order struct{ Number int }

func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:") // or sql.Open("sqlserver", …)
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	check(err)

	_, err = orders.Send(ctx, chanq.Msg(Order{Number: 0}), chanq.Msg(Order{Number: 1}), chanq.Msg(Order{Number: 2}))
	check(err) // nil: all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[Order]) error {
		fmt.Println("order", lease.Body.Number)
		if lease.Body.Number == 2 {
			consumer.Stop()
		}
		return nil // acked; after an error the message is delivered again
	})) // returns when all acks are stored
	// Output:
	// order 0
	// order 1
	// order 2
}

// The same by channels.
func Example_channels() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders") // chanq.Migrate and chanq.Open

	producer, err := orders.Producer(chanq.ProducerConfig{})
	check(err)
	for n := range 3 {
		producer.C() <- chanq.Msg(Order{Number: n})
	}
	check(producer.Close(ctx)) // all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	for lease := range consumer.C() {
		fmt.Println("order", lease.Body.Number)
		check(lease.Ack()) // joins the next group
		if lease.Body.Number == 2 {
			consumer.Stop()
		}
	}
	check(consumer.Shutdown(ctx)) // all acks are stored
	// Output:
	// order 0
	// order 1
	// order 2
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
