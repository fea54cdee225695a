package chanqadmin_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Dead messages are inspected, and then redriven or purged.
func ExampleQueue_Redrive() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	queue, err := chanq.Open[int](ctx, db, "orders", chanq.Config{})
	check(err)
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	_, err = producer.SendBatch(ctx, chanq.Msg(1), chanq.Msg(2), chanq.Msg(3))
	check(err)
	check(producer.Close(ctx))
	consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[int]) error {
		return chanq.DeadLetter(fmt.Errorf("no stock for %d", lease.Body))
	}))
	check(consumer.Shutdown(ctx))

	orders, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	check(err)
	dead, err := orders.List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{Bodies: true}) // the latest 100
	check(err)
	again, never := []chanq.ID{}, []chanq.ID{} // an empty list selects nothing
	for _, entry := range dead.Entries {
		if strings.HasPrefix(entry.LastError, "no stock") && string(entry.Body) != "2" {
			again = append(again, entry.ID)
		} else {
			never = append(never, entry.ID)
		}
	}
	redriven, err := orders.Redrive(ctx, chanqadmin.Select{IDs: again}, chanqadmin.Change{}) // ready immediately, no attempt counted
	check(err)
	purged, err := orders.Purge(ctx, chanqadmin.Select{State: chanqadmin.StateDead, IDs: never}, chanqadmin.Change{})
	check(err)
	fmt.Println(redriven.Messages, "redriven,", purged.Messages, "purged")
	// Output: 2 redriven, 1 purged
}
