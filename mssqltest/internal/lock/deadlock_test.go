package lock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func TestTwoReadersThatBothConvertDeadlock(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(51, lock.S, key("k")), r.holder(52, lock.S, key("k"))
	first := r.start(a, key("k"), lock.X, forever)

	err := b.Lock(t.Context(), key("k"), lock.X, forever)
	var e *sqltype.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, sqltype.Error{
		Number: 1205, Class: 13, State: 51,
		Message: "Transaction (Process ID 52) was deadlocked on lock resources with another process and has been chosen " +
			"as the deadlock victim. Rerun the transaction.",
	}, *e)
	r.requireWaiting(51)
	b.Release()
	require.NoError(t, first.result())
	require.Equal(t, lock.X, a.Held(key("k")))
}

// An update lock keeps read-then-write from deadlocking.
func TestUpdateLocksDoNotDeadlockOnConversion(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(1, lock.U, key("k")), r.NewOwner(2, 0)
	second := r.start(b, key("k"), lock.U, forever)
	require.NoError(t, a.Lock(t.Context(), key("k"), lock.X, forever))
	a.Release()
	require.NoError(t, second.result())
}

func TestACycleOfThreeHasOneVictim(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.X, key("a")), r.holder(2, lock.X, key("b")), r.holder(3, lock.X, key("c"))
	wantB := r.start(a, key("b"), lock.X, forever)
	wantC := r.start(b, key("c"), lock.X, forever)
	require.Equal(t, int32(1205), number(t, c.Lock(t.Context(), key("a"), lock.X, forever)))
	c.Release()
	require.NoError(t, wantC.result())
	b.Release()
	require.NoError(t, wantB.result())
}

func TestTheVictimHasTheLowestPriorityThenTheLowestCost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		priority, cost [3]int
		victim         int // index of the owner
	}{
		"the lowest priority, at any cost": {priority: [3]int{0, -5, 0}, cost: [3]int{1, 1000, 1}, victim: 1},
		"the cheapest of equal priority":   {cost: [3]int{10, 20, 30}, victim: 0},
		"the requester among equals":       {victim: 2},
		"the later of the cheapest":        {cost: [3]int{1, 1, 2}, victim: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newManager(t)
			keys := []lock.Resource{key("a"), key("b"), key("c")}
			owners := make([]lock.Owner, 3)
			for i := range owners {
				owners[i] = r.holder(50+i, lock.X, keys[i])
				owners[i].SetDeadlockPriority(tc.priority[i])
				owners[i].AddCost(tc.cost[i])
			}
			wait := []*pending{r.start(owners[0], keys[1], lock.X, forever), r.start(owners[1], keys[2], lock.X, forever)}
			if tc.victim == 2 {
				require.Equal(t, int32(1205), number(t, owners[2].Lock(t.Context(), keys[0], lock.X, forever)))
			} else {
				wait = append(wait, r.start(owners[2], keys[0], lock.X, forever))
				require.Equal(t, int32(1205), number(t, wait[tc.victim].result()))
			}
			// The victim rolls back; each of the others then ends in turn.
			for i := range owners {
				o := (tc.victim + len(owners) - i) % len(owners)
				if o != tc.victim {
					require.NoError(t, wait[o].result())
				}
				owners[o].Release()
			}
			require.Empty(t, r.Snapshot())
		})
	}
}

func TestTheVictimIsPartOfTheCycle(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(1, lock.S, key("k")), r.holder(2, lock.X, key("m"))
	// The search from b meets this owner first: it has the lowest priority, blocks b, and waits, but only for a session
	// that runs.
	bystander := r.holder(3, lock.S, key("k"))
	bystander.SetDeadlockPriority(-10)
	running := r.holder(4, lock.X, key("z"))
	aside := r.start(bystander, key("z"), lock.X, forever)

	inCycle := r.start(a, key("m"), lock.X, forever)
	require.Equal(t, int32(1205), number(t, b.Lock(t.Context(), key("k"), lock.X, forever)))
	b.Release()
	require.NoError(t, inCycle.result())
	r.requireWaiting(3)
	running.Release()
	require.NoError(t, aside.result())
}

func TestReleaseForgetsTheCost(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.NewOwner(1, 0), r.holder(2, lock.S, key("k"))
	a.AddCost(100)
	a.Release()
	require.NoError(t, a.Lock(t.Context(), key("k"), lock.S, noWait))
	b.AddCost(1)
	first := r.start(a, key("k"), lock.X, forever)
	second := r.start(b, key("k"), lock.X, forever)
	require.Equal(t, int32(1205), number(t, first.result()))
	a.Release()
	require.NoError(t, second.result())
}

// c closes two cycles at once: one through a, one through b.
func TestEveryCycleThatAWaitClosesIsBroken(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.S, key("k")), r.holder(2, lock.S, key("k")), r.holder(3, lock.X, key("m"), key("n"))
	c.AddCost(100)
	viaA, viaB := r.start(a, key("m"), lock.X, forever), r.start(b, key("n"), lock.X, forever)
	write := r.start(c, key("k"), lock.X, forever)
	require.Equal(t, int32(1205), number(t, viaA.result()))
	require.Equal(t, int32(1205), number(t, viaB.result()))
	a.Release()
	b.Release()
	require.NoError(t, write.result())
}

// b waits only for its place behind c, and c for a: without the queue, there would be no cycle.
func TestAPlaceInTheQueueCanBePartOfACycle(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.S, key("k")), r.holder(2, lock.X, key("m")), r.NewOwner(3, 0)
	write := r.start(c, key("k"), lock.X, forever)
	b.AddCost(1)
	c.AddCost(1)
	read := r.start(b, key("k"), lock.S, forever)
	require.Equal(t, int32(1205), number(t, a.Lock(t.Context(), key("m"), lock.X, forever)))
	a.Release()
	require.NoError(t, write.result())
	c.Release()
	require.NoError(t, read.result())
}

// The requester waited only for the victim's place in the queue.
func TestBreakingACycleCanGrantTheRequest(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.S, key("k")), r.holder(2, lock.X, key("m")), r.holder(3, lock.IX, whole(7))
	require.NoError(t, a.Lock(t.Context(), whole(7), lock.IS, noWait))
	write := r.start(c, key("k"), lock.X, forever) // behind a's S
	block := r.start(a, key("m"), lock.X, forever) // behind b
	b.AddCost(1)
	a.AddCost(1)
	require.NoError(t, b.Lock(t.Context(), key("k"), lock.S, forever), "c, the cheapest victim, was before it in the queue")
	require.Equal(t, int32(1205), number(t, write.result()))
	b.Release()
	require.NoError(t, block.result())
}

func TestOrdinaryBlockingIsNoDeadlock(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.X, key("a")), r.holder(2, lock.X, key("b")), r.NewOwner(3, 0)
	wantA := r.start(b, key("a"), lock.X, forever)
	wantB := r.start(c, key("b"), lock.X, forever)
	r.requireWaiting(2, 3)
	a.Release()
	require.NoError(t, wantA.result())
	b.Release()
	require.NoError(t, wantB.result())
}
