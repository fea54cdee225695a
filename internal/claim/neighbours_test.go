package claim

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
)

func TestConsumersOfOneQueueShareItsGate(t *testing.T) {
	db := &sql.DB{}
	orders, mails := notify.Key{DB: db, Queue: "orders"}, notify.Key{DB: db, Queue: "mails"}
	first, second, other := Join(orders, t.Context()), Join(orders, t.Context()), Join(mails, t.Context())
	require.Same(t, first.of.gate, second.of.gate)
	require.NotSame(t, first.of.gate, other.of.gate)

	gate := first.of.gate
	first.Leave()
	third := Join(orders, t.Context())
	require.Same(t, gate, third.of.gate, "the second one is still there")
	for _, n := range []*Neighbour{second, third, other} {
		n.Leave()
	}
	require.Empty(t, neighbours.of, "queues without a consumer are removed")
}

func TestConsumersOfOneProcessShareItsTrial(t *testing.T) {
	db := &sql.DB{}
	first, second := Join(notify.Key{DB: db, Queue: "orders"}, t.Context()), Join(notify.Key{DB: db, Queue: "orders"}, t.Context())
	other, shard := Join(notify.Key{DB: db, Queue: "mails"}, t.Context()), Join(notify.Key{DB: &sql.DB{}, Queue: "orders"}, t.Context())
	require.True(t, first.Begin())
	for _, n := range []*Neighbour{first, second, other, shard} {
		require.False(t, n.Begin(), "one consumer at a time")
	}
	second.End()
	require.False(t, second.Begin(), "it could not end the turn of another consumer")
	first.End()
	require.True(t, shard.Begin())
	shard.Leave()
	require.True(t, other.Begin(), "Leave ends the turn")
	other.End()

	simulated := &sql.DB{}
	end := SimulateProcess(simulated)
	inside := Join(notify.Key{DB: simulated}, t.Context())
	end()
	require.True(t, inside.Begin())
	require.True(t, first.Begin())
	for _, n := range []*Neighbour{first, second, other, inside} {
		n.Leave()
	}
}

// heedless ignores the ends of its leases.
type heedless struct{ lease.Owner }

func (heedless) Changed(...*lease.Lease) {}

// TestATurnEndsWithASettleThatFindsItsLeaseOver: a consumer that has stopped does not review its trials.
func TestATurnEndsWithASettleThatFindsItsLeaseOver(t *testing.T) {
	db := &sql.DB{}
	defer SimulateProcess(db)()
	stopped, cancel := context.WithCancel(t.Context())
	first, second := Join(notify.Key{DB: db, Queue: "orders"}, stopped), Join(notify.Key{DB: db, Queue: "mails"}, t.Context())
	cancel()
	for _, c := range []struct {
		outcome error
		over    bool
	}{
		{nil, true},
		{lease.ErrLost, true},
		{lease.ErrSettled, true}, // after an AckTx that is committed
		{&lease.FailedError{Unknown: true, Err: lease.ErrHidden}, true},
		{&lease.FailedError{Unknown: true, Err: errors.New("no connection")}, false},
		{&lease.FailedError{Refused: true, Err: errors.New("refused")}, false},
		{batch.ErrClosed, false},
	} {
		l := &lease.Lease{Home: &lease.Home{Owner: heedless{}, Parent: t.Context()}}
		l.Period.Begin(base.Now()+time.Hour, base.Now()+time.Hour)
		require.True(t, first.Begin())
		first.EndWith(l)
		require.False(t, second.Begin(), "it is leased")
		lease.Finish([]*lease.Lease{l}, []error{c.outcome})
		require.Equal(t, c.over, second.Begin(), "%v", c.outcome)
		second.End()
		first.End()
	}
	first.Leave()
	second.Leave()
}
