package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASizeHalvesAndDoubles(t *testing.T) {
	var s Size
	require.Equal(t, 100, s.Of(100))
	s.Failed(100)
	require.Equal(t, 50, s.Of(100))
	s.Failed(1)
	require.Equal(t, 1, s.Of(100))
	s.Worked(1, time.Second, time.Minute)
	require.Equal(t, 2, s.Of(100))
	s.Worked(1, time.Second, time.Minute)
	require.Equal(t, 2, s.Of(100), "a smaller statement proves nothing")
	s.Worked(2, 31*time.Second, time.Minute)
	require.Equal(t, 2, s.Of(100), "more would take too long")
	for n := 2; n < 10_000; n *= 2 {
		s.Worked(n, time.Second, time.Minute)
	}
	require.Equal(t, Size{}, s)
}
