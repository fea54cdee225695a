package sqlbatch_test

import (
	"fmt"
	"testing"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/stretchr/testify/require"
)

// TestTheSlotOfAKeyIsTheSameInOtherLanguages compares with published values of FNV-1a.
func TestTheSlotOfAKeyIsTheSameInOtherLanguages(t *testing.T) {
	const slots = 1000
	for key, hash := range map[string]uint32{"a": 0xe40c292c, "foobar": 0xbf9cf968} {
		require.Equal(t, int(hash%slots), sqlbatch.SlotOf(key, [16]byte{1}, slots), key)
	}
	id := [16]byte([]byte("0123456789abcdef"))
	require.Equal(t, sqlbatch.SlotOf(string(id[:]), id, slots), sqlbatch.SlotOf("", id, slots), "without a key: the id's")
	require.Zero(t, sqlbatch.SlotOf("a", id, 1))
}

func TestKeysAreSpreadOverAllSlots(t *testing.T) {
	counts := map[int]int{}
	for i := range 6400 {
		counts[sqlbatch.SlotOf(fmt.Sprint("customer ", i), [16]byte{}, 64)]++
	}
	require.Len(t, counts, 64)
	for slot, n := range counts {
		require.InDelta(t, 100, n, 60, slot)
	}
}
