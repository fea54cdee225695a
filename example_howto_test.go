package chanq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

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
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // the lease's context: it ends with the lease
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

// A send whose outcome is unknown is repeated with the same ID.
func ExampleProducer_Send() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	send := func(message chanq.Message[Order]) error {
		bound, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		receipt, err := producer.Send(bound, message)
		var failed *chanq.OpError
		if errors.As(err, &failed) && failed.Unknown {
			message.ID = receipt.ID // while it is in the queue, it is not stored twice
			_, err = producer.Send(ctx, message)
		}
		return err
	}
	fmt.Println(send(chanq.Msg(Order{Number: 1})))
	check(producer.Close(ctx))
	// Output: <nil>
}

// Hooks report events to a program's log and its alerts.
func ExampleJoinHooks() {
	alarm := func(text string, args ...any) { slog.Error(text, args...) }
	hooks := chanq.JoinHooks(chanq.LogHooks(slog.Default(), slog.LevelWarn), chanq.Hooks{
		Dead: func(e chanq.DeadEvent) { alarm("dead letter", "queue", e.Queue, "id", e.ID, "reason", e.Reason) },
		LeaseLost: func(e chanq.LeaseLostEvent) {
			alarm("handler was too slow, or the database away", "queue", e.Queue, "id", e.ID)
		},
		Availability: func(e chanq.AvailabilityEvent) { alarm("database", "queue", e.Queue, "up", e.Up, "error", e.Err) },
	})
	config := chanq.Config{Hooks: hooks}
	_ = config
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
