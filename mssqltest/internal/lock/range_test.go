package lock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// WHERE NOT EXISTS (… WITH (UPDLOCK, SERIALIZABLE)) before an INSERT of the same key: the probe locks the gap before
// the next key, "m".
func TestASerializableProbeKeepsOthersFromInsertingTheKey(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	prober, inserter := r.holder(1, lock.RangeSU, key("m")), r.NewOwner(2, 0)

	test := r.start(inserter, key("m"), lock.RangeIN, forever)
	require.NoError(t, prober.Lock(t.Context(), key("m"), lock.RangeIN, noWait), "the prober itself can insert")
	require.Equal(t, lock.RangeXU, prober.Held(key("m")))
	prober.Unlock(key("m"), lock.RangeIN)
	require.Equal(t, lock.RangeSU, prober.Held(key("m")))
	r.requireWaiting(2)
	prober.Release()
	require.NoError(t, test.result())
}

func TestTwoProbesForUpdateWaitForEachOtherAndTwoForReadingDoNot(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(1, lock.RangeSU, key("m")), r.NewOwner(2, 0)
	second := r.start(b, key("m"), lock.RangeSU, forever)
	a.Release()
	require.NoError(t, second.result())

	r.holder(3, lock.RangeSS, key("z"))
	r.holder(4, lock.RangeSS, key("z"))
}

// Two shared probes, both followed by an insert into the gap.
func TestTwoSharedProbesThatBothInsertDeadlock(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	a, b := r.holder(1, lock.RangeSS, key("m")), r.holder(2, lock.RangeSS, key("m"))
	insert := r.start(a, key("m"), lock.RangeIN, forever)
	require.Equal(t, int32(1205), number(t, b.Lock(t.Context(), key("m"), lock.RangeIN, forever)))
	b.Release()
	require.NoError(t, insert.result())
}

func TestInsertsIntoOneGapAndLocksOnItsKeyDoNotMeet(t *testing.T) {
	t.Parallel()
	r := newManager(t)
	r.holder(1, lock.X, key("m"))
	r.holder(2, lock.RangeIN, key("m"))
	r.holder(3, lock.RangeIN, key("m"))
}
