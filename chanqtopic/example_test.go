package chanqtopic_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtopic"
	"github.com/chanq/chanq/embedded"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type Order struct {
	Number  int
	Country string
}

func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "mails", chanq.Config{}))
	check(chanq.Migrate(ctx, db, "customs", chanq.Config{}))
	check(chanqtopic.Migrate(ctx, db, chanq.Config{}))

	// in the programs that consume
	check(chanqtopic.Subscribe(ctx, db, chanqtopic.Subscription{Topic: "orders", Queue: "mails"}, chanq.Config{}))
	check(chanqtopic.Subscribe(ctx, db, chanqtopic.Subscription{Topic: "orders", Queue: "customs",
		Filter: chanqtopic.Filter{Equal: map[string]string{"country": "CH"}}}, chanq.Config{}))

	// in the program that publishes
	orders, err := chanqtopic.Open[Order](ctx, db, "orders", chanq.Config{})
	check(err)
	for _, order := range []Order{{1, "DE"}, {2, "CH"}} {
		check(chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			return orders.Publish(ctx, tx, chanq.Message[Order]{Body: order, Headers: map[string]string{"country": order.Country}})
		}))
	}

	for _, name := range []string{"mails", "customs"} {
		queue, err := chanq.Open[Order](ctx, db, name, chanq.Config{})
		check(err)
		consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
		check(err)
		for lease := range consumer.C() {
			fmt.Println(name, lease.Body.Number)
			check(lease.Ack())
		}
		check(consumer.Shutdown(ctx))
	}
	// Output:
	// mails 1
	// mails 2
	// customs 2
}
