package measure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuantiles(t *testing.T) {
	var sorted []time.Duration
	for i := range 1000 {
		sorted = append(sorted, time.Duration(i+1)*time.Microsecond)
	}
	require.InDelta(t, 500, Quantile(sorted, 0.5), 1e-9)
	require.InDelta(t, 990, Quantile(sorted, 0.99), 1e-9)
	require.InDelta(t, 999, Quantile(sorted, 0.999), 1e-9)
	require.InDelta(t, 1, Quantile(sorted[:1], 0.999), 1e-9)
	require.Zero(t, Quantile(nil, 0.5))
}

func TestAHistogramKnowsItsQuantiles(t *testing.T) {
	h := Histogram{}
	require.Zero(t, h.Quantile(0.5))
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	require.InEpsilon(t, 500, h.Quantile(0.5), 0.06)
	require.InEpsilon(t, 990, h.Quantile(0.99), 0.06)
	h.Merge(Histogram{int(1e6): 1})
	require.InEpsilon(t, 500, h.Quantile(0.5), 0.06)
}

// A message that is due while a sender is delayed is sent late with its due time.
func TestMessagesAreDueAtTheirRateDespiteDelaysBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var late []time.Duration
		require.NoError(t, AtRate(t.Context(), 100, 20, func(i int, due time.Time) error {
			require.Equal(t, time.Duration(i)*10*time.Millisecond, due.Sub(start))
			late = append(late, time.Since(due))
			if i == 4 {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}))
		require.Equal(t, 190*time.Millisecond, time.Since(start))
		require.Equal(t, []time.Duration{0, 90 * time.Millisecond, 80 * time.Millisecond}, late[4:7])
		require.Zero(t, late[19])
	})
}

func TestARateEndsWithItsContextAndWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Millisecond)
		defer cancel()
		sent := 0
		send := func(int, time.Time) error { sent++; return nil }
		require.ErrorIs(t, AtRate(ctx, 100, 1000, send), context.DeadlineExceeded)
		require.Equal(t, 4, sent)
		refused := errors.New("refused")
		require.ErrorIs(t, AtRate(t.Context(), 100, 1000, func(int, time.Time) error { return refused }), refused)
	})
}
