package suite

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtopic"
)

// RunsTopics requires that the roles of a producer and a consumer of the queue orders and of an operator can do all that
// they need with topics.
func RunsTopics(t *testing.T, ctx context.Context, producer, consumer, operator *sql.DB) {
	t.Helper()
	s := chanqtopic.Subscription{Topic: "paid", Queue: "orders"}
	for range 2 {
		require.NoError(t, chanqtopic.Subscribe(ctx, consumer, s, chanq.Config{}))
	}
	topic, err := chanqtopic.Open[string](ctx, producer, "paid", chanq.Config{History: chanq.HistoryOff})
	require.NoError(t, err)
	require.NoError(t, chanq.InTx(ctx, producer, func(ctx context.Context, tx *sql.Tx) error {
		return topic.Publish(ctx, tx, chanq.Msg("tea"))
	}))
	require.NoError(t, chanqtopic.Unsubscribe(ctx, consumer, "paid", "orders", chanq.Config{}))
	require.NoError(t, chanqtopic.Subscribe(ctx, consumer, s, chanq.Config{}))
	list, err := chanqtopic.List(ctx, operator, chanq.Config{})
	require.NoError(t, err)
	require.Equal(t, []chanqtopic.Subscription{s}, list)
	require.NoError(t, chanqtopic.Unsubscribe(ctx, operator, "paid", "orders", chanq.Config{}))
}
