package claim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsumersOfOneQueueShareItsGateAndItsTrial(t *testing.T) {
	first, second, other := Join("orders"), Join("orders"), Join("mails")
	require.Same(t, first.of.gate, second.of.gate)
	require.NotSame(t, first.of.gate, other.of.gate)

	require.True(t, first.Begin())
	require.False(t, first.Begin(), "it has the turn already")
	require.False(t, second.Begin(), "one consumer of a queue at a time")
	require.True(t, other.Begin(), "another queue")
	second.End()
	require.False(t, second.Begin(), "it was not its turn to end")
	first.End()
	require.True(t, second.Begin())
	second.End()
	require.True(t, first.Begin())

	gate := first.of.gate
	first.Leave()
	third := Join("orders")
	require.Same(t, gate, third.of.gate, "the second one is still there")
	require.True(t, third.Begin(), "who leaves has ended its turn")
	for _, n := range []*Neighbour{second, third, other} {
		n.Leave()
	}
	require.Empty(t, neighbours.of, "queues without a consumer are forgotten")
}
