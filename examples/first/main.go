package main

import (
	"context"
	"fmt"
	"log"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx := context.Background()
	db, err := embedded.Open("shop.db") // a file; on a server: sql.Open("sqlserver", …)
	check(err)
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{})) // creates the tables if they are missing
	orders, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	check(err)

	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	producer.C() <- chanq.Msg("tea")
	producer.C() <- chanq.Msg("cake")
	check(producer.Close(ctx)) // nil: both orders are in the file

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true}) // a service would not stop
	check(err)
	for lease := range consumer.C() { // until nothing is due
		fmt.Println("order:", lease.Body)
		check(lease.Ack()) // done: the message leaves the queue; lease.Nack(err): again later
	}
	check(consumer.Shutdown(ctx)) // nil: all acks are in the file
	check(db.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
