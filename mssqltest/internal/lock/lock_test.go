package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func TestReadersShareAndAWriterWaitsForThem(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.S, key("k")), r.holder(2, lock.S, key("k")), r.NewOwner(3, 0)

	write := r.start(c, key("k"), lock.X, forever)
	a.Release()
	r.requireWaiting(3)
	b.Release()
	require.NoError(t, write.result())
	require.Equal(t, lock.X, c.Held(key("k")))
	require.Equal(t, lock.None, a.Held(key("k")))
}

func TestResourcesAreSeparate(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	r.holder(1, lock.X, key("k"), app("k"))
	r.holder(2, lock.X, key("l"), app("l"),
		lock.Resource{Object: 7, Index: 2, Key: "k"}, lock.Resource{Object: 8, Index: 1, Key: "k"}, whole(7))
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	holder := r.holder(1, lock.X, key("k"))
	var queue []*pending
	var owners []lock.Owner
	for session := 2; session < 6; session++ {
		o := r.NewOwner(session, 0)
		owners = append(owners, o)
		queue = append(queue, r.start(o, key("k"), lock.X, forever))
	}
	r.requireWaiting(2, 3, 4, 5)
	holder.Release()
	for i, p := range queue {
		require.NoError(t, p.result())
		require.Equal(t, lock.X, owners[i].Held(key("k")))
		owners[i].Release()
	}
	require.Empty(t, r.Snapshot())
}

func TestAReaderDoesNotOvertakeAWriterThatWaits(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.S, key("k")), r.NewOwner(2, 0), r.NewOwner(3, 0)

	write := r.start(b, key("k"), lock.X, forever)
	read := r.start(c, key("k"), lock.S, forever)
	require.ErrorIs(t, r.NewOwner(4, 0).Lock(t.Context(), key("k"), lock.S, skip), lock.ErrBusy)
	a.Release()
	require.NoError(t, write.result())
	r.requireWaiting(3)
	b.Release()
	require.NoError(t, read.result())
}

func TestAReaderDoesNotOvertakeAWriterWhenOneOfTheReadersBeforeItEnds(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(1, lock.S, key("k")), r.holder(2, lock.S, key("k"))
	c, d := r.NewOwner(3, 0), r.NewOwner(4, 0)
	write := r.start(c, key("k"), lock.X, forever)
	read := r.start(d, key("k"), lock.S, forever)
	a.Release()
	r.requireWaiting(3, 4)
	b.Release()
	require.NoError(t, write.result())
	c.Release()
	require.NoError(t, read.result())
}

// The other half of "relaxed" first in, first out.
func TestARequestOvertakesWaitersItIsCompatibleWith(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	r.holder(1, lock.IX, whole(7))
	r.start(r.NewOwner(2, 0), whole(7), lock.S, lock.Wait{Timeout: time.Second})
	r.holder(3, lock.IS, whole(7))
	require.Equal(t, int32(1222), number(t, r.NewOwner(4, 0).Lock(t.Context(), whole(7), lock.IX, noWait)))
	(<-r.timers) <- time.Time{}
}

func TestAConversionGoesBeforeNewRequests(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.S, key("k")), r.holder(2, lock.S, key("k")), r.NewOwner(3, 0)

	write := r.start(c, key("k"), lock.X, forever)
	convert := r.start(b, key("k"), lock.X, forever)
	r.requireWaiting(2, 3)
	require.Equal(t, lock.S, r.Snapshot()[1].Mode, "session 2 still holds its locks")
	a.Release()
	require.NoError(t, convert.result())
	r.requireWaiting(3)
	b.Release()
	require.NoError(t, write.result())
}

func TestConversionsAreFirstInFirstOutAmongThemselves(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b, c := r.holder(1, lock.U, key("k")), r.holder(2, lock.S, key("k")), r.holder(3, lock.S, key("k"))
	first, second := r.start(b, key("k"), lock.U, forever), r.start(c, key("k"), lock.U, forever)
	r.requireWaiting(2, 3)
	a.Release()
	require.NoError(t, first.result())
	b.Release()
	require.NoError(t, second.result())
}

func TestAConversionIgnoresWaitersAndItsOwnLock(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(1, lock.U, key("k")), r.NewOwner(2, 0)
	wait := r.start(b, key("k"), lock.U, forever)
	require.NoError(t, a.Lock(t.Context(), key("k"), lock.X, noWait))
	require.NoError(t, a.Lock(t.Context(), key("k"), lock.S, noWait))
	require.Equal(t, lock.X, a.Held(key("k")))
	a.Release()
	require.NoError(t, wait.result())
}

func TestEachUnlockReleasesOneLock(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	o := r.holder(1, lock.S, key("k"), key("k"))
	other := r.NewOwner(2, 0)
	o.Unlock(key("k"), lock.S)
	require.Equal(t, lock.S, o.Held(key("k")))
	write := r.start(other, key("k"), lock.X, forever)
	o.Unlock(key("k"), lock.S)
	require.NoError(t, write.result())
	require.Equal(t, lock.None, o.Held(key("k")))
}

func TestUnlockLeavesWhatWasLockedInOtherModes(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	o, other := r.holder(1, lock.S, key("k")), r.NewOwner(2, 0)
	require.NoError(t, o.Lock(t.Context(), key("k"), lock.U, noWait))
	wait := r.start(other, key("k"), lock.U, forever)
	o.Unlock(key("k"), lock.U)
	require.NoError(t, wait.result())
	require.Equal(t, lock.S, o.Held(key("k")))
	require.Equal(t, 1, r.rowLocks(1, 1))
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	o := r.holder(1, lock.S, key("k"))
	require.Panics(t, func() { o.Unlock(key("k"), lock.U) })
	require.Panics(t, func() { o.Unlock(key("l"), lock.S) })
	require.Panics(t, func() { _ = o.Lock(t.Context(), key("k"), lock.IX, noWait) })
	require.Panics(t, func() { _ = o.Lock(t.Context(), whole(7), lock.RangeSS, noWait) })
	require.Panics(t, func() { _ = o.Lock(t.Context(), key("k"), lock.None, noWait) })
	require.NoError(t, o.Lock(t.Context(), key("k"), lock.X, noWait), "the manager is usable after a panic")
}

