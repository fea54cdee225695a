package chanq

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigOfOrderedQueuesIsCheckedWhole(t *testing.T) {
	full, err := Config{Kind: KindOrdered}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 64, full.Slots)
	require.Zero(t, full.MaxKeys)

	_, err = Config{Slots: 1, MaxKeys: 2, DeadKey: DeadKeyHolds}.withDefaults()
	for _, field := range []string{"Config.Slots is 1", "Config.MaxKeys is 2", "Config.DeadKey is 1"} {
		require.ErrorContains(t, err, field, "of a plain queue")
	}
	for says, c := range map[string]Config{
		"Config.Kind is 2":                      {Kind: 2},
		"Config.Slots is 1025":                  {Kind: KindOrdered, Slots: 1025},
		"Config.Slots is -1":                    {Kind: KindOrdered, Slots: -1},
		"Config.MaxKeys is 63":                  {Kind: KindOrdered, MaxKeys: 63},
		"Config.MaxKeys is -1":                  {Kind: KindOrdered, MaxKeys: -1},
		"Config.MaxKeys is 1000001":             {Kind: KindOrdered, MaxKeys: 1_000_001},
		"Config.DeadKey is 2":                   {Kind: KindOrdered, DeadKey: 2},
		"from Slots, 8, to 1000000":             {Kind: KindOrdered, Slots: 8, MaxKeys: 7},
		"must be KindPlain (0, the default) or": {Kind: 9},
	} {
		_, err := c.withDefaults()
		require.ErrorContains(t, err, says)
	}
}

func TestThePartsOfMaxKeysAreTheWhole(t *testing.T) {
	for _, keys := range []int{8, 9, 15, 16, 1000} {
		c, err := Config{Kind: KindOrdered, Slots: 8, MaxKeys: keys}.withDefaults()
		require.NoError(t, err)
		total := 0
		for slot := range c.Slots {
			n := c.keysOf(slot)
			require.GreaterOrEqual(t, n, 1, "a slot without keys would starve")
			total += n
		}
		require.Equal(t, keys, total)
	}
	c := Config{Kind: KindOrdered, Slots: 8}
	require.Zero(t, c.keysOf(3), "no limit")
}
