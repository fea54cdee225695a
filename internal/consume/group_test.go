package consume

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeIdler is a consumer that holds nothing.
type fakeIdler struct{ halts int }

func (*fakeIdler) holds() int { return 0 }
func (*fakeIdler) again()     {}
func (f *fakeIdler) halt()    { f.halts++ }

func TestConsumersAreIdleWhenAllAreByLooksAfterTheLastDelivery(t *testing.T) {
	a, b, c := &fakeIdler{}, &fakeIdler{}, &fakeIdler{}
	i := NewGroup(3)
	look := func(member idler) bool {
		now, quiet := i.begin()
		require.True(t, quiet)
		return i.isIdle(member, now)
	}
	require.NoError(t, i.join(a))
	require.NoError(t, i.join(b))
	require.False(t, look(a), "the second one has not looked")
	require.False(t, look(b), "the third one has not started")
	require.NoError(t, i.join(c))
	i.delivers()
	i.leave(c)
	require.False(t, look(b), "the look of the first one is older than the delivery")
	i.notIdle(b)
	require.False(t, look(a), "the second one has something, or does not answer")
	require.Zero(t, a.halts)
	i.notIdle(c)
	require.True(t, look(b), "one that has ended finds nothing")
	require.Equal(t, []int{1, 1, 1}, []int{a.halts, b.halts, c.halts})
	require.ErrorContains(t, i.join(a), "has its 3 consumers already")
}
