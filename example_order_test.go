package chanq_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

// Change is an event in the life of a customer.
type Change struct{ Text string }

// memory returns a new database in memory.
func memory() *sql.DB {
	db, err := embedded.Open(":memory:")
	check(err)
	return db
}

// Messages with the same key are delivered one after another, in the order in which they were sent.
func ExampleConfig_ordered() {
	ctx := context.Background()
	db := memory()
	defer db.Close()

	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}
	err := chanq.Migrate(ctx, db, "orders", cfg) // or: chanq migrate --ordered orders
	check(err)
	q, err := chanq.Open[Change](ctx, db, "orders", cfg)
	check(err)

	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	customer := "ada"
	for _, change := range []Change{{"came"}, {"bought"}, {"left"}} {
		p.Send(ctx, chanq.Message[Change]{Key: customer, Body: change})
	}
	check(p.Close(ctx))

	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	check(c.Handle(8, func(_ context.Context, lease *chanq.Lease[Change]) error {
		fmt.Println(lease.Key, lease.Body.Text)
		if lease.Body.Text == "left" {
			c.Stop()
		}
		return nil
	}))
	// Output:
	// ada came
	// ada bought
	// ada left
}
