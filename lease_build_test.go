package chanq

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

func TestWhatLeasesShareIsSmall(t *testing.T) {
	require.LessOrEqual(t, claim.SlabLeases*(unsafe.Sizeof(lease.Lease{})+unsafe.Sizeof(Lease[[]byte]{}))+
		4*table.Chunk, uintptr(64<<10), "the slabs, and chunks that a slab's bytes may lie in")
	rows := make([]table.Claimed, 100)
	for i := range rows {
		rows[i].Body = make([]byte, 10)
	}
	require.Equal(t, claim.SlabLeases, sharing[[]byte](rows))
	require.Equal(t, claim.SlabLeases, sharing[string](rows))
	require.Equal(t, 1, sharing[map[string]any](rows), "a codec may make a value of any size")
	rows[3].Body = make([]byte, slabBytes)
	require.Equal(t, 3, sharing[[]byte](rows))
	require.Equal(t, 1, sharing[[]byte](rows[3:]))
	rows[1].Headers = make([]byte, slabBytes/headersGrow)
	require.Equal(t, 1, sharing[[]byte](rows), "headers are larger when they are decoded")
}
