package lease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
)

// owner records its calls. It takes over every settle unless refuse is set, and extends every lease unless lost is set.
type owner struct {
	refuse  error
	settles []*lease.Lease
	changed [][]*lease.Lease
	ended   int
	expired int
	flushed int
	lost    bool
	during  func(*lease.Lease) // called by Changed
}

func (o *owner) Settle(_ context.Context, l *lease.Lease) error {
	if o.refuse == nil {
		o.settles = append(o.settles, l)
	}
	return o.refuse
}
func (o *owner) Extend(context.Context, *lease.Lease, time.Duration) (bool, error) {
	return !o.lost, nil
}
func (o *owner) Expire(l *lease.Lease) { o.expired++; l.Lose(lease.Expired) }
func (o *owner) Expedite()             { o.flushed++ }
func (o *owner) Changed(leases ...*lease.Lease) {
	o.changed = append(o.changed, leases)
	if o.during != nil {
		o.during(leases[0])
	}
	for _, l := range leases {
		if l.End() {
			o.ended++
		}
	}
}

func of(o *owner, left time.Duration) *lease.Lease {
	l := &lease.Lease{Home: &lease.Home{Owner: o, Parent: context.Background()}}
	l.Period.Begin(base.Now()+left, base.Now()+left)
	return l
}

func ack(l *lease.Lease) error {
	return l.Settle(context.Background(), lease.Ack, lease.Settlement{})
}

// What the owner counts is complete when Wait returns.
func TestWaitReturnsAfterTheOwnerHasProcessedTheOutcome(t *testing.T) {
	for name, end := range map[string]func(l *lease.Lease){
		"settled": func(l *lease.Lease) {
			require.NoError(t, ack(l))
			lease.Finish([]*lease.Lease{l}, []error{nil})
		},
		"lost": func(l *lease.Lease) { l.Lose(lease.Lost) },
	} {
		synctest.Test(t, func(t *testing.T) {
			returned := make(chan error, 1)
			o := &owner{during: func(l *lease.Lease) {
				go func() { returned <- l.Wait(t.Context()) }()
				synctest.Wait()
				require.Empty(t, returned, name)
			}}
			l := of(o, time.Hour)
			end(l)
			err := <-returned
			require.Equal(t, l.Outcome(), err, name)
			require.Equal(t, err, l.Wait(t.Context()), name)
			over, cancel := context.WithCancel(t.Context())
			cancel()
			require.Equal(t, err, l.Wait(over), "%s: the outcome is known", name)
		})
	}
}

func TestALeaseIsSettledOnce(t *testing.T) {
	o := &owner{}
	l := of(o, time.Hour)
	require.NoError(t, ack(l))
	require.Equal(t, lease.Settling, l.State())
	require.ErrorIs(t, ack(l), lease.ErrSettled)
	require.ErrorIs(t, l.ExtendBy(t.Context(), time.Minute), lease.ErrSettled)
	require.False(t, l.Take(lease.Release))
	require.False(t, l.Lose(lease.Lost), "the settle will find out")
	require.ErrorIs(t, l.EnterTx(), lease.ErrSettled)
	lease.Finish(o.settles, []error{nil})
	require.Equal(t, lease.Settled, l.State())
	require.NoError(t, l.Wait(t.Context()))
	require.ErrorIs(t, ack(l), lease.ErrSettled)
	require.Equal(t, 1, o.ended)
}

// accepting is an owner that takes every settle.
type accepting struct{ owner }

func (*accepting) Settle(context.Context, *lease.Lease) error { return nil }

// TestOneOfManyConcurrentSettlesHasTheLease: goroutines settle the same leases in the same order, so they often meet.
func TestOneOfManyConcurrentSettlesHasTheLease(t *testing.T) {
	leases, stored := make([]*lease.Lease, 200_000), make([]atomic.Int32, 200_000)
	for i := range leases {
		leases[i] = of(&owner{}, time.Hour)
		leases[i].Home.Owner = &accepting{}
	}
	var settling sync.WaitGroup
	for range 4 {
		settling.Go(func() {
			for i, l := range leases {
				if err := ack(l); err == nil {
					stored[i].Add(1)
				} else if err != lease.ErrSettled {
					t.Error(err)
				}
			}
		})
	}
	settling.Wait()
	for i := range stored {
		require.EqualValues(t, 1, stored[i].Load())
	}
}

