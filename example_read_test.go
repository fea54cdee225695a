package chanq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

// The result of the handler determines what happens to the message.
func ExampleConsumer_Handle() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	pages := openQueue[string](ctx, db, "pages")
	producer, err := pages.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	for _, url := range []string{"/fine", "/busy", "/gone"} {
		producer.C() <- chanq.Msg(url)
	}
	check(producer.Close(ctx))

	consumer, err := pages.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	fetch := func(ctx context.Context, lease *chanq.Lease[string]) error {
		fmt.Println("fetch", lease.Body, "attempt", lease.Attempt)
		switch {
		case lease.Body == "/gone":
			return chanq.DeadLetter(errors.New("404")) // a dead letter: trying again is of no use
		case lease.Body == "/busy" && lease.Attempt == 1:
			return chanq.RetryAfter(10*time.Millisecond, errors.New("503")) // as the server asked
		case lease.Body == "/busy":
			consumer.Stop()
		}
		return nil // acked; any other error: ConsumerConfig.Backoff says when again
	}
	check(consumer.Handle(1, fetch)) // 1 worker, for the order of the output
	admin, err := chanqadmin.Open(ctx, db, "pages", chanq.Config{})
	check(err)
	stats, err := admin.Stats(ctx)
	check(err)
	fmt.Println("dead:", stats.Dead)
	// Output:
	// fetch /fine attempt 1
	// fetch /busy attempt 1
	// fetch /gone attempt 1
	// fetch /busy attempt 2
	// dead: 1
}

// In a loop over a channel, Settle does what Handle does with the error of a handler. A service loops until its context ends, for
// example by a signal, and then gives the rest 20 seconds.
func ExampleDelivery_Settle() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	pages := openQueue[string](ctx, db, "pages")
	_, err := pages.Send(ctx, chanq.Msg("/fine"), chanq.Msg("/gone"))
	check(err)
	fetch := func(_ context.Context, lease *chanq.Lease[string]) error {
		if lease.Body == "/gone" {
			return chanq.DeadLetter(errors.New("404"))
		}
		return nil
	}
	consumer, err := pages.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	for lease := range consumer.C() { // until ctx ends, or here the queue is empty
		if err := lease.Settle(fetch(lease.Context(), lease)); err != nil {
			slog.Warn("not settled: it is redelivered", "id", lease.ID, "err", err)
		}
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second) // ctx may have ended
	defer cancel()
	check(consumer.Shutdown(drain)) // nil: all settles are in the database
	stats := consumer.Stats()
	fmt.Println(stats.Acked, "acked,", stats.Dead, "dead")
	// Output: 1 acked, 1 dead
}

// Nack fails an attempt. ConsumerConfig.Backoff determines when the next attempt is due, unless the
// cause does.
func ExampleDelivery_Nack() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	pages := openQueue[string](ctx, db, "pages")
	_, err := pages.Send(ctx, chanq.Msg("/busy"))
	check(err)
	consumer, err := pages.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	lease := <-consumer.C()
	check(lease.Nack(chanq.RetryAfter(10*time.Millisecond, errors.New("503"))))
	lease = <-consumer.C()
	fmt.Println("attempt", lease.Attempt)
	check(lease.Ack())
	check(consumer.Shutdown(ctx))
	// Output: attempt 2
}

// A back-off that depends on the error: a busy page is due soon, and any other error waits longer
// each time.
func ExampleConsumerConfig_backoff() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	pages := openQueue[string](ctx, db, "pages")
	_, err := pages.Send(ctx, chanq.Msg("/busy"))
	check(err)
	errBusy, later := errors.New("503"), chanq.ExponentialBackoff(time.Minute, 24*time.Hour)
	consumer, err := pages.Consume(ctx, chanq.ConsumerConfig{Backoff: func(d *chanq.Delivery, err error) time.Duration {
		if errors.Is(err, errBusy) {
			return 10 * time.Millisecond
		}
		return later(d, err)
	}})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[string]) error {
		if lease.Attempt < 3 {
			return errBusy
		}
		fmt.Println("attempt", lease.Attempt)
		consumer.Stop()
		return nil
	}))
	// Output: attempt 3
}

// A stage of a pipeline: each order is replaced by its invoices, in one
// transaction.
func ExamplePipe() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	invoices := openQueue[string](ctx, db, "invoices") // on the same *sql.DB
	_, err = orders.Send(ctx, chanq.Msg(Order{1}), chanq.Msg(Order{2}))
	check(err)

	from, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	check(chanq.Pipe(from, invoices, 1, func(ctx context.Context, lease *chanq.Lease[Order]) ([]chanq.Message[string], error) {
		n := lease.Body.Number
		if n == 2 {
			from.Stop() // Pipe returns when what is in hand is stored
		}
		return []chanq.Message[string]{{Body: fmt.Sprint("invoice ", n)}, {Body: fmt.Sprint("copy of invoice ", n)}}, nil
	}))

	last, err := invoices.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	for lease := range last.C() {
		fmt.Println(lease.Body)
		check(lease.Ack())
	}
	check(last.Shutdown(ctx))
	// Output:
	// invoice 1
	// copy of invoice 1
	// invoice 2
	// copy of invoice 2
}

// A job that cron starts. It handles the due messages and ends.
func ExampleConsumerConfig_stopWhenIdle() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	reminders := openQueue[string](ctx, db, "reminders")
	_, err = reminders.Send(ctx,
		chanq.Msg("water the plants"),
		chanq.Msg("feed the cat"),
		chanq.Message[string]{Body: "next year", Delay: 365 * 24 * time.Hour},
	)
	check(err)

	consumer, err := reminders.Consume(ctx, chanq.ConsumerConfig{Prefetch: 1, StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[string]) error {
		fmt.Println(lease.Body)
		return nil
	}))
	// Output:
	// water the plants
	// feed the cat
}
