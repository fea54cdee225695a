package chanq

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
)

func TestABufferedLeaseIsTakenBackThoughTheKeeperEndsItAtTheSameTime(t *testing.T) {
	q := &queue{}
	for range 20_000 {
		l := &lease{owner: &consumer[string]{queue: q, values: t.Context()}}
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
		4*claim.Chunk, uintptr(64<<10), "the slabs, and chunks that a slab's bytes may lie in")
	rows := make([]claimedRow, 100)
	for i := range rows {
		rows[i].Body = make([]byte, 10)
	}
	require.Equal(t, slabLeases, sharing[[]byte](rows))
	require.Equal(t, slabLeases, sharing[string](rows))
	require.Equal(t, 1, sharing[map[string]any](rows), "what a codec makes may be of any size")
	rows[3].Body = make([]byte, slabBytes)
	require.Equal(t, 3, sharing[[]byte](rows))
	require.Equal(t, 1, sharing[[]byte](rows[3:]))
	rows[1].Headers = make([]byte, slabBytes/headersGrow)
	require.Equal(t, 1, sharing[[]byte](rows), "headers are larger when they are decoded")
}
