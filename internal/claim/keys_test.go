package claim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

func TestThePartsOfMaxKeysAreTheWhole(t *testing.T) {
	for _, most := range []int{8, 9, 15, 16, 1000} {
		c := Config{Limits: Limits{Slots: 8}, Policy: func() sqlbatch.Policy { return sqlbatch.Policy{MaxKeys: most} }}
		total := 0
		for slot := range c.Slots {
			n := c.keys(slot)
			require.GreaterOrEqual(t, n, 1, "a slot without keys would starve")
			total += n
		}
		require.Equal(t, most, total)
	}
	c := Config{Limits: Limits{Slots: 8}, Policy: func() sqlbatch.Policy { return sqlbatch.Policy{} }}
	require.Zero(t, c.keys(3), "no limit")
}
