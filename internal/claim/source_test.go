package claim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

func TestTheBufferCountsTheLeasesOfAllBatches(t *testing.T) {
	b := newBuffer()
	for _, n := range []int{2, 3} {
		b.put(Batch{make([]*lease.Lease, n), make([]table.Claimed, n)}, nil)
	}
	var waiting []int
	for n := 4; n > 0; n = len(b.Next(2).Leases) {
		waiting = append(waiting, b.Waiting())
	}
	require.Equal(t, []int{5, 3, 1, 0}, waiting)
}
