package chanq

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALabelTakesThePlaceOfTheName(t *testing.T) {
	var mu sync.Mutex
	var told []string
	note := func(queue string) { mu.Lock(); defer mu.Unlock(); told = append(told, queue) }
	q := openTestQueue[string](t, Config{Label: "orders/east", Hooks: Hooks{
		Sent:    func(e SentEvent) { note(e.Queue) },
		Claimed: func(e ClaimedEvent) { note(e.Queue) },
		Settled: func(e SettledEvent) { note(e.Queue) },
		Dead:    func(e DeadEvent) { note(e.Queue) },
		Handled: func(e HandledEvent) { note(e.Queue) },
	}})
	require.Equal(t, []string{"orders", "orders/east"}, []string{q.Name(), q.Label()})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.SendBatch(soon(t), make([]Message[string], 2)...)
	require.NoError(t, err)
	_, err = p.Send(soon(t), Message[string]{Key: "k"})
	var op *OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "orders/east", op.Queue)
	c := testConsumer(t, q, ConsumerConfig{})
	require.NoError(t, c.Handle(1, func(_ context.Context, l *Lease[string]) error {
		require.Equal(t, "orders/east", l.Queue)
		if len(c.C()) == 0 {
			c.Stop()
		}
		return DeadLetter(errors.New("no"))
	}))
	require.NoError(t, c.Flush(soon(t)))
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = q.Cancel(ended, NewID())
	require.ErrorAs(t, err, &op)
	require.Equal(t, "orders/east", op.Queue)
	_, err = q.Consume(t.Context(), ConsumerConfig{Prefetch: -1})
	require.ErrorContains(t, err, "chanq: consume orders/east: ")
	mu.Lock()
	defer mu.Unlock()
	require.GreaterOrEqual(t, len(told), 5)
	for _, queue := range told {
		require.Equal(t, "orders/east", queue)
	}
}

func TestALabelIsChecked(t *testing.T) {
	db := openSQLite(t)
	for _, label := range []string{"a\nb", "\xff", strings.Repeat("x", 257)} {
		require.ErrorContains(t, Migrate(t.Context(), db, "orders", Config{Label: label}), "Config.Label", "%q", label)
	}
	require.NoError(t, Migrate(t.Context(), db, "orders", Config{Label: strings.Repeat("x", 256)}))
}

// TestADatabaseThatDoesNotAnswerIsUnavailable: a database that answers that the queue does not exist is
// available.
func TestADatabaseThatDoesNotAnswerIsUnavailable(t *testing.T) {
	db := openSQLite(t)
	_, err := Open[string](t.Context(), db, "orders", Config{})
	require.ErrorIs(t, err, ErrNoSchema)
	require.NotErrorIs(t, err, ErrUnavailable)
	require.NoError(t, Migrate(t.Context(), db, "orders", Config{}))
	_, err = Open[string](t.Context(), db, "orders", Config{Spec: Spec{Kind: KindOrdered}})
	require.ErrorIs(t, err, ErrSpec)
	require.NotErrorIs(t, err, ErrUnavailable)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = Open[string](ended, db, "orders", Config{})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	_, err = StoredConfig(ended, db, "orders", Config{})
	require.ErrorIs(t, err, ErrUnavailable)
}

// TestHandleTakesTheLeasesOfSeveralConsumers: each consumer counts the calls for its leases.
func TestHandleTakesTheLeasesOfSeveralConsumers(t *testing.T) {
	merged := make(chan *Lease[string], 2)
	var consumers []*Consumer[string]
	for range 2 {
		q := openTestQueue[string](t, Config{})
		_, err := testProducer(t, q, ProducerConfig{}).Send(soon(t), Message[string]{})
		require.NoError(t, err)
		c := testConsumer(t, q, ConsumerConfig{})
		merged <- <-c.C()
		consumers = append(consumers, c)
	}
	close(merged)
	require.NoError(t, Handle(merged, 2, func(context.Context, *Lease[string]) error { return nil }))
	for _, c := range consumers {
		require.NoError(t, c.Flush(soon(t)))
		require.Equal(t, int64(1), c.Stats().Acked)
	}
	require.ErrorContains(t, Handle(merged, 0, func(context.Context, *Lease[string]) error { return nil }), "workers is 0")
	require.ErrorContains(t, Handle(merged, 1, nil), "fn must not be nil")
}

// TestTheShardOfAMessageNeverChanges: programs in other languages compute the same shard, and messages are stored
// by it.
func TestTheShardOfAMessageNeverChanges(t *testing.T) {
	id := ID{14: 1, 15: 2} // 258
	for i, m := range []Message[string]{
		{}, {Key: "ada"}, {DedupKey: "ada"}, {Key: "ada", DedupKey: "grace", ID: id}, {ID: id}, {DedupKey: "grace", ID: id},
	} {
		require.Equal(t, []int{-1, 52, 52, 52, 58, 3}[i], ShardOf(m, 100), "%+v", m)
	}
	require.Equal(t, 0, ShardOf(Message[string]{Key: "ada"}, 1))
	require.Equal(t, 0, ShardOf(Message[string]{Key: "ada"}, 0))
	for index := range 7 {
		q := &queue{cfg: Config{Shard: ShardMark{Index: index, Count: 7}}}
		for range 100 {
			require.Equal(t, index, ShardOf(Message[string]{ID: q.newID()}, 7))
		}
	}
}
