package chanq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// A producer takes messages from all goroutines of a program, and stores many with one statement.
func ExampleQueue_Producer() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	producer, err := orders.Producer(ctx, chanq.ProducerConfig{BufferBytes: 4 << 20})
	check(err)
	for n := range 1000 {
		producer.C() <- chanq.Msg(Order{Number: n})
	}
	check(producer.Flush(ctx)) // nil: all thousand are in the database
	empty, err := orders.Empty(ctx)
	check(err)
	fmt.Println("empty:", empty)
	check(producer.Close(ctx))
	// Output: empty: false
}

// In an outage the buffer fills, and a send on the channel blocks. Select on your context as well.
func ExampleProducer_C() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	select {
	case producer.C() <- chanq.Msg(Order{Number: 1}):
		fmt.Println("handed over") // Close returns it if it cannot be stored
	case <-ctx.Done():
		fmt.Println("not sent")
	}
	check(producer.Close(context.WithoutCancel(ctx)))
	// Output: handed over
}

// Close returns the messages of the channel that could not be stored.
func ExampleProducer_Close() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	notes := openQueue[string](ctx, db, "notes")
	producer, err := notes.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	producer.C() <- chanq.Msg("buy tea")
	producer.C() <- chanq.Msg(string(make([]byte, 2<<20))) // above Spec.MaxBody
	err = producer.Close(ctx)
	var left *chanq.UnsentError[string]
	if errors.As(err, &left) {
		for _, unsent := range left.Unsent {
			fmt.Println("not stored:", len(unsent.Message.Body), "bytes,", errors.Is(unsent.Err, chanq.ErrTooLarge))
		}
	}
	// Output: not stored: 2097152 bytes, true
}

// A loop over the channel also waits for a timer, and stops the consumer in time.
func ExampleConsumer_C() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	timer := time.After(time.Minute)
	sum := 0
	for leases := consumer.C(); leases != nil; {
		select {
		case lease, open := <-leases:
			if !open { // stopped; here because the queue is empty
				leases = nil
				continue
			}
			sum += lease.Body
			check(lease.Ack())
		case <-timer:
			consumer.Stop() // closes the channel
		}
	}
	check(consumer.Shutdown(ctx))
	fmt.Println(sum)
	// Output: 6
}

// Ack does not wait for the database. Wait returns the outcome.
func ExampleDelivery_Ack() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	lease := <-consumer.C()
	check(lease.Ack()) // joins the next batch
	switch err := lease.Wait(ctx); {
	case err == nil:
		fmt.Println("acked")
	case errors.Is(err, chanq.ErrLeaseLost):
		fmt.Println("redelivered to another consumer")
	default:
		check(err)
	}
	check(consumer.Shutdown(ctx))
	// Output: acked
}

// Shutdown waits for readers that still have leases. When its context is cancelled, they are released.
func ExampleConsumer_Shutdown() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	go func() {
		for lease := range consumer.C() {
			check(lease.Ack())
		}
	}()
	drain, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	fmt.Println(consumer.Shutdown(drain)) // nil: every lease is settled, and every settle is stored
	// Output: <nil>
}

// A reminder that is due in an hour, is of no use after two, and is sent once for each order.
func ExampleMessage() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	reminders := openQueue[Order](ctx, db, "reminders")
	reminder := chanq.Message[Order]{
		Body:     Order{Number: 7},
		Type:     "payment",
		DedupKey: "payment of order 7",
		Delay:    time.Hour,
		TTL:      2 * time.Hour,
	}
	receipts, err := reminders.Send(ctx, reminder)
	check(err)
	again, err := reminders.Send(ctx, reminder)
	check(err)
	fmt.Println(again[0].Duplicate, again[0].ID == receipts[0].ID)
	// Output: true true
}

// A message that no attempt can handle goes to the dead-letter table, from where it can be redriven.
func ExampleDeadLetter() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	_, err := orders.Send(ctx, chanq.Msg(Order{Number: -1}))
	check(err)
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[Order]) error {
		if lease.Body.Number < 0 {
			return chanq.DeadLetter(fmt.Errorf("no order has the number %d", lease.Body.Number))
		}
		return nil
	}))
	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	check(err)
	dead, err := admin.List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{})
	check(err)
	fmt.Println(dead.Entries[0].Cause, "-", dead.Entries[0].LastError)
	// Output: rejected - no order has the number -1
}

// The database stores the Spec. A program that leaves its fields zero adopts it.
func ExampleSpec() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	spec := chanq.Spec{Kind: chanq.KindOrdered, MaxAttempts: 5, RetainDead: 30 * 24 * time.Hour}
	check(chanq.Migrate(ctx, db, "payments", chanq.Config{Spec: spec}))
	payments, err := chanq.Open[Order](ctx, db, "payments", chanq.Config{})
	check(err)
	fmt.Println(payments.Spec().Kind, payments.Spec().MaxAttempts)
	_, err = chanq.Open[Order](ctx, db, "payments", chanq.Config{Spec: chanq.Spec{MaxAttempts: 10}})
	fmt.Println(errors.Is(err, chanq.ErrSpec))
	// Output:
	// ordered 5
	// true
}
