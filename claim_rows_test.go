package chanq

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestABufferedLeaseIsTakenBackThoughTheKeeperEndsItAtTheSameTime(t *testing.T) {
	q := &queue{}
	for range 20_000 {
		l := &lease{owner: &shardConsumer[string]{queue: q, values: t.Context()}}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.state.CompareAndSwap(leaseHeld, leaseExpired)
		}()
		runtime.Gosched()
		require.True(t, l.takeBack(), "its attempt would be counted")
		require.Equal(t, settleRelease, l.op)
		<-ended
	}
	for _, s := range []leaseState{leaseLost, leaseSettled, leaseSettling, leaseInTx} {
		l := &lease{}
		l.state.Store(s)
		require.False(t, l.takeBack())
	}
}

func TestWhatLeasesShareIsSmall(t *testing.T) {
	require.LessOrEqual(t, slabLeases*(unsafe.Sizeof(lease{})+unsafe.Sizeof(Lease[[]byte]{}))+
		4*arenaChunk, uintptr(64<<10), "the slabs, and chunks that a slab's bytes may lie in")
	rows := make([]claimedRow, 100)
	for i := range rows {
		rows[i].body = make([]byte, 10)
	}
	require.Equal(t, slabLeases, sharing[[]byte](rows))
	require.Equal(t, slabLeases, sharing[string](rows))
	require.Equal(t, 1, sharing[map[string]any](rows), "what a codec makes may be of any size")
	rows[3].body = make([]byte, slabBytes)
	require.Equal(t, 3, sharing[[]byte](rows))
	require.Equal(t, 1, sharing[[]byte](rows[3:]))
	rows[1].headers = make([]byte, slabBytes/headersGrow)
	require.Equal(t, 1, sharing[[]byte](rows), "headers are larger when they are decoded")
}

// TestWhatIsSpent goes through the lives of a message whose every claim lapses, after
// some that failed: how often may it be delivered?
func TestWhatIsSpent(t *testing.T) {
	for _, c := range []struct{ maxAttempts, failed, deliveries int }{
		{1, 0, 2}, // the second one alone
		{2, 0, 3},
		{3, 0, 3},
		{10, 0, 10},
		{3, 1, 4}, // it lapsed once, twice: then alone
		{3, 2, 4},
		{10, 9, 11},
		{10, 8, 11},
		{10, 7, 10},
	} {
		t.Run(fmt.Sprintf("max=%d/failed=%d", c.maxAttempts, c.failed), func(t *testing.T) {
			deliveries, suspected := c.failed, 0
			for lapses := 0; ; lapses++ {
				row := claimedRow{attempts: deliveries + 1, lapses: lapses}
				if row.spent(c.maxAttempts) {
					break
				}
				if deliveries++; isSuspect(row.attempts, row.lapses, c.maxAttempts) {
					suspected++
				}
				require.LessOrEqual(t, deliveries, c.maxAttempts+1)
			}
			require.Equal(t, c.deliveries, deliveries)
			require.Positive(t, suspected, "set aside without an attempt of its own")
		})
	}
}
