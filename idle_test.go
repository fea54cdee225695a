package chanq

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeIdler is a shard of which nothing is held.
type fakeIdler struct{ number int }

func (*fakeIdler) holds() int { return 0 }
func (*fakeIdler) again()     {}

func TestAConsumerIsIdleWhenAllShardsAreByLooksAfterTheLastDelivery(t *testing.T) {
	a, b := &fakeIdler{1}, &fakeIdler{2}
	stops := 0
	i := &idleness{stop: func() { stops++ }, shards: []idler{a, b}, now: 1, idle: make([]uint64, 2)}
	look := func(shard idler) bool {
		now, quiet := i.begin()
		require.True(t, quiet)
		return i.isIdle(shard, now)
	}

	require.False(t, look(a), "the other shard has not looked")
	i.delivers()
	require.False(t, look(b), "the look of the first shard is older than the delivery")
	i.notIdle(b)
	require.False(t, look(a), "the second shard has something, or does not answer")
	require.Zero(t, stops)
	require.True(t, look(b))
	require.Equal(t, 1, stops)
}
