package chanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// In a loop over a channel, Settle does what Handle does with the error of a handler. When a signal cancels the context
// of Consume, Shutdown bounds how long the loop continues. So call Shutdown while the loop runs.
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
	stopped := make(chan error, 1)
	go func() {
		<-consumer.Done() // ctx is cancelled, or here nothing is due
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		stopped <- consumer.Shutdown(drain) // after 20 s it cancels lease.Context()
	}()
	for lease := range consumer.C() { // until the consumer stops
		if err := lease.Settle(fetch(lease.Context(), lease)); err != nil {
			slog.Warn("not settled: it is redelivered", "id", lease.ID, "err", err)
		}
	}
	check(<-stopped) // nil: all settles are in the database
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
	check(chanq.Pipe(from, invoices, 1, func(ctx context.Context,
		lease *chanq.Lease[Order]) ([]chanq.Message[string], error) {
		n := lease.Body.Number
		if n == 2 {
			from.Stop() // Pipe returns when what is in hand is stored
		}
		return []chanq.Message[string]{{Body: fmt.Sprint("invoice ", n)}, {Body: fmt.Sprint("copy of invoice ", n)}},
			nil
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

// A job that cron starts. It handles the due messages and stops.
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

// A loop over All skips leases that have expired in the buffer. Leaving it stops the consumer.
func ExampleConsumer_All() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	sum := 0
	for lease := range consumer.All() {
		sum += lease.Body
		check(lease.Ack())
		if lease.Body == 2 {
			break // stops the consumer: 3 stays in the queue
		}
	}
	check(consumer.Shutdown(ctx))
	fmt.Println(sum)
	// Output: 3
}

// Two consumers, for example of two queues, are merged into one channel, and one pool of workers handles both.
func ExampleHandle() {
	ctx := context.Background()
	_, first, doneFirst := numbers(ctx)
	defer doneFirst()
	_, second, doneSecond := numbers(ctx)
	defer doneSecond()

	leases := make(chan *chanq.Lease[int]) // unbuffered: a lease waits in its consumer
	var merge sync.WaitGroup
	for _, consumer := range []*chanq.Consumer[int]{first, second} {
		merge.Go(func() {
			for lease := range consumer.C() {
				leases <- lease
			}
		})
	}
	go func() {
		merge.Wait()
		close(leases)
	}()
	var sum atomic.Int64
	check(chanq.Handle(leases, 4, func(_ context.Context, lease *chanq.Lease[int]) error {
		sum.Add(int64(lease.Body))
		return nil // acked, by the consumer that the lease came from
	}))
	check(first.Shutdown(ctx))
	check(second.Shutdown(ctx))
	fmt.Println(sum.Load())
	// Output: 12
}

// numbers returns a database whose queue "numbers" has the messages 1 to 3, and a consumer that stops when nothing is
// due.
func numbers(ctx context.Context) (*sql.DB, *chanq.Consumer[int], func()) {
	db, err := embedded.Open(":memory:")
	check(err)
	queue := openQueue[int](ctx, db, "numbers")
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	_, err = producer.SendBatch(ctx, chanq.Msg(1), chanq.Msg(2), chanq.Msg(3))
	check(err)
	check(producer.Close(ctx))
	// So that a failed message is not due again on a slow machine
	later := chanq.ExponentialBackoff(time.Hour, time.Hour)
	consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true, Backoff: later})
	check(err)
	return db, consumer, func() { check(db.Close()) }
}

// A loop that processes the available messages, at most a hundred in a batch.
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
		check(chanq.Ack(ctx, leases...)) // nil: all of it is in the database
		if sum == 6 {
			fmt.Println(sum)
		}
	}
	check(consumer.Shutdown(ctx))
	// Output: 6
}

// Rows are written in batches, in one transaction with the acks of their messages. A message whose row is rejected
// fails alone.
func ExampleConsumer_HandleBatches() {
	ctx := context.Background()
	db, consumer, done := numbers(ctx)
	defer done()
	_, err := db.ExecContext(ctx, "CREATE TABLE odd (number INTEGER CHECK (number % 2 = 1))")
	check(err)
	check(consumer.HandleBatches(2, 500, 10*time.Millisecond,
		func(ctx context.Context, batch []*chanq.Lease[int]) error {
			return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				for _, lease := range batch {
					if _, err := tx.ExecContext(ctx, "INSERT INTO odd VALUES (?)", lease.Body); err != nil {
						return err
					}
				}
				return chanq.AckTx(ctx, tx, batch...)
			})
		}))
	admin, err := chanqadmin.Open(ctx, db, "numbers", chanq.Config{})
	check(err)
	stats, err := admin.Stats(ctx)
	check(err)
	fmt.Println(stats.Scheduled, "to be tried again")
	// Output: 1 to be tried again
}

