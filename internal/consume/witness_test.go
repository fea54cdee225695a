package consume

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
)

// TestTheWitnessLooksAtWhatIsInOpenTransactions: the message of a transaction that was rolled back may be gone because another consumer has
// acked it.
func TestTheWitnessLooksAtWhatIsInOpenTransactions(t *testing.T) {
	c := &Consumer{stop: t.Context(), pace: claim.NewPace(claim.Config{}), witness: witness{entered: make(chan struct{}, 1)}}
	c.home = lease.Home{Owner: c, Parent: context.Background()}
	enter := func() *lease.Lease {
		l := &lease.Lease{Home: &c.home}
		l.Begin(math.MaxInt64, 0)
		require.NoError(t, l.EnterTx())
		return l
	}
	open, rolledBack, lost := enter(), enter(), enter()
	require.NoError(t, open.EnterTx(), "again")
	rolledBack.RolledBack.Store(true)
	lost.LoseInTx()
	require.True(t, c.witness.waits())
	require.Equal(t, []*lease.Lease{open}, c.witness.take())
	c.witness.add(rolledBack)
	require.False(t, c.witness.waits())
	require.Empty(t, c.witness.take())
	require.NoError(t, rolledBack.EnterTx(), "it is acked in another transaction")
	require.Equal(t, []*lease.Lease{rolledBack}, c.witness.take())
}