func TestACommitSettlesTheLeasesOfItsTransaction(t *testing.T) {
	o := &owner{}
	leases := []*lease.Lease{of(o, time.Hour), of(o, time.Hour), of(o, time.Hour)}
	for _, l := range leases {
		require.NoError(t, l.EnterTx())
	}
	settling := leases[1]
	require.NoError(t, ack(settling))
	calls := len(o.changed)
	lease.Committed([]*lease.Lease{leases[0], settling, leases[2]})
	require.Len(t, o.changed, calls+1, "one call for all leases")
	for _, l := range []*lease.Lease{leases[0], leases[2]} {
		require.Equal(t, lease.Settled, l.State())
		require.Equal(t, lease.Ack, l.Op)
		require.NoError(t, l.Wait(t.Context()))
		require.ErrorIs(t, ack(l), lease.ErrSettled)
	}
	require.Equal(t, lease.Settling, settling.State(), "its settle will find out")
	lease.Committed([]*lease.Lease{settling})
	require.Len(t, o.changed, calls+1)
}

func TestASettleThatGivesUpLeavesTheLeaseAsItWas(t *testing.T) {
	o := &owner{refuse: context.Canceled}
	held, inTx := of(o, time.Hour), of(o, time.Hour)
	require.NoError(t, inTx.EnterTx())
	require.ErrorIs(t, ack(held), context.Canceled)
	require.Equal(t, lease.Held, held.State())
	require.ErrorIs(t, ack(inTx), context.Canceled)
	require.Equal(t, lease.InTx, inTx.State())

	o.refuse = batch.ErrClosed
	require.ErrorIs(t, ack(held), batch.ErrClosed)
	require.Equal(t, lease.Settled, held.State())
	require.ErrorIs(t, held.Wait(t.Context()), batch.ErrClosed)
}

// TestOneCallOfChangedForABatch matters because each call takes the lock of an ordered queue's state.
func TestOneCallOfChangedForABatch(t *testing.T) {
	o := &owner{}
	leases, errs := make([]*lease.Lease, 1000), make([]error, 1000)
	for i := range leases {
		leases[i] = of(o, time.Hour)
		require.NoError(t, ack(leases[i]))
	}
	lease.Finish(leases, errs)
	require.Len(t, o.changed, 1)
	require.Equal(t, 1000, o.ended)
}

// TestACallThatWaitsIsWokenWhenTheOwnerKnows shows that the owner's counts have changed before Wait returns.
func TestACallThatWaitsIsWokenWhenTheOwnerKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{}
		l := of(o, time.Hour)
		require.NoError(t, ack(l))
		woken := make(chan struct{}, 1)
		go func() {
			_ = l.Wait(context.Background())
			woken <- struct{}{}
		}()
		synctest.Wait()
		require.Equal(t, 1, o.flushed)
		o.during = func(*lease.Lease) {
			synctest.Wait()
			require.Empty(t, woken)
		}
		lease.Finish(o.settles, []error{nil})
		<-woken
		require.Equal(t, 1, o.ended)
	})
}

// TestALeaseThatIsLostWhileItExpiresWakesOnce moves a lease from two goroutines while a call waits.
func TestALeaseThatIsLostWhileItExpiresWakesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{}
		l := of(o, time.Hour)
		outcome := make(chan error, 1)
		go func() { outcome <- l.Wait(context.Background()) }()
		synctest.Wait()
		o.during = func(l *lease.Lease) {
			o.during = nil
			require.True(t, l.Lose(lease.Lost))
		}
		require.NotPanics(t, func() { l.Lose(lease.Expired) })
		require.ErrorIs(t, <-outcome, lease.ErrLost)
	})
}

func TestABufferedLeaseIsTakenBackAlthoughItExpiresAtTheSameTime(t *testing.T) {
	for range 20_000 {
		l := of(&owner{}, time.Hour)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Lose(lease.Expired)
		}()
		runtime.Gosched()
		require.True(t, l.Take(lease.Release), "otherwise its attempt would be counted")
		require.Equal(t, lease.Release, l.Op)
		<-ended
	}
	lost, inTx := of(&owner{}, time.Hour), of(&owner{}, time.Hour)
	require.True(t, lost.Lose(lease.Lost))
	require.False(t, lost.Take(lease.Release))
	require.NoError(t, inTx.EnterTx())
	require.False(t, inTx.Take(lease.Release), "the transaction has locked its row")
}

