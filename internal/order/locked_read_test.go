package order

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Four slots were taken together, and a message of slot 2 is locked by a transaction.
func TestOnlyTheSlotOfALockedRowWaits(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.OneWriter = true })
	var slots []Slot
	for n := range 4 {
		slots = append(slots, Slot{Number: n, Fence: 20})
	}
	o.Take(slots, o.now)
	locked := true
	read := map[int]bool{}
	reads := func() (blocked int) {
		for range 20 {
			r := o.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: true}, o.now)
			if r == nil {
				break
			}
			var rows []Row
			waits := false
			for _, s := range r.Slots {
				waits = waits || locked && s.Slot == 2
				if seq := int64(s.Slot + 1); seq > r.From {
					rows = append(rows, Row{ID: [16]byte{byte(seq)}, Seq: seq, Slot: s.Slot, Key: fmt.Sprint(s.Slot),
						Keyed: true, Fence: seq, Contents: content(seq)})
				}
			}
			if waits {
				blocked++
				o.Blocked(r)
				o.Answer(r, nil, o.now)
				continue
			}
			for _, s := range r.Slots {
				read[s.Slot] = true
			}
			o.answer(r, 4, rows...)
		}
		return blocked
	}
	require.Equal(t, 3, reads(), "reads of all slots, of two, and of the slot alone, which then pauses")
	require.Equal(t, map[int]bool{0: true, 1: true, 3: true}, read)
	got := o.next()
	slices.Sort(got)
	require.Equal(t, []int64{1, 2, 4}, got)
	locked = false
	o.now += firstPause
	require.Zero(t, reads())
	require.Equal(t, []int64{3}, o.next())
	require.Len(t, o.reads.walks, 1, "the walks are merged")
}
