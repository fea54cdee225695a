package consume

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsumersAreIdleWhenAllAreByLooksAfterTheLastDelivery(t *testing.T) {
	i := NewGroup(3)
	a, b, c := newLoad(i), newLoad(i), newLoad(i)
	look := func(consumer *load) bool {
		now, quiet := consumer.Begin()
		require.True(t, quiet)
		return consumer.Idle(now)
	}
	require.NoError(t, i.join(a))
	require.NoError(t, i.join(b))
	require.False(t, look(a), "the second one has not polled")
	require.False(t, look(b), "the third one has not started")
	require.NoError(t, i.join(c))
	i.delivers()
	c.leave()
	require.False(t, look(b), "the first one's poll is older than the delivery")
	b.Idle(0)
	require.False(t, look(a), "the second one has something, or does not answer")
	require.NoError(t, a.stop.Err())
	c.Idle(0)
	require.True(t, look(b), "a consumer that has ended is idle")
	for _, consumer := range []*load{a, b, c} {
		require.Error(t, consumer.stop.Err())
	}
	require.ErrorContains(t, i.join(a), "already has 3 consumers")
}
