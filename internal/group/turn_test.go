package group_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/group"
)

func inTurn() group.Config[*item] {
	cfg := settings()
	cfg.Full, cfg.InTurn = 3, true
	return cfg
}

// turn is that of a group that is under way.
func (b *bench) turn(i int) uint64 { return b.group(i).work.Turn() }

func TestInTurnOnlyFullGroupsLeaveBesideOneThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 3, true, inTurn())
		b.add(group.Urgent, 1)
		require.Equal(t, [][]int{{1}}, b.left(), "nothing is under way")
		b.add(group.Urgent, 2)
		b.add(group.Awaited, 3)
		b.wait(time.Minute)
		require.Len(t, b.left(), 1, "neither haste nor time makes a group of two")
		b.add(group.Unhurried, 4)
		require.Equal(t, []int{2, 3, 4}, b.left()[1], "it is full")
		b.addAll(group.Unhurried, 5, 6, 7, 8)
		require.Equal(t, []int{5, 6, 7}, b.left()[2])
		b.finish(1)
		require.Len(t, b.left(), 3, "others are under way yet")
		b.finish(2)
		b.add(group.Urgent, 9)
		require.Len(t, b.left(), 3)
		b.finish(0)
		require.Equal(t, []int{8, 9}, b.left()[3], "who is done last takes what came meanwhile")
		b.finish(3)
		b.end()
	})
}

func TestInTurnAGroupIsFullByItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := inTurn()
		cfg.Bytes = 20 // two items
		b := setUp(t, 2, true, cfg)
		b.add(group.Urgent, 1)
		b.add(group.Urgent, 2)
		require.Len(t, b.left(), 1)
		b.add(group.Unhurried, 3)
		require.Equal(t, [][]int{{1}, {2, 3}}, b.left())
		b.finish(0)
		b.finish(1)
		b.end()
	})
}

func TestInTurnCloseWaitsForWhatIsUnderWayAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 2, true, inTurn())
		b.add(group.Urgent, 1)
		b.add(group.Urgent, 2)
		b.backlog.Close()
		require.Len(t, b.left(), 1)
		b.finish(0)
		require.Equal(t, [][]int{{1}, {2}}, b.left())
		b.finish(1)
		b.end()
	})
}

// Whoever stores groups in order goes by their turns: there is none that nobody has.
func TestTurnsCountTheGroupsInTheOrderOfTheirItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 3, true, inTurn())
		b.addAll(group.Unhurried, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		require.ElementsMatch(t, [][]int{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, b.left())
		for i, items := range b.left() {
			require.EqualValues(t, (items[0]-1)/3, b.turn(i))
		}
		for i := range 3 {
			b.finish(i)
		}
		b.add(group.Urgent, 10)
		require.EqualValues(t, 3, b.turn(3))
		b.group(3).work.Late(b.group(3).group[0], time.Second)
		b.finish(3)
		b.wait(time.Second)
		require.Equal(t, []int{10}, b.left()[4], "late")
		b.finish(4)
		b.add(group.Urgent, 11)
		require.EqualValues(t, 4, b.turn(5), "a group of late ones has none")
		b.finish(5)
		b.end()
	})
}
