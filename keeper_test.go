package chanq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAKeeperDropsWhatHasEndedByTheTimeThatItIsHeld(t *testing.T) {
	k := &keeper{leaseFor: time.Minute, wake: make(chan struct{}, 1)}
	leases := make([]*lease, minSweep)
	for i := range leases {
		leases[i] = &lease{}
		leases[i].isEnded.Store(true)
	}
	k.hold(leases)
	require.Zero(t, k.count)
}
