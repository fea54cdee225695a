package lock_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

func rowKeys(n int) []lock.Resource {
	keys := make([]lock.Resource, n)
	for i := range keys {
		keys[i] = key(fmt.Sprintf("%08d", i))
	}
	return keys
}

func TestEscalationReplacesRowLocksByATableLock(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	rows := rowKeys(5001)
	o := r.holder(1, lock.X, rows...)
	elsewhere := lock.Resource{Object: 8, Index: 1, Key: "k"}
	require.NoError(t, o.Lock(t.Context(), whole(7), lock.IX, noWait))
	require.NoError(t, o.Lock(t.Context(), elsewhere, lock.X, noWait))
	require.Equal(t, 5001, r.rowLocks(1, 1))

	require.True(t, o.Escalate(7, lock.X))
	require.Equal(t, []lock.Info{
		{Session: 1, Resource: whole(7), Mode: lock.X},
		{Session: 1, Resource: elsewhere, Mode: lock.X},
	}, r.Snapshot())
	require.Equal(t, 0, r.rowLocks(1, 1))
	require.Equal(t, 1, r.Escalations())

	require.NoError(t, o.Lock(t.Context(), rows[0], lock.X, noWait))
	require.Equal(t, 0, r.rowLocks(1, 1), "the table lock protects the row")
	require.NotPanics(t, func() { o.Unlock(rows[1], lock.X) })

	// READPAST does not skip a table lock: the reader waits for the intent lock.
	other := r.NewOwner(2, 0)
	wait := r.start(other, whole(7), lock.IS, forever)
	o.Release()
	require.NoError(t, wait.result())
	other.Release()

	require.NoError(t, o.Lock(t.Context(), whole(7), lock.X, noWait))
	require.NoError(t, o.Lock(t.Context(), rows[0], lock.X, noWait))
	require.Equal(t, 1, r.rowLocks(1, 1), "the next transaction has escalated nothing")
}

func TestEscalationThatIsNotGrantedImmediatelyChangesNothing(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	o := r.holder(1, lock.X, rowKeys(3)...)
	require.NoError(t, o.Lock(t.Context(), whole(7), lock.IX, noWait))
	r.holder(2, lock.IS, whole(7))
	before := r.Snapshot()
	require.False(t, o.Escalate(7, lock.X))
	require.Equal(t, before, r.Snapshot())
	require.Equal(t, 0, r.Escalations())
	require.Equal(t, 3, r.rowLocks(1, 1))
}

func TestEscalationNeverProtectsLessThanTheRowLocksDid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		intent, row, asked, becomes lock.Mode
	}{
		"read rows become a read table":                {lock.IS, lock.S, lock.S, lock.S},
		"read ranges become a read table":              {lock.IS, lock.RangeSS, lock.S, lock.S},
		"written rows become an exclusive table":       {lock.IX, lock.X, lock.S, lock.X},
		"rows locked for update, an exclusive table":   {lock.IX, lock.U, lock.S, lock.X},
		"rows locked for update, where U is asked for": {lock.IU, lock.U, lock.U, lock.U},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newManager(t)
			o := r.holder(1, tc.row, rowKeys(2)...)
			require.NoError(t, o.Lock(t.Context(), whole(7), tc.intent, noWait))
			require.True(t, o.Escalate(7, tc.asked))
			require.Equal(t, tc.becomes, o.Held(whole(7)))
			require.Equal(t, 0, r.rowLocks(1, 1))
		})
	}
}

// A row that is written after a read table lock needs its own lock again.
func TestARowThatTheTableLockDoesNotProtectIsLockedAsUsual(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	o := r.holder(1, lock.S, rowKeys(2)...)
	require.NoError(t, o.Lock(t.Context(), whole(7), lock.IS, noWait))
	require.True(t, o.Escalate(7, lock.S))
	require.NoError(t, o.Lock(t.Context(), whole(7), lock.IX, noWait))
	require.NoError(t, o.Lock(t.Context(), key("w"), lock.X, noWait))
	require.Equal(t, lock.SIX, o.Held(whole(7)))
	require.Equal(t, lock.X, o.Held(key("w")))
	require.Equal(t, 1, r.rowLocks(1, 1))
}
