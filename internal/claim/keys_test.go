package claim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

func TestThePartsOfMaxKeysAreTheWhole(t *testing.T) {
	c := Config{Limits: Limits{Slots: 8}, Queue: &table.Queue{}}
	for _, most := range []int{8, 9, 15, 16, 1000} {
		c.Queue.SetPolicy(sqlbatch.Policy{MaxKeys: most})
		total := 0
		for slot := range c.Slots {
			n := c.keys(slot)
			require.GreaterOrEqual(t, n, 1, "a slot without keys would starve")
			total += n
		}
		require.Equal(t, most, total)
	}
	c.Queue.SetPolicy(sqlbatch.Policy{})
	require.Zero(t, c.keys(3), "no limit")
}