func TestSkipAndTimeoutZeroFailImmediately(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	r.holder(1, lock.U, key("k"))
	o := r.NewOwner(2, 0)
	require.ErrorIs(t, o.Lock(t.Context(), key("k"), lock.U, skip), lock.ErrBusy)
	err := o.Lock(t.Context(), key("k"), lock.U, noWait)
	var e *sqltype.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, sqltype.Error{Number: 1222, Class: 16, State: 51, Message: "Lock request time out period exceeded."}, *e)
	require.Equal(t, lock.None, o.Held(key("k")))
	require.NoError(t, o.Lock(t.Context(), key("k"), lock.S, skip), "S is compatible with U")
	require.ErrorIs(t, o.Lock(t.Context(), key("k"), lock.U, skip), lock.ErrBusy)
	require.Equal(t, lock.S, o.Held(key("k")), "earlier locks are still held")
}

func TestAWaitEndsWithItsTimeout(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	holder, a, b := r.holder(1, lock.S, key("k")), r.NewOwner(2, 0), r.NewOwner(3, 0)
	write := r.start(a, key("k"), lock.X, lock.Wait{Timeout: time.Second})
	read := r.start(b, key("k"), lock.S, forever)
	(<-r.timers) <- time.Time{}
	require.Equal(t, int32(1222), number(t, write.result()))
	require.NoError(t, read.result(), "the reader behind it continues")
	holder.Release()
	b.Release()
	require.Empty(t, r.Snapshot())
}

func TestTheDefaultTimerIsRealTime(t *testing.T) {
	t.Parallel()
	m := lock.New(lock.Options{})
	require.NoError(t, m.NewOwner(1, 0).Lock(t.Context(), key("k"), lock.X, noWait))
	begin := time.Now()
	err := m.NewOwner(2, 0).Lock(t.Context(), key("k"), lock.X, lock.Wait{Timeout: 20 * time.Millisecond})
	require.Equal(t, int32(1222), number(t, err))
	require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	holder, a, b := r.holder(1, lock.S, key("k")), r.holder(2, lock.S, key("k")), r.NewOwner(3, 0)
	ctx, cancel := context.WithCancel(t.Context())
	convert := r.startContext(ctx, a, key("k"), lock.X, forever)
	read := r.start(b, key("k"), lock.S, forever)
	cancel()
	require.ErrorIs(t, convert.result(), context.Canceled)
	require.NoError(t, read.result(), "the reader behind it continues")
	require.Equal(t, lock.S, a.Held(key("k")), "earlier locks are still held")
	for _, o := range []lock.Owner{holder, a, b} {
		o.Release()
	}
	require.Empty(t, r.Snapshot())
}

func TestReleaseLetsAnOwnerServeAnotherTransaction(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	o := r.holder(1, lock.X, key("a"), key("b"), lock.Resource{Object: 7, Index: 2, Key: "a"}, whole(7))
	require.Equal(t, 2, r.rowLocks(1, 1))
	require.Equal(t, 1, r.rowLocks(1, 2))
	require.Equal(t, 0, r.rowLocks(1, 0), "the table lock is not a row lock")
	o.Release()
	require.Equal(t, 0, r.rowLocks(1, 1))
	require.Empty(t, r.Snapshot())
	require.NoError(t, o.Lock(t.Context(), key("a"), lock.X, noWait))
	require.Equal(t, 1, r.rowLocks(1, 1))
}

func TestSnapshotListsHoldersThenWaiters(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	r.holder(2, lock.S, key("k"))
	r.holder(1, lock.S, key("k"), app("a"))
	r.start(r.NewOwner(4, 0), key("k"), lock.X, lock.Wait{Timeout: 1})
	r.start(r.NewOwner(3, 0), key("k"), lock.U, lock.Wait{Timeout: 1})
	require.Equal(t, []lock.Info{
		{Session: 1, Resource: app("a"), Mode: lock.S},
		{Session: 1, Resource: key("k"), Mode: lock.S},
		{Session: 2, Resource: key("k"), Mode: lock.S},
		{Session: 4, Resource: key("k"), Mode: lock.X, Waiting: true},
		{Session: 3, Resource: key("k"), Mode: lock.U, Waiting: true},
	}, r.Snapshot())
	(<-r.timers) <- time.Time{}
	(<-r.timers) <- time.Time{}
}

func TestOnLockIsCalledForEachLockThatIsGranted(t *testing.T) {
	var got []lock.Info
	m := lock.New(lock.Options{OnLock: func(i lock.Info) { got = append(got, i) }})
	a, b := m.NewOwner(1, 0), m.NewOwner(2, 0)
	require.NoError(t, a.Lock(t.Context(), key("k"), lock.X, noWait))
	require.ErrorIs(t, b.Lock(t.Context(), key("k"), lock.S, skip), lock.ErrBusy)
	require.Error(t, b.Lock(t.Context(), key("k"), lock.S, noWait))
	a.Release()
	require.NoError(t, b.Lock(t.Context(), key("k"), lock.S, noWait))
	require.Equal(t, []lock.Info{{Session: 1, Resource: key("k"), Mode: lock.X}, {Session: 2, Resource: key("k"), Mode: lock.S}}, got)
	b.Release()
}
