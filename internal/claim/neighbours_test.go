package claim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsumersOfOneQueueShareItsGateAndItsTrial(t *testing.T) {
	first, second, other := Join("orders"), Join("orders"), Join("mails")
	require.Same(t, first.gate, second.gate)
	require.NotSame(t, first.gate, other.gate)

	mine, theirs, elsewhere := first.Trial(), second.Trial(), other.Trial()
	require.True(t, mine.Begin())
	require.False(t, mine.Begin(), "it has the turn already")
	require.False(t, theirs.Begin(), "one consumer of a queue at a time")
	require.True(t, elsewhere.Begin(), "another queue")
	theirs.End()
	require.False(t, theirs.Begin(), "it was not its turn to end")
	mine.End()
	require.True(t, theirs.Begin())
	theirs.End()
	elsewhere.End()

	gate := first.gate
	first.Leave()
	third := Join("orders")
	require.Same(t, gate, third.gate, "the second one is still there")
	for _, n := range []*Neighbours{second, third, other} {
		n.Leave()
	}
	require.Empty(t, neighbours.of, "queues without a consumer are forgotten")
}
