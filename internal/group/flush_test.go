package group

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFlushThatEndsLeavesNothingBehind(t *testing.T) {
	type item struct{ Place }
	b := New[*item](Config[*item]{Full: 1})
	require.True(t, b.Add(&item{}, Unhurried))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		require.ErrorIs(t, b.Flush(ctx), context.Canceled)
	}
	require.Empty(t, b.flushes)
}
