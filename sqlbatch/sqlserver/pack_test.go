package sqlserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCutUnitsCountsUTF16AndSplitsNoCharacter(t *testing.T) {
	require.Equal(t, "abc", cutUnits("abc", 3))
	require.Equal(t, "ab", cutUnits("abc", 2))
	require.Equal(t, "a", cutUnits("a😀", 2), "the second half would not fit")
	require.Equal(t, "a😀", cutUnits("a😀b", 3))
	require.Equal(t, "éé", cutUnits("ééé", 2))
	require.Empty(t, cutUnits("a", 0))
}
