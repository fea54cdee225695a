package watermillchanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/watermillchanq"
)

// databases are the engines that are here. PostgreSQL needs CHANQ_TEST_POSTGRES.
var databases = map[string]func(*testing.T) *sql.DB{
	"sqlite": sqlite,
	"sqlserver": func(t *testing.T) *sql.DB {
		return mssqltest.Start(t, mssqltest.Options{}).DB()
	},
	"postgres": func(t *testing.T) *sql.DB {
		if os.Getenv(pgtest.Variable) == "" {
			t.Skip("NOT TESTED on PostgreSQL: " + pgtest.Variable + " is not set")
		}
		return pgtest.Open(t)
	},
}

func sqlite(t *testing.T) *sql.DB {
	db, err := embedded.Open(t.TempDir() + "/queues.db")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// config is for tests: a nacked message is redelivered soon, and Close does not wait long for acks that never come.
func config() watermillchanq.Config {
	return watermillchanq.Config{
		Queue:     chanq.Config{Spec: chanq.Spec{MaxAttempts: chanq.UnlimitedAttempts}},
		QueueName: func(topic string) string { return strings.ReplaceAll(topic, "-", "") },
		Migrate:   true,
		Consumer: chanq.ConsumerConfig{
			DrainFor: 100 * time.Millisecond,
			Backoff:  func(*chanq.Delivery, error) time.Duration { return time.Millisecond },
		},
	}
}

func pair(t testing.TB, db *sql.DB, cfg watermillchanq.Config) (*watermillchanq.Publisher, *watermillchanq.Subscriber) {
	publisher, err := watermillchanq.NewPublisher(db, cfg)
	require.NoError(t, err)
	subscriber, err := watermillchanq.NewSubscriber(db, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, publisher.Close())
		require.NoError(t, subscriber.Close())
	})
	return publisher, subscriber
}

func TestItIsAPubSub(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			tests.TestPubSub(t, tests.Features{Persistent: true, GuaranteedOrderWithSingleSubscriber: true, ForceShort: true},
				func(t *testing.T) (message.Publisher, message.Subscriber) { return pair(t, db, config()) }, nil)
		})
	}
}

// one publishes a message, and returns it as a subscription received it.
func one(t *testing.T, ctx context.Context, p message.Publisher, s message.Subscriber) *message.Message {
	m := message.NewMessage("an-id", []byte("body"))
	m.Metadata.Set("trace", "7")
	require.NoError(t, p.Publish("orders", m))
	messages, err := s.Subscribe(ctx, "orders")
	require.NoError(t, err)
	got := <-messages
	require.NotNil(t, got)
	require.Equal(t, "an-id", got.UUID)
	require.Equal(t, message.Metadata{"trace": "7"}, got.Metadata)
	require.Equal(t, "body", string(got.Payload))
	return got
}

func TestMessagesArePublishedInATransaction(t *testing.T) {
	db, ctx := sqlite(t), t.Context()
	publisher, subscriber := pair(t, db, config())
	rollback := errors.New("rollback")
	require.ErrorIs(t, chanq.InTx(ctx, db, func(_ context.Context, tx *sql.Tx) error {
		return publisher.InTx(tx).Publish("new", message.NewMessage("id", nil))
	}), chanq.ErrNoSchema, "it creates no queue within the transaction")
	for _, result := range []error{rollback, nil} {
		body := fmt.Sprint(result)
		require.NoError(t, publisher.Publish("warm", message.NewMessage("id", nil))) // to open no queue within the transaction
		require.ErrorIs(t, chanq.InTx(ctx, db, func(_ context.Context, tx *sql.Tx) error {
			require.NoError(t, publisher.InTx(tx).Publish("warm", message.NewMessage(body, nil)))
			return result
		}), result)
	}
	messages, err := subscriber.Subscribe(ctx, "warm")
	require.NoError(t, err)
	var got []string
	for range 3 {
		m := <-messages
		got = append(got, m.UUID)
		m.Ack()
	}
	require.Equal(t, []string{"id", "id", "<nil>"}, got)
}

func TestADeliveryIsAckedInATransaction(t *testing.T) {
	db, ctx := sqlite(t), context.Background()
	publisher, subscriber := pair(t, db, config())
	got := one(t, ctx, publisher, subscriber)
	d, ok := watermillchanq.DeliveryOf(got.Context())
	require.True(t, ok)
	require.NoError(t, chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error { return d.AckTx(ctx, tx) }))
	got.Ack()
	require.NoError(t, subscriber.Close())
	q, err := chanq.Open[[]byte](ctx, db, "orders", config().Queue)
	require.NoError(t, err)
	empty, err := q.Empty(ctx)
	require.NoError(t, err)
	require.True(t, empty)
}

func TestCloseReleasesWhatNobodyAcked(t *testing.T) {
	db, ctx := sqlite(t), context.Background()
	publisher, first := pair(t, db, config())
	got := one(t, ctx, publisher, first)
	require.NoError(t, first.Close())
	<-got.Context().Done()
	require.ErrorIs(t, context.Cause(got.Context()), chanq.ErrStopped)
	_, second := pair(t, db, config())
	messages, err := second.Subscribe(ctx, "orders")
	require.NoError(t, err)
	again := <-messages
	d, _ := watermillchanq.DeliveryOf(again.Context())
	require.Equal(t, 1, d.Attempt, "a release does not count")
	again.Ack()
}

func TestCloseDoesNotWaitForReaders(t *testing.T) {
	cfg := config()
	cfg.Consumer.DrainFor = time.Hour
	publisher, subscriber := pair(t, sqlite(t), cfg)
	require.NoError(t, publisher.Publish("orders", message.NewMessage("id", nil)))
	messages, err := subscriber.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	require.NoError(t, subscriber.Close())
	_, open := <-messages
	require.False(t, open)
}

func TestBadInputIsAClearError(t *testing.T) {
	db := sqlite(t)
	_, err := watermillchanq.NewPublisher(nil, config())
	require.EqualError(t, err, "watermillchanq: db is nil")
	_, err = watermillchanq.NewSubscriber(db, watermillchanq.Config{Workers: -1})
	require.EqualError(t, err, "watermillchanq: Config.Workers is -1: must be at least 1")
	publisher, subscriber := pair(t, db, watermillchanq.Config{})
	m := message.NewMessage("id", nil)
	require.ErrorIs(t, publisher.Publish("nothing", m), chanq.ErrNoSchema)
	require.ErrorContains(t, publisher.Publish("a topic", m), `topic "a topic"`)
	require.NoError(t, subscriber.SubscribeInitialize("orders"))
	m.Metadata.Set(watermillchanq.UUIDHeader, "x")
	require.EqualError(t, publisher.Publish("orders", m),
		`watermillchanq: message id has metadata "watermill-uuid": this key stores the UUID`)
	require.NoError(t, publisher.Close())
	require.EqualError(t, publisher.Publish("orders", m), "watermillchanq: closed")
	require.NoError(t, subscriber.Close())
	_, err = subscriber.Subscribe(t.Context(), "orders")
	require.EqualError(t, err, "watermillchanq: closed")
}
