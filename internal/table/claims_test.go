package table_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Two claims in one millisecond, the first of which the database has lost, get the same fence with a probability of one
// in a million.
func TestSaltsAreDrawnFromTwentyBits(t *testing.T) {
	require.Equal(t, 20, sqlbatch.FenceBits)
	seen := map[int64]bool{}
	for range 1000 {
		salt := table.NewSalt()
		require.Positive(t, salt)
		require.LessOrEqual(t, salt, int64(1<<20))
		seen[salt] = true
	}
	require.Greater(t, len(seen), 900)
}
