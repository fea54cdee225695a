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

	producer, err := orders.Producer(chanq.ProducerConfig{})
	check(err)
	for n := range 3 {
		producer.C() <- chanq.Message[Order]{Body: Order{Number: n}}
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
