package chanq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

// still is an owner to whom nothing happens.
type still struct{}

func (still) home() *queue                         { return &queue{dialect: sqlite.Dialect} }
func (still) settle(context.Context, *lease) error { return nil }
func (still) hurry()                               {}
func (still) ended(*lease)                         {}
func (still) moved(...*lease)                      {}
func (still) awaits(*lease) bool                   { return false }
func (still) parent() context.Context              { return context.Background() }
func (still) expire(*lease)                        {}
func (still) settled(SettledEvent, slotNames)      {}
func (still) broken(error)                         {}
func (still) extend(context.Context, *lease, time.Duration) (bool, error) {
	return true, nil
}

func stillLease(left time.Duration) *lease {
	l := &lease{owner: still{}}
	l.deadline.Store(int64(base.Now() + left))
	return l
}

func TestASettleDoesNotLingerBeyondItsLease(t *testing.T) {
	s := newSettler(still{}, nil, nil, t.Context(), 0, time.Minute, 10)
	for left, urgency := range map[time.Duration]batch.Urgency{time.Hour: batch.Lazy, time.Minute: batch.Now, 0: batch.Now} {
		require.Equal(t, urgency, s.urgency(stillLease(left)), left)
	}
}

// counting is an owner that counts the calls of moved, each of which takes the lock of an ordered queue's state once.
type counting struct {
	still
	queue *queue
	moves int
}

func (c *counting) home() *queue    { return c.queue }
func (c *counting) moved(...*lease) { c.moves++ }

func TestAGroupOfAcksTakesTheLockOfAnOrderedQueueTwiceAtMost(t *testing.T) {
	owner := &counting{queue: &queue{dialect: sqlite.Dialect}}
	s := newSettler(owner, nil, nil, t.Context(), 0, time.Minute, 10)
	outcomes := make([]batch.Outcome[*lease], 1000)
	for i := range outcomes {
		outcomes[i].Item = stillLease(time.Hour)
		outcomes[i].Item.owner = owner
	}
	s.done(time.Now(), outcomes)
	for _, o := range outcomes {
		require.Equal(t, leaseSettled, o.Item.state.Load())
	}
	require.LessOrEqual(t, owner.moves, 2)
	require.Positive(t, owner.moves)
}

func TestAContextThatWasNotUsedEndsWithItsLeaseForGood(t *testing.T) {
	l := &Lease[string]{lease: &lease{owner: still{}}}
	ctx := l.Context()
	require.True(t, l.lease.lose(leaseExpired))
	require.NoError(t, l.Extend(t.Context(), time.Minute))
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
	<-ctx.Done()

	held := &Lease[string]{lease: stillLease(time.Hour)}
	require.Equal(t, held.Context(), held.Context())
	child, cancel := context.WithCancel(held.Context())
	defer cancel()
	require.NoError(t, child.Err())
	require.True(t, held.lease.lose(leaseLost))
	<-child.Done()
	require.ErrorIs(t, context.Cause(child), ErrLeaseLost)
}

func TestPrintingAContextTellsNothingOfTheLease(t *testing.T) {
	l := &Lease[string]{lease: &lease{owner: still{}, text: "secret"}}
	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	require.NotContains(t, fmt.Sprintf("%v %+v %s", ctx, ctx, ctx), "secret")
	require.NotContains(t, fmt.Sprintf("%v %+v %s", l.Context(), l.Context(), l.Context()), "secret")
}

func TestNoExtensionShortens(t *testing.T) {
	l := &lease{}
	l.prolong(2 * time.Hour)
	require.Equal(t, 2*time.Hour, l.deadlineAt())
	l.prolong(time.Hour)
	require.Equal(t, 2*time.Hour, l.deadlineAt())
	l.prolong(3 * time.Hour)
	require.Equal(t, 3*time.Hour, l.deadlineAt())
}
