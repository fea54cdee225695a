package consume

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
)

// TestTheWitnessLooksAtWhatIsInOpenTransactions: the message of a transaction that was rolled back might be gone because another consumer
// has acked it.
func TestTheWitnessLooksAtWhatIsInOpenTransactions(t *testing.T) {
	o := &owner{load: newLoad(false), pace: claim.NewPace(claim.Config{}), witness: &witness{entered: make(chan struct{}, 1), leases: map[*lease.Lease]bool{}}}
	o.home = lease.Home{Owner: o, Parent: context.Background()}
	enter := func() *lease.Lease {
		l := &lease.Lease{Home: &o.home}
		l.Period.Begin(math.MaxInt64, 0)
		require.NoError(t, l.EnterTx())
		return l
	}
	open, rolledBack, lost := enter(), enter(), enter()
	require.NoError(t, open.EnterTx(), "again")
	rolledBack.RolledBack.Store(true)
	lost.LoseInTx()
	require.Equal(t, []*lease.Lease{open}, o.witness.take())
	o.witness.add(rolledBack)
	require.Empty(t, o.witness.take())
	require.NoError(t, rolledBack.EnterTx(), "it is acked in another transaction")
	require.Equal(t, []*lease.Lease{rolledBack}, o.witness.take())
}
