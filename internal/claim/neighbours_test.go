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
	first, second, other := Join(orders), Join(orders), Join(mails)
	require.Same(t, first.gate, second.gate)
	require.NotSame(t, first.gate, other.gate)

	gate := first.gate
	first.Leave()
	third := Join(orders)
	require.Same(t, gate, third.gate, "the second one is still there")
	for _, n := range []*Neighbours{second, third, other} {
		n.Leave()
	}
	require.Empty(t, neighbours.of, "queues without a consumer are removed")
}