func TestAContextThatWasNotUsedEndsWithItsLeaseForGood(t *testing.T) {
	l := of(&owner{}, time.Hour)
	ctx := l.Context()
	require.True(t, l.Lose(lease.Expired))
	require.NoError(t, l.ExtendBy(t.Context(), time.Minute))
	require.Equal(t, lease.Held, l.State())
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
	<-ctx.Done()

	held := of(&owner{}, time.Hour)
	require.Equal(t, held.Context(), held.Context())
	child, cancel := context.WithCancel(held.Context())
	defer cancel()
	require.NoError(t, child.Err())
	require.True(t, held.Lose(lease.Lost))
	<-child.Done()
	require.ErrorIs(t, context.Cause(child), lease.ErrLost)
}

// TestAContextEndsAtTheDeadlineWhateverTheStateIs, and not before: the lease might be extended in the meantime.
func TestAContextEndsAtTheDeadlineWhateverTheStateIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, enter := range map[string]func(*lease.Lease) error{
			"held":     func(*lease.Lease) error { return nil },
			"in tx":    (*lease.Lease).EnterTx,
			"settling": ack,
		} {
			o := &owner{}
			l := of(o, time.Minute)
			ctx := l.Context()
			require.NoError(t, ctx.Err())
			require.NoError(t, enter(l))
			l.Period.Prolong(base.Now() + 2*time.Minute)
			time.Sleep(90 * time.Second)
			require.NoError(t, ctx.Err(), name)
			time.Sleep(31 * time.Second)
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost, name)
			require.Equal(t, 1, o.expired, name)
		}
	})
}

func TestAContextOutlivesASettleThatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{}
		l := of(o, time.Minute)
		ctx := l.Context()
		require.NoError(t, ctx.Err())
		require.NoError(t, ack(l))
		lease.Finish(o.settles, []error{nil})
		time.Sleep(time.Hour)
		require.NoError(t, ctx.Err())
		require.Zero(t, o.expired)
	})
}

func TestALeaseThatTheDatabaseDoesNotKnowIsLost(t *testing.T) {
	o := &owner{lost: true}
	l := of(o, time.Hour)
	require.ErrorIs(t, l.ExtendBy(t.Context(), time.Minute), lease.ErrLost)
	require.ErrorIs(t, ack(l), lease.ErrLost)
	require.ErrorIs(t, l.Wait(t.Context()), lease.ErrLost)
	require.ErrorIs(t, l.EnterTx(), lease.ErrLost)
	require.Equal(t, 1, o.ended)

	inTx := of(o, time.Hour)
	require.NoError(t, inTx.EnterTx())
	inTx.LoseInTx()
	require.ErrorIs(t, inTx.Wait(t.Context()), lease.ErrLost)
	require.Equal(t, 2, o.ended, "once each")
}

func TestARefusedSettleLeavesNothing(t *testing.T) {
	o := &owner{refuse: context.Canceled}
	l := of(o, time.Hour)
	nack := lease.Settlement{Delay: time.Minute, Text: "failed"}
	require.ErrorIs(t, l.Settle(t.Context(), lease.Nack, nack), context.Canceled)
	o.refuse = nil
	require.NoError(t, l.Settle(t.Context(), lease.Release, lease.Settlement{}))
	require.Equal(t, lease.Release, l.Op)
	require.Zero(t, l.Rare.Read().Delay)
}

func TestPrintingAContextShowsNothingOfTheLease(t *testing.T) {
	l := of(&owner{}, time.Hour)
	l.Rare.Write().Text = "secret"
	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	require.NotContains(t, fmt.Sprintf("%v %+v %s", ctx, ctx, ctx), "secret")
	require.NotContains(t, fmt.Sprintf("%v %+v %s", l.Context(), l.Context(), l.Context()), "secret")
}

func TestNoExtensionShortens(t *testing.T) {
	l := &lease.Lease{}
	for _, end := range []time.Duration{2 * time.Hour, time.Hour, 3 * time.Hour} {
		before := l.Period.Deadline()
		l.Period.Prolong(end)
		require.Equal(t, max(before, end), l.Period.Deadline())
	}
}

// rows is the result of a search that found one row, or none.
type rows struct {
	fence        int64
	live, locked bool
}

func (r rows) Of([16]byte) (int64, bool, bool) { return r.fence, r.live, r.locked }

