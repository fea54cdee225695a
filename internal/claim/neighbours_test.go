package claim

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/notify"
)

func TestConsumersOfOneQueueShareItsGate(t *testing.T) {
	db := &sql.DB{}
	orders, mails := notify.Key{DB: db, Queue: "orders"}, notify.Key{DB: db, Queue: "mails"}
	first, second, other := Join(orders, t.Context()), Join(orders, t.Context()), Join(mails, t.Context())
	require.Same(t, first.of.gate, second.of.gate)
	require.NotSame(t, first.of.gate, other.of.gate)

	gate := first.of.gate
	first.Leave()
	third := Join(orders, t.Context())
	require.Same(t, gate, third.of.gate, "the second one is still there")
	for _, n := range []*Neighbour{second, third, other} {
		n.Leave()
	}
	require.Empty(t, neighbours.of, "queues without a consumer are removed")
}

func TestConsumersOfOneProcessShareItsTrial(t *testing.T) {
	db := &sql.DB{}
	first, second := Join(notify.Key{DB: db, Queue: "orders"}, t.Context()), Join(notify.Key{DB: db, Queue: "orders"}, t.Context())
	other, shard := Join(notify.Key{DB: db, Queue: "mails"}, t.Context()), Join(notify.Key{DB: &sql.DB{}, Queue: "orders"}, t.Context())
	require.True(t, first.Begin())
	for _, n := range []*Neighbour{first, second, other, shard} {
		require.False(t, n.Begin(), "one consumer at a time")
	}
	second.End()
	require.False(t, second.Begin(), "it could not end the turn of another consumer")
	first.End()
	require.True(t, shard.Begin())
	shard.Leave()
	require.True(t, other.Begin(), "Leave ends the turn")
	other.End()

	simulated := &sql.DB{}
	end := SimulateProcess(simulated)
	inside := Join(notify.Key{DB: simulated}, t.Context())
	end()
	require.True(t, inside.Begin())
	require.True(t, first.Begin())
	for _, n := range []*Neighbour{first, second, other, inside} {
		n.Leave()
	}
}
