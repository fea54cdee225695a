package chanqjobs_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/embedded"
)

// Order is a message whose death must be answered by a Refund.
type (
	Order  struct{ Cents int }
	Refund struct {
		Order  chanq.ID
		Reason string
	}
)

func ExampleDeaths() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	check(chanq.Migrate(ctx, db, "refunds", chanq.Config{}))
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	check(err)
	refunds, err := chanq.Open[Refund](ctx, db, "refunds", chanq.Config{})
	check(err)
	_, err = orders.Send(ctx, chanq.Msg(Order{Cents: 500}))
	check(err)
	handle := func(context.Context, *chanq.Lease[Order]) error { return chanq.DeadLetter(fmt.Errorf("no stock")) }
	refund := func(_ context.Context, l *chanq.Lease[Refund]) error {
		fmt.Println("refund:", l.Body.Reason)
		cancel()
		return nil
	}

	deaths := chanqjobs.NewDeaths(orders, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
		_, err := refunds.SendTx(ctx, tx, chanq.Msg(Refund{Order: dead.ID, Reason: dead.LastError}))
		return err
	})
	check(chanqjobs.Run(ctx, deaths.Run,
		chanqjobs.Work(orders, 4, handle, chanq.ConsumerConfig{}),
		chanqjobs.Work(refunds, 1, refund, chanq.ConsumerConfig{}),
	))
	// Output: refund: no stock
}