// Ack acks many messages and waits for all outcomes, bounded by a context.
func ExampleAck() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	var leases []*chanq.Lease[int]
	for range 3 {
		leases = append(leases, <-consumer.C())
	}
	check(chanq.Ack(ctx, leases...))
	check(consumer.Shutdown(ctx))
	fmt.Println(len(leases), "done")
	// Output: 3 done
}

// A service that answers "too many requests" must not dead-letter a healthy message. Outcome returns what
// Consumer.Handle does with a handler's error, for tests.
func ExampleSnooze() {
	errBusy := errors.New("429")
	handler := func(context.Context, *chanq.Lease[int]) error {
		return chanq.Snooze(time.Minute, errBusy)
	}
	outcome := chanq.Outcome(handler(context.Background(), &chanq.Lease[int]{}))
	fmt.Println(outcome.Kind == chanq.OutcomeSnooze, outcome.Delay, outcome.Reason)
	// Output: true 1m0s 429
}

// A handler that calls a service. Each response maps to an error, and the message's ID lets the
// service detect a repeated call.
func ExampleConsumer_Handle_service() {
	ctx := context.Background()
	answers := map[string]int{"1 EUR": http.StatusCreated, "0 EUR": http.StatusUnprocessableEntity}
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(answers[r.Header.Get("Amount")])
	}))
	defer bank.Close()

	charge := func(ctx context.Context, lease *chanq.Lease[string]) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // the context is also cancelled when the lease is lost
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, bank.URL, http.NoBody)
		if err != nil {
			return chanq.DeadLetter(err)
		}
		request.Header.Set("Amount", lease.Body)
		request.Header.Set("Idempotency-Key", lease.ID.String()) // the second delivery has the same ID
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err // tried again after ConsumerConfig.Backoff
		}
		defer answer.Body.Close()
		switch err := errors.New(answer.Status); {
		case answer.StatusCode == http.StatusTooManyRequests:
			return chanq.Snooze(time.Minute, err) // not this message's fault: later, uncounted
		case answer.StatusCode >= 500:
			return chanq.RetryAfter(10*time.Second, err) // counted: after 20 of these it is dead
		case answer.StatusCode >= 400:
			return chanq.DeadLetter(err) // will never succeed
		}
		return nil // acked
	}

	for _, amount := range []string{"1 EUR", "0 EUR"} {
		lease := &chanq.Lease[string]{Delivery: chanq.Delivery{ID: chanq.NewID(), Attempt: 1}, Body: amount}
		fmt.Println(amount, chanq.Outcome(charge(ctx, lease)).Kind)
	}
	// Output:
	// 1 EUR ack
	// 0 EUR dead-letter
}

// Each call of a handler is limited to ten seconds.
func ExampleMiddleware() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	limit := func(ctx context.Context, d *chanq.Delivery, next func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return next(ctx) // its error settles the message
	}
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{Middleware: []chanq.Middleware{limit}})
	check(err)

	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	producer.C() <- chanq.Message[Order]{Body: Order{1}}
	check(producer.Close(ctx))
	check(consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[Order]) error {
		end, limited := ctx.Deadline()
		fmt.Println(limited && time.Until(end) <= 10*time.Second)
		consumer.Stop()
		return nil
	}))
	// Output: true
}

// greet is the handler under test.
func greet(_ context.Context, lease *chanq.Lease[string]) error {
	if lease.Body == "" {
		return chanq.DeadLetter(errors.New("nobody to greet"))
	}
	return nil
}

// A handler can be tested without a database.
func TestGreetSetsAsideWhatHasNoName(t *testing.T) {
	lease := &chanq.Lease[string]{Delivery: chanq.Delivery{Attempt: 1}}
	outcome := chanq.Outcome(greet(t.Context(), lease))
	require.Equal(t, chanq.OutcomeDeadLetter, outcome.Kind)
	require.Equal(t, "nobody to greet", outcome.Reason)
}

// A test with a database in memory checks what happens to the messages.
func TestGreetThroughAQueue(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, chanq.Migrate(t.Context(), db, "names", chanq.Config{}))
	names, err := chanq.Open[string](t.Context(), db, "names", chanq.Config{})
	require.NoError(t, err)
	_, err = names.Send(t.Context(), chanq.Msg("Ada"), chanq.Msg(""))
	require.NoError(t, err)

	consumer, err := names.Consume(t.Context(), chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(1, greet)) // returns when nothing is due
	admin, err := chanqadmin.Open(t.Context(), db, "names", chanq.Config{})
	require.NoError(t, err)
	stats, err := admin.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, stats.Dead)
	empty, err := names.Empty(t.Context())
	require.NoError(t, err)
	require.True(t, empty)
}
