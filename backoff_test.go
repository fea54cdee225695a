package chanq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

func TestExponentialBackoffDoublesWithJitterUpToItsLimit(t *testing.T) {
	delay := chanq.ExponentialBackoff(time.Second, 10*time.Second)
	for attempt, most := range []time.Duration{1, 1, 2, 4, 8, 10, 10, 10} {
		most *= time.Second
		low, high := most, time.Duration(0)
		for range 300 {
			d := delay(&chanq.Delivery{Attempt: attempt}, nil)
			require.Positive(t, d)
			require.LessOrEqual(t, d, most+time.Millisecond)
			low, high = min(low, d), max(high, d)
		}
		require.GreaterOrEqual(t, low, most/2, "attempt %d", attempt)
		require.Less(t, low, most*5/8, "attempt %d: a random part", attempt)
		require.Greater(t, high, most*7/8, "attempt %d", attempt)
	}
	require.LessOrEqual(t, delay(&chanq.Delivery{Attempt: 1_000_000}, nil), 10*time.Second+time.Millisecond)
	for _, odd := range []func(*chanq.Delivery, error) time.Duration{
		chanq.ExponentialBackoff(0, 0), chanq.ExponentialBackoff(-time.Second, -time.Second), chanq.ExponentialBackoff(time.Hour, time.Second), chanq.ExponentialBackoff(1<<62, 1<<62),
	} {
		for attempt := range 100 {
			require.Positive(t, odd(&chanq.Delivery{Attempt: attempt}, nil))
		}
	}
}
