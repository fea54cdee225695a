package claim

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// claimsOf makes claims of these sizes enter the gate in this order, each in its own
// goroutine, and returns a function that reports when each entered. Each keeps its turn
// for kept.
func claimsOf(t *testing.T, gate *semaphore.Weighted, kept time.Duration, sizes ...int) (begun func() []time.Duration) {
	began := time.Now()
	all := make([]time.Duration, len(sizes))
	var claims sync.WaitGroup
	for i, n := range sizes {
		claims.Go(func() {
			done, err := enter(t.Context(), gate, n)
			if err != nil {
				return
			}
			all[i] = time.Since(began)
			<-time.After(kept)
			done()
		})
		synctest.Wait() // it waits in enter
	}
	return func() []time.Duration {
		claims.Wait()
		return all
	}
}

func TestLargeClaimsOfOneProcessFollowEachOtherAndSmallOnesDoNot(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		sizes []int
		begun []time.Duration
	}{
		"large ones":                {[]int{1000, 1000, 300}, []time.Duration{0, 5 * ms, 10 * ms}},
		"small ones":                {[]int{16, 16, 16, 16}, []time.Duration{0, 0, 0, 0}},
		"a small behind a large":    {[]int{1000, 16, 16}, []time.Duration{0, 5 * ms, 5 * ms}},
		"a large is not overtaken":  {[]int{16, 1000, 16}, []time.Duration{0, 5 * ms, 10 * ms}},
		"as many as sideBySide are": {[]int{sideBySide / 2, sideBySide / 2, 1}, []time.Duration{0, 0, 5 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := claimsOf(t, newGate(), 5*ms, c.sizes...)
				require.Equal(t, c.begun, begun())
			})
		})
	}
}

func TestAClaimThatHangsKeepsOthersWaitingForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate()
		hung, err := enter(t.Context(), gate, 1000)
		require.NoError(t, err)
		begun := claimsOf(t, gate, time.Millisecond, 1000, 1000)
		require.Equal(t, []time.Duration{gateMoment, gateMoment + time.Millisecond}, begun(),
			"it does not delay later claims")
		hung()
		require.True(t, gate.TryAcquire(sideBySide), "its late release adds nothing")
		require.False(t, gate.TryAcquire(1))
	})
}

func TestStopEndsTheWaitForATurn(t *testing.T) {
	gate := newGate()
	done, err := enter(t.Context(), gate, 1000)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	_, err = enter(ctx, gate, 1)
	require.ErrorIs(t, err, context.Canceled)
	done()
	_, err = enter(t.Context(), gate, 1000)
	require.NoError(t, err, "it does not wait any more")
}
