package chanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

// numbers is a database whose queue "numbers" has the messages 1 to 3, and a consumer of it.
func numbers(ctx context.Context) (*sql.DB, *chanq.Consumer[int], func()) {
	db, err := embedded.Open(":memory:")
	check(err)
	queue := openQueue[int](ctx, db, "numbers")
	producer, err := queue.Producer(chanq.ProducerConfig{})
	check(err)
	_, err = producer.SendBatch(ctx, chanq.Message[int]{Body: 1}, chanq.Message[int]{Body: 2}, chanq.Message[int]{Body: 3})
	check(err)
	check(producer.Close(ctx))
	consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	return db, consumer, func() { check(db.Close()) }
}

// A loop that works on what is there, at most a hundred at once.
func ExampleConsumer_Receive() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	for sum := 0; sum < 6; {
		leases, err := consumer.Receive(ctx, 100, 0) // waits for the first
		check(err)
		for _, lease := range leases {
			sum += lease.Body
		}
		check(chanq.AckAll(ctx, leases...)) // nil: all of it is in the database
		if sum == 6 {
			fmt.Println(sum)
		}
	}
	check(consumer.Shutdown(ctx))
	// Output: 6
}

// A job that cannot wait for what it has begun gives it back, uncounted.
func ExampleConsumer_ReleaseAll() {
	ctx := context.Background()
	db, consumer, done := numbers(ctx)
	defer done()
	lease := <-consumer.C()
	check(consumer.ReleaseAll(ctx))
	fmt.Println(errors.Is(lease.Ack(), chanq.ErrLeaseLost))
	check(consumer.Shutdown(ctx))
	admin, err := chanqadmin.Open(ctx, db, "numbers", chanq.Config{})
	check(err)
	stats, err := admin.Stats(ctx)
	check(err)
	fmt.Println(stats.Ready, "ready")
	// Output:
	// true
	// 3 ready
}

// AckAll acks many messages and waits for all outcomes, bounded by a context.
func ExampleAckAll() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	var leases []*chanq.Lease[int]
	for range 3 {
		leases = append(leases, <-consumer.C())
	}
	check(chanq.AckAll(ctx, leases...))
	check(consumer.Shutdown(ctx))
	fmt.Println(len(leases), "done")
	// Output: 3 done
}

// A service that answers "too many requests" must not make a healthy message dead. Outcome
// tells a test what Consumer.Handle does with a handler's error.
func ExampleSnooze() {
	errBusy := errors.New("429")
	handler := func(context.Context, *chanq.Lease[int]) error {
		return chanq.Snooze(time.Minute, errBusy)
	}
	outcome := chanq.Outcome(handler(context.Background(), &chanq.Lease[int]{}))
	fmt.Println(outcome.Kind == chanq.OutcomeSnooze, outcome.Delay, outcome.Reason)
	// Output: true 1m0s 429
}
