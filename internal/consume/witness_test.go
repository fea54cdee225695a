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
	o := &owner{load: newLoad(false), pace: claim.NewPace(claim.Config{}), witness: &witness{
		tasks: &tasks{cfg: &Config{}}, entered: make(chan struct{}, 1), leases: map[*lease.Lease]bool{},
	}}
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
	in := func() []*lease.Lease {
		leases, _ := o.witness.open()
		return leases
	}
	require.Equal(t, []*lease.Lease{open}, in())
	open.LoseInTx()
	require.Empty(t, in())
	require.NoError(t, rolledBack.EnterTx(), "it is acked in another transaction")
	require.Equal(t, []*lease.Lease{rolledBack}, in())
}
