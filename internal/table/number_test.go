package table

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Drivers differ in the type of an integer column.
func TestNumberScansWhatDriversReturn(t *testing.T) {
	for _, value := range []any{int64(7), int32(7), []byte("7"), "7"} {
		n := number(1)
		require.NoError(t, n.Scan(value))
		require.Equal(t, number(7), n, "%T", value)
	}
	for _, value := range []any{"seven", nil} {
		require.Error(t, new(number).Scan(value), "%v", value)
	}
}
