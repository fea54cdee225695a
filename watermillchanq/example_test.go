package watermillchanq_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/watermillchanq"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	cfg := watermillchanq.Config{Migrate: true} // creates the queue of a topic at its first use
	publisher, err := watermillchanq.NewPublisher(db, cfg)
	check(err)
	subscriber, err := watermillchanq.NewSubscriber(db, cfg)
	check(err)
	messages, err := subscriber.Subscribe(ctx, "orders")
	check(err)
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("tea"))))
	for m := range messages {
		fmt.Println(string(m.Payload))
		m.Ack()
		break
	}
	check(subscriber.Close())
	// Output: tea
}