func TestTheVerdictOnARowThatASettleDidNotReturn(t *testing.T) {
	mine, others, gone, locked := rows{7, true, false}, rows{8, true, false}, rows{}, rows{0, false, true}
	for _, c := range []struct {
		what    string
		op      lease.Op
		row     rows
		unknown bool
		late    bool // the deadline has passed
		inTx    bool
		want    lease.Verdict
	}{
		{what: "locked", row: locked, want: lease.VerdictLocked},
		{what: "was locked a moment ago", row: mine, want: lease.VerdictLocked},
		{what: "claimed by another consumer", row: others, want: lease.VerdictLost},
		{what: "gone", row: gone, want: lease.VerdictLost},
		{what: "an ack that might have been applied", row: gone, unknown: true, want: lease.VerdictApplied},
		{what: "a nack that might have been applied", op: lease.Nack, row: others, unknown: true,
			want: lease.VerdictApplied},
		{what: "an ack deletes, and the row is there", row: others, unknown: true, want: lease.VerdictLost},
		{what: "a nack keeps the row", op: lease.Nack, row: gone, unknown: true, want: lease.VerdictHidden},
		{what: "another consumer might have acked it since", row: gone, unknown: true, late: true,
			want: lease.VerdictHidden},
		{what: "the caller's transaction was committed", row: gone, inTx: true, want: lease.VerdictInTx},
		{what: "committed, but claimed by another consumer", row: others, inTx: true, want: lease.VerdictLost},
	} {
		o := &owner{}
		l := of(o, time.Hour)
		l.Item.Fence = 7
		if c.inTx {
			require.NoError(t, l.EnterTx())
		}
		require.NoError(t, l.Settle(t.Context(), c.op, lease.Settlement{}))
		l.Rare.Write().MaybeApplied = c.unknown
		if c.late {
			l.Period.Begin(base.Now(), 0)
		}
		require.Equal(t, c.want, l.Verdict(l.Row(c.row)), c.what)
	}
	require.True(t, errors.Is(lease.VerdictHidden.Err(), lease.ErrHidden))
	require.NoError(t, lease.VerdictApplied.Err())
}

func TestOnlyAHeldLeaseWithTimeLeftIsCancelledWhenItsRowIsGone(t *testing.T) {
	enter := map[lease.State]func(*lease.Lease) error{
		lease.Held:     func(*lease.Lease) error { return nil },
		lease.Expired:  func(l *lease.Lease) error { l.Lose(lease.Expired); return nil },
		lease.InTx:     (*lease.Lease).EnterTx,
		lease.Settling: ack,
		lease.Settled: func(l *lease.Lease) error {
			defer lease.Finish([]*lease.Lease{l}, []error{nil})
			return ack(l)
		},
		lease.Lost: func(l *lease.Lease) error { l.Lose(lease.Lost); return nil },
	}
	for state, enter := range enter {
		for _, row := range []lease.RowState{lease.RowHeld, lease.RowTaken, lease.RowGone} {
			for _, left := range []time.Duration{time.Hour, 0} {
				l := of(&owner{}, time.Hour)
				require.NoError(t, enter(l))
				require.Equal(t, state, l.State())
				l.Period.Begin(base.Now()+left, base.Now()+left)
				if left > 0 && state == lease.Held {
					require.NoError(t, l.Context().Err()) // the use after the deadline moves the lease to Expired
				}
				cancelled := state == lease.Held && row == lease.RowGone && left > 0
				require.Equal(t, cancelled, row.Cancels(l), "%d, %d, %v", state, row, left)
				if !cancelled {
					require.NotErrorIs(t, context.Cause(l.Context()), lease.ErrCancelled)
					continue
				}
				require.ErrorIs(t, context.Cause(l.Context()), lease.ErrCancelled)
				require.Equal(t, lease.Held, l.State(), "the caller moves it")
				require.True(t, l.Lose(lease.Lost))
				extended := l.ExtendBy(t.Context(), time.Hour)
				for _, err := range []error{ack(l), l.Wait(t.Context()), l.EnterTx(), extended, l.Outcome()} {
					require.ErrorIs(t, err, lease.ErrCancelled)
					require.ErrorIs(t, err, lease.ErrLost)
				}
			}
		}
	}
}

func TestACallForSeveralLeasesEndsWhenOneIsCancelled(t *testing.T) {
	o := &owner{}
	l, other := of(o, time.Hour), of(o, time.Hour)
	l.Home = other.Home
	ctx, end := lease.Together([]*lease.Lease{l, other})
	require.True(t, lease.RowGone.Cancels(l))
	require.ErrorIs(t, context.Cause(ctx), lease.ErrCancelled)
	require.NoError(t, other.Context().Err())
	end()

	require.True(t, l.Lose(lease.Lost))
	later, end := lease.Together([]*lease.Lease{l, other})
	defer end()
	require.ErrorIs(t, context.Cause(later), lease.ErrCancelled)
}
