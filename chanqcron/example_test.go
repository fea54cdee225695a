package chanqcron_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/embedded"
)

// Report is a job that a schedule sends.
type Report struct{ Of string }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "reports", chanq.Config{}))
	reports, err := chanq.Open[Report](ctx, db, "reports", chanq.Config{})
	check(err)

	check(chanqcron.Migrate(ctx, db, chanq.Config{}))
	cron := chanqcron.New(db, reports)
	check(cron.Ensure(ctx, // in each process, when it starts
		chanqcron.Schedule[Report]{Name: "nightly", Line: "30 2 * * mon-fri", Zone: "Europe/Berlin", Message: chanq.Msg(Report{Of: "sales"})},
		chanqcron.Schedule[Report]{Name: "often", Line: "every 1s", Message: chanq.Msg(Report{Of: "stock"})},
	))
	ended := make(chan error)
	go func() { ended <- cron.Run(ctx) }() // until ctx is cancelled

	consumer, err := reports.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	for lease := range consumer.C() {
		tick, _ := chanqcron.Tick(&lease.Delivery) // the time for which this job was sent
		fmt.Println(lease.Body.Of, time.Since(tick) < time.Minute)
		check(lease.Ack())
		break
	}
	check(consumer.Shutdown(context.Background()))
	cancel()
	check(<-ended)
	// Output: stock true
}

func ExampleCron_Ensure() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "reports", chanq.Config{}))
	check(chanqcron.Migrate(ctx, db, chanq.Config{}))
	reports, err := chanq.Open[Report](ctx, db, "reports", chanq.Config{})
	check(err)
	err = chanqcron.New(db, reports).Ensure(ctx, chanqcron.Schedule[Report]{Name: "nightly", Line: "30 2 * * foo"})
	fmt.Println(err)
	// Output: chanq: ensure schedule "nightly": line "30 2 * * foo": column 10: day of week: "foo": must be 0 to 7
}

func ExampleSchedules() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "reports", chanq.Config{}))
	check(chanqcron.Migrate(ctx, db, chanq.Config{}))
	reports, err := chanq.Open[Report](ctx, db, "reports", chanq.Config{})
	check(err)
	check(chanqcron.New(db, reports).Ensure(ctx, chanqcron.Schedule[Report]{Name: "nightly", Line: "30 2 * * *"}))

	schedules, err := chanqcron.Open(ctx, db, chanq.Config{})
	check(err)
	check(schedules.Pause(ctx, "nightly", "ann", "the printer is broken"))
	list, err := schedules.List(ctx)
	check(err)
	for _, s := range list {
		fmt.Println(s.Name, s.Queue, s.Line, s.Pause.Reason)
	}
	check(schedules.Remove(ctx, "nightly"))
	fmt.Println(errors.Is(schedules.Remove(ctx, "nightly"), chanqcron.ErrNoSchedule))
	// Output:
	// nightly reports 30 2 * * * the printer is broken
	// true
}
