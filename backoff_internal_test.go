package chanq

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/lease"
)

func TestABackoffThatFailsIsReplacedByTheDefault(t *testing.T) {
	for name, backoff := range map[string]func(*Delivery, error) time.Duration{
		"panic":           func(*Delivery, error) time.Duration { panic("no delay") },
		"goexit":          func(*Delivery, error) time.Duration { runtime.Goexit(); return 0 },
		"negative":        func(*Delivery, error) time.Duration { return -1 },
		"overflow":        func(*Delivery, error) time.Duration { return math.MinInt64 },
		"above a century": func(*Delivery, error) time.Duration { return math.MaxInt64 },
	} {
		c := &consumer{cfg: ConsumerConfig{Backoff: backoff}}
		for range 100 {
			d := c.backoff(&Delivery{Attempt: 1}, nil)
			require.GreaterOrEqual(t, d, time.Millisecond, name)
			require.LessOrEqual(t, d, time.Second+time.Millisecond, name)
		}
	}
	c := &consumer{cfg: ConsumerConfig{Backoff: func(*Delivery, error) time.Duration { return 0 }}}
	require.Zero(t, c.backoff(&Delivery{Attempt: 1}, nil), "at once is a delay")
}

func TestLeasesThatExpiredDoNotCountForTheBackoff(t *testing.T) {
	d := &Delivery{Attempt: 9, lease: &lease.Lease{Attempt: 9, Lapses: 8}}
	for range 100 {
		require.LessOrEqual(t, ExponentialBackoff(time.Second, time.Hour)(d, nil), time.Second+time.Millisecond)
	}
}

func TestAnExponentialBackoffNeverOverflows(t *testing.T) {
	for _, high := range []time.Duration{math.MaxInt64, 1 << 62, 200 * 365 * 24 * time.Hour} {
		delay := ExponentialBackoff(time.Second, high)
		for _, attempt := range []int{34, 35, 70, 1000, math.MaxInt} {
			longest := time.Duration(0)
			for range 50 {
				d := delay(&Delivery{Attempt: attempt}, nil)
				require.Positive(t, d)
				longest = max(longest, d)
			}
			require.Greater(t, longest, 365*24*time.Hour, "attempt %d", attempt)
		}
	}
}
