package gocloudchanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb/pgtest"
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

// fast is for tests: a nacked message is redelivered soon.
var fast = chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return time.Millisecond }}

type harness struct{ db *sql.DB }

// queues counts the queues of all harnesses of a database.
var queues atomic.Int32

func (h *harness) open(ctx context.Context) (*chanq.Queue[[]byte], error) {
	name := fmt.Sprint("q", queues.Add(1))
	cfg := chanq.Config{Spec: chanq.Spec{MaxAttempts: chanq.UnlimitedAttempts}}
	if err := chanq.Migrate(ctx, h.db, name, cfg); err != nil {
		return nil, err
	}
	return chanq.Open[[]byte](ctx, h.db, name, cfg)
}

// gone opens a queue and drops its tables.
func (h *harness) gone(ctx context.Context) (*chanq.Queue[[]byte], error) {
	q, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	return q, chanqadmin.Drop(ctx, h.db, fmt.Sprint("q", queues.Load()), chanq.Config{}, chanqadmin.Change{})
}

func (h *harness) CreateTopic(ctx context.Context, _ string) (driver.Topic, func(), error) {
	q, err := h.open(ctx)
	return &topic{queue: q}, func() {}, err
}

func (h *harness) MakeNonexistentTopic(ctx context.Context) (driver.Topic, error) {
	q, err := h.gone(ctx)
	return &topic{queue: q}, err
}

func (h *harness) CreateSubscription(ctx context.Context, t driver.Topic, _ string) (driver.Subscription, func(), error) {
	s, err := subscribe(context.WithoutCancel(ctx), t.(*topic).queue, fast)
	return s, func() {}, err
}

func (h *harness) MakeNonexistentSubscription(ctx context.Context) (driver.Subscription, func(), error) {
	q, err := h.gone(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := subscribe(context.WithoutCancel(ctx), q, fast)
	return s, func() {}, err
}

func (h *harness) Close()                              {}
func (h *harness) MaxBatchSizes() (int, int)           { return chanq.DefaultBatchRows, chanq.DefaultBatchRows }
func (h *harness) SupportsMultipleSubscriptions() bool { return false }

func TestItIsADriver(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			drivertest.RunConformanceTests(t, func(context.Context, *testing.T) (drivertest.Harness, error) {
				return &harness{db: db}, nil
			}, []drivertest.AsTest{types{}})
		})
	}
}

// types has what As converts to.
type types struct{}

func (types) Name() string { return "types of chanq" }

func (types) TopicCheck(t *pubsub.Topic) error {
	var q *chanq.Queue[[]byte]
	return converts(t.As(&q), q != nil)
}

func (types) SubscriptionCheck(s *pubsub.Subscription) error {
	var q *chanq.Queue[[]byte]
	var c *chanq.Consumer[[]byte]
	return errors.Join(converts(s.As(&q), q != nil), converts(s.As(&c), c != nil))
}

func (types) TopicErrorCheck(t *pubsub.Topic, err error) error {
	var op *chanq.OpError
	return converts(t.ErrorAs(err, &op), op != nil)
}

func (types) SubscriptionErrorCheck(s *pubsub.Subscription, err error) error {
	var op *chanq.OpError
	return converts(s.ErrorAs(err, &op), op != nil)
}

func (types) MessageCheck(m *pubsub.Message) error {
	var l *chanq.Lease[[]byte]
	if err := converts(m.As(&l), l != nil); err != nil {
		return err
	}
	return converts(l.Priority == chanq.PriorityHigh, l.Attempt == 1)
}

func (types) BeforeSend(as func(any) bool) error {
	var m *chanq.Message[[]byte]
	if err := converts(as(&m), m != nil); err != nil {
		return err
	}
	m.Priority = chanq.PriorityHigh
	return nil
}

func (types) AfterSend(as func(any) bool) error {
	var m *chanq.Message[[]byte]
	return converts(as(&m), m != nil)
}

func converts(all ...bool) error {
	for _, ok := range all {
		if !ok {
			return errors.New("not converted")
		}
	}
	return nil
}

func TestWhatWasReceivedAndNotAckedIsReleased(t *testing.T) {
	db, ctx := sqlite(t), t.Context()
	q, err := (&harness{db: db}).open(ctx)
	require.NoError(t, err)
	topic := OpenTopic(q, nil)
	for range 3 {
		require.NoError(t, topic.Send(ctx, &pubsub.Message{Body: []byte("body"), Metadata: map[string]string{"trace": "7"}}))
	}
	require.NoError(t, topic.Shutdown(ctx))

	first, err := OpenSubscription(ctx, q, chanq.ConsumerConfig{}, nil)
	require.NoError(t, err)
	m, err := first.Receive(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"trace": "7"}, m.Metadata)
	m.Ack()
	require.NoError(t, first.Shutdown(ctx))

	second, err := OpenSubscription(ctx, q, chanq.ConsumerConfig{}, nil)
	require.NoError(t, err)
	for range 2 {
		m, err := second.Receive(ctx)
		require.NoError(t, err)
		var l *chanq.Lease[[]byte]
		require.True(t, m.As(&l))
		require.Equal(t, 1, l.Attempt, "a release does not count")
		m.Ack()
	}
	require.NoError(t, second.Shutdown(ctx))
	empty, err := q.Empty(ctx)
	require.NoError(t, err)
	require.True(t, empty)
}

func TestErrorsHaveCodes(t *testing.T) {
	db, ctx := sqlite(t), t.Context()
	q, err := (&harness{db: db}).open(ctx)
	require.NoError(t, err)
	topic := OpenTopic(q, nil)
	require.Equal(t, gcerrors.InvalidArgument, gcerrors.Code(topic.Send(ctx, &pubsub.Message{Body: make([]byte, 2<<20)})))
	s, err := OpenSubscription(ctx, q, chanq.ConsumerConfig{}, nil)
	require.NoError(t, err)
	var c *chanq.Consumer[[]byte]
	require.True(t, s.As(&c))
	c.Stop()
	_, err = s.Receive(ctx)
	require.Equal(t, gcerrors.FailedPrecondition, gcerrors.Code(err))
	require.ErrorContains(t, err, "consumer stopped")
	_, err = OpenSubscription(ctx, q, chanq.ConsumerConfig{Prefetch: -1}, nil)
	require.ErrorContains(t, err, "Prefetch")
}
