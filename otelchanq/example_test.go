package otelchanq_test

import (
	"context"
	"log"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/otelchanq"
)

type Order struct{ Number int }

// Metrics come from the hooks. Traces follow each message from its send to its handler.
func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()

	telemetry, err := otelchanq.New(otelchanq.Config{}) // OpenTelemetry's global providers
	check(err)
	config := chanq.Config{Hooks: telemetry.Hooks()}
	check(chanq.Migrate(ctx, db, "orders", config))
	orders, err := chanq.Open[Order](ctx, db, "orders", config)
	check(err)
	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	check(err)
	watch, err := telemetry.Watch(admin.Label(), admin.Stats) // depth and age, in one process of many
	check(err)
	defer watch.Unregister()

	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	producer.C() <- chanq.Message[Order]{Body: Order{1}, Headers: telemetry.Headers(ctx, nil)}
	check(producer.Close(ctx))

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{Middleware: []chanq.Middleware{telemetry.Middleware}})
	check(err)
	ship := func(ctx context.Context, lease *chanq.Lease[Order]) error { consumer.Stop(); return nil }
	check(consumer.Handle(8, ship))
	check(consumer.Shutdown(ctx))
	// Output:
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
