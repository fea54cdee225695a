package suite

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Owners of the slots of an ordered queue.

func leasesEndWithMembership(w *world) {
	w.joinAs(Consumer, time.Minute)
	until := w.run(w.Consumers())[0][5]
	w.line(0, "a", 1)
	ends := func() any { w.Helper(); return w.get(1)["lease_until"] }
	items := w.items(1)
	require.Len(w, w.run(w.Extend(Consumer, items, time.Hour)), 1)
	require.Equal(w, until, ends())
	w.joinAs(Consumer, time.Hour)
	require.Len(w, w.run(w.Extend(Consumer, items, 10*time.Minute)), 1)
	require.InDelta(w, w.now()+(10*time.Minute).Milliseconds(), ends(), 30_000)
	later := ends()
	w.run(w.Leave(Consumer))
	require.Len(w, w.run(w.SkipLocked().Extend(Consumer, items, 2*time.Hour)), 1)
	require.Equal(w, later, ends(), "a consumer that has left extends nothing")
}

// surrendersOrdered: the leases end now, and the next owner of the slot marks the messages and counts the lapse, as after the end of the
// membership.
func surrendersOrdered(w *world) {
	w.joinAs(Consumer, time.Hour)
	w.joinAs(other, time.Hour)
	w.line(0, "a", 1, 2)
	w.line(1, "b", 3)
	w.take(Consumer, 0)
	require.Len(w, w.run(w.Extend(Consumer, w.items(1, 2), time.Minute)), 2)
	require.Len(w, w.run(w.Extend(other, w.items(3), time.Minute)), 1)
	require.Empty(w, w.run(w.Surrender(Consumer, ids(3))), "of another consumer")
	require.ElementsMatch(w, []byte{1, 2}, Numbers(w.run(w.Surrender(Consumer, ids(1, 2, 3)))))
	require.Equal(w, []any{"ready", "ready", "leased"}, []any{w.get(1)["state"], w.get(2)["state"], w.get(3)["state"]})
	require.Equal(w, string(Consumer[:]), w.get(1)["leased_by"], "so that the lapse is counted")
	w.run(w.Leave(Consumer))
	require.Len(w, w.take(other, 0), 1)
}

func slotsAreTaken(w *world) {
	last := map[int]int64{}
	take := func(who [16]byte, slots ...int) (taken []int) {
		w.Helper()
		before := w.now()
		for slot, fence := range w.take(who, slots...) {
			require.Greater(w, fence, max(last[slot], before<<sqlbatch.FenceBits), "a fence rises")
			last[slot] = fence
			taken = append(taken, slot)
		}
		slices.Sort(taken)
		return taken
	}
	require.Empty(w, take(neverJoined, 0), "only consumers take")
	w.joinAs(Consumer, time.Hour)
	require.Equal(w, []int{0, 2}, take(Consumer, 0, 2))
	require.Equal(w, []int{2}, take(Consumer, 2), "a slot that it owns, by another fence")
	w.joinAs(other, time.Hour)
	require.Equal(w, []int{1}, take(other, 0, 1, 2), "not what another owns")
	require.Empty(w, take(other))
	w.shift("chanq__consumers.until", -2*time.Hour, "name = '"+nameOf(Consumer)+"'")
	require.Empty(w, take(Consumer, 0, 3), "a consumer whose membership has ended takes nothing")
	require.Equal(w, []int{0}, take(other, 0), "the membership of its owner has ended")
	w.joinAs(Consumer, time.Hour)
	require.Empty(w, take(other, 2), "its owner is back")
	w.run(w.Leave(Consumer))
	require.Equal(w, []int{2}, take(other, 2), "its owner has left")

	elsewhere := Ordered
	elsewhere.Queue = "others"
	testdb.MigrateTables(w.T, w.Engine.Dialect, w.Tables(), elsewhere)
	require.Len(w, w.fences(w.run(w.Engine.Dialect.Queue(elsewhere).TakeSlots(other, 1, []int{0, slots}))), 1, "each queue has its own")
}

func slotsAreGiven(w *world) {
	w.joinAs(Consumer, time.Hour)
	w.joinAs(other, time.Hour)
	fences := w.take(Consumer, 0, 1)
	list := []sqlbatch.OwnedSlot{{Slot: 0, Fence: fences[0]}, {Slot: 1, Fence: fences[1] - 1}, {Slot: 2}}
	require.Empty(w, w.run(w.GiveSlots(other, list)))
	require.Equal(w, map[int]int64{0: fences[0]}, w.fences(w.run(w.GiveSlots(Consumer, list))), "by its fence")
	require.Empty(w, w.run(w.GiveSlots(Consumer, list)), "it is free")
	require.Contains(w, w.take(other, 0, 1), 0)
	require.Empty(w, w.run(w.GiveSlots(Consumer, nil)))
}

func slotsAreListed(w *world) {
	for _, row := range w.run(w.Slots()) {
		require.Equal(w, []any{nil, nil, int64(0), int64(0)}, row[1:])
	}
	w.joinAs(Consumer, time.Hour)
	w.joinAs(other, time.Minute)
	w.take(Consumer, 1)
	fence := w.take(other, 2)[2]
	rows := w.run(w.Slots())
	require.Len(w, rows, slots)
	for slot, row := range rows {
		require.Equal(w, int64(slot), row[0])
		require.Equal(w, int64(2), row[4], "consumers")
	}
	require.Equal(w, string(Consumer[:]), rows[1][1])
	require.InDelta(w, time.Hour.Milliseconds(), rows[1][2], 30_000)
	require.Equal(w, []any{string(other[:]), fence}, []any{rows[2][1], rows[2][3]})
	w.shift("chanq__consumers.until", -2*time.Hour, "name = '"+nameOf(other)+"'")
	w.run(w.Leave(Consumer))
	rows = w.run(w.Slots())
	require.Equal(w, list(0, 0), []any{rows[1][2], rows[1][4]}, "it has left")
	require.Less(w, rows[2][2], int64(-1000))
}
