package gocloudchanq_test

import (
	"context"
	"fmt"

	"gocloud.dev/pubsub"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/gocloudchanq"
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
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	orders, err := chanq.Open[[]byte](ctx, db, "orders", chanq.Config{})
	check(err)

	topic := gocloudchanq.OpenTopic(orders, nil)
	check(topic.Send(ctx, &pubsub.Message{Body: []byte("tea")}))
	subscription, err := gocloudchanq.OpenSubscription(ctx, orders, chanq.ConsumerConfig{}, nil)
	check(err)
	m, err := subscription.Receive(ctx)
	check(err)
	fmt.Println(string(m.Body))
	m.Ack()
	check(subscription.Shutdown(ctx)) // stores the ack
	check(topic.Shutdown(ctx))
	// Output: tea
}
