package chanqadmin_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
)

// The page of limits contains these numbers in this form.
func TestTheDocumentedLimitsAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../docs/limits.md")
	require.NoError(t, err)
	require.Equal(t, []int{1000, 10_000, 100}, []int{chanqadmin.MostListed, chanqadmin.StatsLimit, chanqadmin.SlotStatsLimit})
	for row, number := range map[string]string{"| `List` |": "1,000", "| counts of `Stats` |": "10,000", "| counts of `Slots` |": "100"} {
		_, cells, found := strings.Cut(string(text), "\n"+row)
		require.True(t, found, row)
		cells, _, _ = strings.Cut(cells, "\n")
		require.Contains(t, cells, number, row)
	}
}
