package notify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlotsComeBackFromTheirText(t *testing.T) {
	for _, slots := range [][]int{nil, {0}, {0, 7, 63}} {
		require.Equal(t, slots, Parse(Format(slots, 6)))
	}
	require.Nil(t, Parse(Format([]int{0, 7, 63}, 5)), "too long")
	for _, other := range []string{"", "1,", "1,x", "*"} {
		require.Nil(t, Parse(other), other)
	}
}

func TestTheUnionHasTheSlotsOfBoth(t *testing.T) {
	require.Equal(t, []int{0, 2, 3, 7}, Union([]int{2, 7}, []int{0, 2, 3}))
	require.Nil(t, Union(nil, []int{1}))
	require.Nil(t, Union([]int{1}, nil))
}

func TestANotificationConcernsTheOwnersOfItsSlots(t *testing.T) {
	require.True(t, Concerns([]int{1, 3}, []int{2, 3}))
	require.False(t, Concerns([]int{1, 3}, []int{0, 2}))
	require.False(t, Concerns(nil, []int{0}))
	require.True(t, Concerns(nil, nil))
}
